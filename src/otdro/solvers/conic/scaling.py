"""A model in units where residuals, slopes and coefficients are near 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...design import Design
from ...losses.base import Array
from .bounds import DualPoint
from .central_path import SMALL, Outcome, is_small
from .model import ROUNDING, SAMPLED, Model
from .norms import RotatedNorm

#: Columns whose sizes differ by more keep their own coordinates: an SVD would lose the small ones.
SPREAD = 1e5
#: Entries below this share of the largest of their column are zeros.
NOTHING = 1e-13
#: Rows that many times larger than outlying ones get coordinates of their own.
LARGE = 1e3
#: A row that many times larger than is usual is outlying.
UNUSUAL = 5.0


@dataclass(frozen=True, eq=False)
class ScaledModel:
    """A model in its units, and what brings its results back.

    theta = basis (unit/size) theta', intercept = b + unit b', nu = (unit/slope) nu' and
    risk = unit slope risk'.
    """

    inner: Model
    b: float
    unit: float
    slope: float
    size: float
    basis: Array | None

    @property
    def risk_unit(self) -> float:
        """The unit of the risk."""
        return self.unit * self.slope

    def restored(self, run: Outcome) -> Outcome:
        """Return a run in the units of the problem."""
        theta = run.theta * (self.unit / self.size)
        bound = DualPoint(run.bound.value * self.risk_unit, run.bound.alpha * self.slope)
        return Outcome(
            theta=theta if self.basis is None else self.basis @ theta,
            b=self.b + self.unit * run.b,
            nu=run.nu * (self.unit / self.slope),
            bound=bound,
            n_iter=run.n_iter,
        )


def scaled(model: Model, b: float, unit: float) -> ScaledModel:
    """Return the model about the constant score b, with residuals in units of ``unit``."""
    slope = model.form.slope_unit(unit)
    inner, basis = _coordinates(model.rescaled(b, unit, slope, 1.0))
    size = _size(inner)
    inner = inner.rescaled(0.0, 1.0, 1.0, size)
    inner = replace(inner, columns=inner.sizes())
    if is_small(inner.design):
        table = inner.dense(np.arange(inner.design.n))
        inner = replace(inner, table=table, magnitude=np.abs(table))
    inner = replace(inner, outlying=_outlying(inner))
    return ScaledModel(inner, b, unit, slope, size, basis)


def _coordinates(model: Model) -> tuple[Model, Array | None]:
    """Return the model in coordinates that suit its rows, and their basis."""
    if model.form.rate == 0 or model.norm.rotation_invariant:
        return _row_space(model)
    if model.design.sparse or model.norm.oracle is not None:
        return model, None
    return _along_large_rows(model)


def _row_space(model: Model) -> tuple[Model, Array | None]:
    """Return the model on the row space of Z, where only ||theta||_2 is penalised."""
    n, d = model.design.n, model.design.d
    sizes = model.sizes()
    tall = model.design.sparse or n * d**2 > SMALL or sizes.max() > SPREAD * sizes.min()
    if n >= d and tall:
        return model, None
    Z = model.design.dense() * model.live
    # without a penalty columns may be scaled, so that no small one is lost as rounding
    scale = np.linalg.norm(Z, axis=0) if model.form.rate == 0 else np.ones(d)
    scale[scale == 0] = 1.0
    U, D, Vt = np.linalg.svd(Z / scale, full_matrices=False)
    keep = ROUNDING * max(n, d) * D[0] < D
    keep[0] = True
    basis = Vt[keep].T / scale[:, None]
    return replace(model, design=Design(U[:, keep] * D[keep]), live=1.0), basis


def _along_large_rows(model: Model) -> tuple[Model, Array | None]:
    """Return the model with the directions of the far largest rows as coordinates.

    Scaled columns then condition Newton's equations, which else lose what other rows say.
    """
    large = np.flatnonzero(_outlying(model) > LARGE)
    if len(large) == 0:
        return model, None
    rows = model.design.rows(large).dense()
    size = np.linalg.norm(rows, axis=1)
    order = np.argsort(-size)
    Q = np.linalg.qr((rows / size[:, None])[order].T, mode="complete")[0]
    rotated = replace(
        model, design=Design(model.design.dense() @ Q), norm=RotatedNorm(model.norm, Q)
    )
    return rotated, Q


def _size(model: Model) -> float:
    """Return the size of the smallest column of Z that can pay its penalty."""
    sizes = _usual_sizes(model)
    sizes = sizes[sizes > 0]
    worth = model.form.worth
    return float(np.clip(worth, sizes.min(), sizes.max())) if sizes.size else 1.0


def _usual_sizes(model: Model) -> Array:
    """Return root mean squares of the columns that a few cells cannot move; of sparse rows all."""
    if model.design.sparse:
        return model.sizes()
    n = model.design.n
    Z = np.abs(model.dense(np.arange(0, n, -(-n // SAMPLED))))
    return np.asarray(np.sqrt((np.minimum(Z, UNUSUAL * _typical(Z)) ** 2).mean(axis=0)))


def _outlying(model: Model) -> Array:
    """Return how many times larger than is usual each row is, at least 1.

    Columns are measured by their medians, rows by two signed sums of measured columns.
    """
    n, d = model.design.n, model.design.d
    if model.design.sparse:
        sizes = model.sizes()
        usual = np.where(sizes > 0, sizes, np.inf)
    else:
        usual = _typical(np.abs(model.dense(np.arange(0, n, -(-n // SAMPLED)))))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, d))
    size = np.max([np.abs(model.scores(sign / usual)) for sign in signs], axis=0)
    return np.maximum(size / (UNUSUAL * _typical(size[:, None])[0]), 1.0)


def _typical(sizes: Array) -> Array:
    """Return the median of every column among entries that are not 0 up to rounding, else inf."""
    ordered = np.sort(sizes, axis=0)
    zeros = (ordered <= NOTHING * ordered[-1]).sum(axis=0)
    middle = np.minimum((zeros + len(sizes)) // 2, len(sizes) - 1)
    median = np.take_along_axis(ordered, middle[None], axis=0)[0]
    return np.where(median > 0, median, np.inf)
