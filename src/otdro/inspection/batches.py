r"""The deltas that really happened: how far batches of rows are from those before them.

With c = distance^p, transport cost D between two batches and :math:`D_0` between random parts of
the older one, the move that chance does not explain is about
:math:`\max(D^{2/p} - D_0^{2/p}, 0)^{p/2}`: a drift and the noise of a sample are independent, so
that the squares of their lengths add up. The lower bounds of a drift, less their noise, may say
more. Quantiles of the larger over the batches are deltas to ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d

from ..costs.table import Grid, cost_name
from .drifting import LEAST_NEW, LEAST_REFERENCE, Drift, drift

Array = NDArray[Any]

#: The shares of the batches whose deltas are stated.
LEVELS = (0.5, 0.8, 0.95, 1.0)
#: What the deltas of the table are, beside the bound that a limit is about.
DELTA = (
    "delta: the larger of the transport cost and of the lower bound, each less what chance gives; "
    "a limit on drift is compared with the lower bound beyond chance alone."
)


@dataclass(frozen=True, eq=False)
class Step:
    """The drift of the batch ``new`` from the reference ``old``, both by name."""

    old: str
    new: str
    drift: Drift

    @property
    def delta(self) -> float:
        """The move beyond chance: of the transport cost or a lower bound, whichever is larger."""
        order = self.drift.order
        square = self.drift.estimate ** (2 / order) - self.drift.noise_floor ** (2 / order)
        return float(max([max(square, 0.0) ** (order / 2), *self.drift.beyond_noise.values()]))


@dataclass(frozen=True, eq=False)
class Drifts:
    """The drifts of a table's batches, one ``Step`` each; ``print`` it.

    Attributes
    ----------
    steps : list of Step
        In the order of the batches.
    ordered : bool
        Whether each batch is compared with the one before it, else with all others.
    notes : list of str
        What the reader should know.
    """

    steps: list[Step]
    ordered: bool
    notes: list[str]

    @property
    def deltas(self) -> Array:
        """The deltas that happened, (m,)."""
        return np.array([step.delta for step in self.steps])

    def quantile(self, level: float) -> float:
        """Return the least delta that at least a share ``level`` of the batches stayed within."""
        return float(np.quantile(self.deltas, level, method="inverted_cdf"))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in lists, numbers and strings; see docs/which_delta.md."""
        first = self.steps[0].drift
        return {
            "cost": cost_name(first.cost),
            "order": first.order,
            "ordered": self.ordered,
            "steps": [
                {
                    "old": step.old,
                    "new": step.new,
                    "rows": step.drift.n_new,
                    "delta": step.delta,
                    "estimate": step.drift.estimate,
                    "p_value": step.drift.p_value,
                }
                for step in self.steps
            ],
            "quantiles": {f"{level:g}": self.quantile(level) for level in LEVELS},
            "notes": list(self.notes),
        }

    def grid(self) -> Grid:
        """Return one line per batch."""
        body = [
            [
                step.new,
                step.old,
                f"{step.delta:.4g}",
                f"{step.drift.estimate:.4g}",
                f"{step.drift.p_value:.3g}",
            ]
            for step in self.steps
        ]
        return Grid(["batch", "from", "delta", "transport cost", "p-value"], body)

    def summary(self) -> str:
        """Return the deltas in words."""
        first = self.steps[0].drift
        title = (
            f"Deltas that happened to {len(self.steps)} batches, cost "
            f"{cost_name(first.cost)} of order {first.order}, beyond chance"
        )
        shares = ", ".join(f"{q:.0%} within {self.quantile(q):.4g}" for q in LEVELS)
        lines = [title, *self.grid().lines(), f"of the batches {shares}", DELTA]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.summary()


def drifts(
    X: Any,
    by: Any,
    y: Any = None,
    *,
    ordered: bool = True,
    cost: Any = None,
    order: Any = None,
    model: Any = None,
    random_state: Any = None,
) -> Drifts:
    """Return how far each batch of a table is from the one before it, or from all others.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows of all batches.
    by : array-like of shape (n,)
        The batch of each row: its month or its site; batches are sorted.
    y : array-like of shape (n,), default=None
        The labels, where they are known: rows then move within their class.
    ordered : bool, default=True
        Whether a batch is compared with the one before it; else with all others together.
    cost, order, model, random_state
        Those of ``otdro.drift``: with a model the deltas are in the unit of its ball.

    Returns
    -------
    Drifts

    Examples
    --------
    >>> import numpy as np
    >>> from otdro.inspection import drifts
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> month = np.repeat([1, 2, 3, 4], 50)
    >>> X[month == 4] += 0.5
    >>> print(drifts(X, month).deltas.argmax())
    2
    """
    by = column_or_1d(by)
    check_consistent_length(X, by)
    options = {"cost": cost, "order": order, "model": model, "random_state": random_state}
    names, code, count = np.unique(by, return_inverse=True, return_counts=True)
    least = LEAST_REFERENCE if ordered else LEAST_NEW
    kept = np.flatnonzero(count >= least)
    if len(kept) < 2:
        first = ", ".join(map(str, names[:3])) + (", ..." if len(names) > 3 else "")
        raise ValueError(
            f"a drift needs two batches of {least} rows or more, and {len(kept)} of the "
            f"{len(names)} batches ({first}) have as many: name a column of fewer values, or give "
            "more rows."
        )
    notes = []
    if len(kept) < len(names):
        few = [str(names[k]) for k in np.flatnonzero(count < least)]
        notes.append(f"{len(few)} batches of fewer than {least} rows are left out, as {few[0]}.")
    steps = []
    for before, now in pairwise(kept) if ordered else zip(kept, kept, strict=True):
        old = code == before if ordered else (code != now) & np.isin(code, kept)
        parts = [_part(X, y, rows) for rows in (old, code == now)]
        name = str(names[before]) if ordered else "all others"
        steps.append(Step(name, str(names[now]), drift(*parts, **options)))
    return Drifts(steps, bool(ordered), notes)


def _part(X: Any, y: Any, rows: Array) -> Any:
    """Return some rows, with their labels where there are any."""
    part = _safe_indexing(X, np.flatnonzero(rows))
    return part if y is None else (part, column_or_1d(y)[rows])
