"""The curves of the page: certified accuracy, worst-case loss, the path of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..radius.grid import over_classes
from .svg import AWAY, Frame, picture, spread
from .view import View

Array = NDArray[Any]

#: Points of the accuracy curve.
POINTS = 241
WIDTH, HEIGHT = 420.0, 250.0


def accuracy_chart(view: View) -> tuple[str, list[list[float]]]:
    """Return certified accuracy against delta, and where its cursor stands at every stop."""
    audit, stops = view.audit, view.stops
    end = float(stops.deltas[-1])
    frame = Frame(WIDTH, HEIGHT, (0.0, end), (0.0, 1.02))
    grid = np.linspace(0.0, end, POINTS)
    parts = [frame.axes("delta: mean cost of the moves", "certified accuracy")]
    parts.append(frame.level(audit.constant_accuracy(), "reference"))
    parts += _fitted(frame, view)
    parts += _refitted(frame, view, "accuracy")
    parts.append(frame.curve(grid, np.asarray(audit.accuracy(grid)), "own"))
    title = (
        f"Certified accuracy falls from {stops.accuracy[0]:.1%} at delta 0 to "
        f"{stops.accuracy[-1]:.1%} at delta {end:.3g}"
    )
    return _with_cursor(frame, "accuracy", parts, stops.accuracy, view, title)


def risk_chart(view: View) -> tuple[str, list[list[float]]]:
    """Return worst-case loss against delta, and where its cursor stands at every stop."""
    stops = view.stops
    finite = stops.risk[np.isfinite(stops.risk)]
    low, high = spread(np.append(0.0, finite))
    end = float(stops.deltas[-1])
    frame = Frame(WIDTH, HEIGHT, (0.0, end), (max(low, 0.0), high))
    parts = [frame.axes("delta: mean cost of the moves", "worst-case loss")]
    parts += _fitted(frame, view)
    parts += _refitted(frame, view, "robust_risk")
    parts.append(frame.curve(stops.deltas, stops.risk, "own"))
    title = f"Worst-case loss rises from {stops.risk[0]:.3g} to {stops.risk[-1]:.3g}"
    return _with_cursor(frame, "risk", parts, stops.risk, view, title)


def _fitted(frame: Frame, view: View) -> list[str]:
    place = view.stops.fitted
    return [] if place is None else [frame.upright(float(view.stops.deltas[place]), "fitted")]


def _refitted(frame: Frame, view: View, name: str) -> list[str]:
    if view.stops.refits is None:
        return []
    values = np.array([getattr(refit, name) for refit in view.stops.refits])
    return [frame.curve(view.stops.deltas[-len(values) :], values, "refit")]


def _with_cursor(
    frame: Frame, name: str, parts: list[str], values: Array, view: View, title: str
) -> tuple[str, list[list[float]]]:
    """Return a chart whose cursor is at the first stop, and the places of the cursor."""
    x = frame.px(view.stops.deltas)
    bounded = np.isfinite(values)
    y = np.where(bounded, frame.py(np.where(bounded, values, 0.0)), AWAY)
    places = [[round(float(a), 1), round(float(b), 1)] for a, b in zip(x, y, strict=True)]
    a, b = places[view.stops.first]
    base = frame.top + frame.inner_height
    cursor = (
        f'<g class="cursor" id="cursor-{name}"><line x1="{a}" x2="{a}" y1="{frame.top:g}" '
        f'y2="{base:g}"/><circle cx="{a}" cy="{b}" r="4.5"/></g>'
    )
    return picture(frame.width, frame.height, title, "".join(parts) + cursor), places


def path_chart(path: Any, delta: float, score_is_loss: bool) -> str:
    """Return risks and, where it is a loss, the score of the folds along the path of a fit."""
    deltas = np.log10(path.deltas)
    robust = over_classes(path.robust_risk)
    plain = over_classes(path.empirical_risk)
    curves = [(robust, "own"), (plain, "plain")]
    if path.score_mean is not None and score_is_loss:
        curves.append((-path.score_mean, "folds"))
    low, high = spread(np.concatenate([values for values, _ in curves]))
    across = (float(deltas.min()), float(deltas.max()))
    frame = Frame(WIDTH, HEIGHT, across, (low, high), logarithmic=True)
    parts = [frame.axes("delta", "loss")]
    if delta > 0:
        parts.append(frame.upright(float(np.log10(delta)), "fitted"))
    parts += [frame.curve(deltas, values, kind) for values, kind in curves]
    return picture(frame.width, frame.height, "Losses along the path of deltas", "".join(parts))
