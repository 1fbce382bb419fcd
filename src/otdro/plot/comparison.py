"""Scores of methods on repeated splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..comparison import Score, standard_error
from .drawing import FAINT, OTHER, OURS


def comparison(ax: Any, scores: Sequence[Score], measure: str) -> list[Any]:
    """Draw one line per method: its splits as dots, the mean with one standard error either side.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    scores : sequence of Score
        From ``otdro.comparison.compare``.
    measure : str
        The measure to show, e.g. "log-loss".

    Returns
    -------
    list
        What was drawn.
    """
    methods = list(dict.fromkeys(score.method for score in scores))
    artists = []
    for row, method in enumerate(methods):
        values = np.array([s.values[measure] for s in scores if s.method == method])
        colour = OURS if method == "ours" else OTHER
        # jitter by position, not at random: the same scores give the same picture
        height = row + 0.22 * np.cos(2.4 * np.arange(len(values)))
        dots = ax.scatter(values, height, s=9, color=colour, alpha=0.35, linewidths=0)
        error = standard_error(values) if len(values) > 1 else 0.0
        mean = ax.errorbar(
            values.mean(), row, xerr=error, fmt="o", color=colour, markersize=6, capsize=3
        )
        artists += [dots, mean]
    _frame(ax, methods, scores, measure)
    return artists


def _frame(ax: Any, methods: list[str], scores: Sequence[Score], measure: str) -> None:
    ours = [s.values[measure] for s in scores if s.method == "ours"]
    if ours:
        ax.axvline(np.mean(ours), color=FAINT, linewidth=0.8, zorder=0)
    values = np.array([s.values[measure] for s in scores])
    # a plain model that has run off to infinity must not flatten the others
    if values.min() > 0 and values.max() > 20 * np.median(values):
        ax.set_xscale("log")
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.set_xlabel(f"test {measure}: splits (dots), mean ± standard error")
    ax.spines[["top", "right"]].set_visible(False)
