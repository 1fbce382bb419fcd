"""From a problem to a model: rows of the loss, form of the risk, norm of the penalty."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from scipy import sparse

from ...costs import Cost
from ...design import Design, mean
from ...duality import require_lipschitz
from ...losses import Loss
from ...losses.base import Array
from ...problem import Problem
from .curves import Curve, Pieces, Smooth
from .forms import Form, Joint, Linear, Plain, Root
from .model import Model, some_rows
from .moving_target import JointWithTarget
from .norms import CutNorm, EuclideanNorm, MaxNorm, PenaltyNorm, SumNorm, UnitCost


class LossRows(NamedTuple):
    """Residuals r = c - o z and the loss as a curve in r."""

    c: Array
    o: Array
    curve: Curve


def lacking(problem: Problem) -> str | None:
    """Return the fact that a problem lacks to have a model, None if nothing."""
    loss, ball = problem.loss, problem.ball
    name = type(loss).__name__
    if ball.delta == 0 or ball.order == 1:
        smooth = np.isfinite(loss.smoothness) and np.isfinite(loss.lipschitz)
        if loss.pieces is None and not smooth:
            return f"{name} is neither piecewise quadratic nor smooth and Lipschitz"
        return None
    curved = loss.pieces is None or loss.pieces.kappa > 0
    if curved and np.isfinite(loss.lipschitz) and not ball.cost.euclidean:
        return f"order=2 with {name} needs a Euclidean or Mahalanobis cost"
    if loss.pieces is None:
        return f"order=2 with {name} needs a loss that is piecewise quadratic"
    return None


def formulate(problem: Problem) -> Model:
    """Return the model of a problem whose rows all have weight, features centred."""
    ball = problem.ball
    penalised = ball.delta > 0
    factor = ball.cost.factor() if ball.cost.euclidean and penalised else None
    design = Design(problem.X, factor, _centre(problem.X) if problem.fit_intercept else None)
    rows = loss_rows(problem.loss, problem.y)
    norm = _norm(ball.cost, design.d) if penalised else EuclideanNorm()
    form = _form(problem, rows.curve)
    return Model(
        design=design,
        c=rows.c,
        o=rows.o,
        pi=problem.weights,
        form=form.rescaled(1.0, 1.0, norm.unit),
        norm=norm,
        intercept=problem.fit_intercept,
        live=1.0 if penalised else _live(design, problem.weights),
    )


def loss_rows(loss: Loss, y: Array) -> LossRows:
    """Return the rows of a loss: with the larger side above if it is piecewise quadratic."""
    pieces = loss.pieces
    if pieces is None:
        low, high = loss.slope_range(y)
        return LossRows(np.zeros_like(y), np.full_like(y, -1.0), Smooth(loss, y, low, high))
    c = pieces.residual(np.zeros_like(y), y)
    o = pieces.orientation(y)
    lo, hi = pieces.slopes
    if np.isinf(lo) and np.isfinite(hi):
        return LossRows(-c, -o, Pieces(-hi, -lo, pieces.kappa))
    return LossRows(c, o, Pieces(lo, hi, pieces.kappa))


def _form(problem: Problem, curve: Curve) -> Form:
    loss, delta = problem.loss, problem.ball.delta
    if problem.ball.order == 1:
        require_lipschitz(loss)
    if delta == 0:
        return Plain(curve, 0.0)
    if problem.ball.order == 1:
        return Linear(curve, delta * loss.lipschitz)
    pieces = loss.pieces
    if pieces is None:
        raise ValueError(f"{loss!r} has rows at order=1 only: it is not piecewise quadratic.")
    lo, hi = pieces.slopes
    rows = cast(Pieces, curve)
    if pieces.rooted:
        return Root(rows, float(np.sqrt(delta)))
    if pieces.kappa == 0 and lo + hi == 0:
        # |r| has one slope: min over nu of delta w^2/(2 nu) + nu hi^2/2 = sqrt(delta) hi w
        return Linear(curve, float(np.sqrt(delta)) * hi)
    if np.isfinite(problem.ball.target_cost):
        return JointWithTarget(rows, delta, float(problem.ball.target_cost**-0.5))
    return Joint(rows, delta)


def _norm(cost: Cost, d: int) -> PenaltyNorm:
    if cost.euclidean:
        return EuclideanNorm()
    if cost.dual_p == 1:
        return SumNorm()
    if cost.dual_p == np.inf:
        return MaxNorm()
    return CutNorm(UnitCost.of(cost, d), np.empty((0, d)), np.empty((0, d)), np.zeros(d))


def _centre(X: Array) -> Array:
    """Return the medians of the columns: a mean would move with a single cell.

    Of sparse rows, which stay sparse, the means.
    """
    if sparse.issparse(X):
        return mean(X, np.full(X.shape[0], 1 / X.shape[0]))
    return np.median(some_rows(Design(X)).dense(), axis=0)


def _live(design: Design, pi: Array) -> Array | float:
    """Return 0 at the columns that are constant up to rounding, else 1."""
    if design.center is None:
        return 1.0
    # X'DX - (sum D) c c' of a sparse X rounds at eps c^2, centred rows of a dense one at (eps c)^2
    rounding = 1e-14 if design.sparse else 1e-26
    return np.where(np.diag(design.gram(pi)) > rounding * design.center**2, 1.0, 0.0)
