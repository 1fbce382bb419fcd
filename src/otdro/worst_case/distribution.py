r"""A worst-case distribution, and the check that a model is the plain fit to it.

Slopes a of the moved rows bound the mean loss of every model (beta', b') from below,

.. math:: E_Q\,\ell(x'\beta' + b', y) \ge -E_Q\,\ell^*(a, y) + E_Q[a x]'\beta' + E_Q[a]\,b',

so that a model whose risk is the first term, with E[a x] = 0 and E[a] = 0, is the plain fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, namespace
from ..design import Design, as_dense, model_scores
from ..duality import Dual, pair_risk, priced_risk, worst_risk
from ..problem import Problem

Array = NDArray[Any]

#: Relative to the robust risk, what a distribution may fall short by where none attains it.
TOLERANCE = 1e-6
#: Relative to the robust risk, how far a plain fit to an equilibrium may fall below it.
EQUILIBRIUM = 1e-5
#: A slope within this of the steepest one, relative to it, is equally steep.
STEEP = 1e-9
#: Plain fits count whose coefficients are at most this many times those of the model.
LARGER = 10.0


@dataclass(frozen=True, eq=False)
class WorstCase:
    r"""A distribution in the ball whose risk is the worst-case risk, to ``shortfall``.

    Of a fitted model it is the least favourable distribution wherever ``equilibrium`` is True: the
    plain fit to it, without a ball, is the model itself.

    Parameters
    ----------
    points : ndarray of shape (k, d)
        Where mass is.
    targets : ndarray of shape (k,)
        The labels or targets of the points.
    weights : ndarray of shape (k,)
        Their masses; those of the points of a row sum to the row's weight.
    origin : ndarray of shape (k,)
        The row of X that each point was moved from.
    budget : float
        The mean cost of the move, at most delta.
    risk : float
        The mean loss of the model under this distribution.
    attained : bool
        False where no distribution attains the supremum (mass would escape to infinity), or, for
        the constant model, where none has it as its plain fit.
    shortfall : float
        By how much the risk falls short of the supremum.
    equilibrium : bool
        Whether it is proved that no model does better on this distribution: a plain fit to it whose
        coefficients are at most ten times those of the model has at least the robust risk, but
        for 1e-5 of it. It is False for other rows than those of the fit, where the supremum is not
        attained, and where the gap of the fit is more than 1e-5 of the robust risk: use a smaller
        ``tol`` then.

    Examples
    --------
    >>> from otdro import DRORegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.2, 1.8, 3.1]
    >>> model = DRORegressor(cost="euclidean", delta=0.01).fit(X, y)
    >>> worst = model.worst_case()
    >>> round(worst.budget, 6), worst.attained, worst.equilibrium
    (0.01, True, True)
    >>> bool(abs(worst.risk - model.robust_risk_) < 1e-6)
    True
    """

    points: Array
    targets: Array
    weights: Array
    origin: Array
    budget: float
    risk: float
    attained: bool
    shortfall: float
    equilibrium: bool


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """A linear model on the rows of a problem: their scores z, and its worst case.

    ``w`` is the dual norm of the coefficients, ``gain`` the largest change of a score, or of a
    residual where targets move, at unit price.
    """

    problem: Problem
    coef: Array
    intercept: float
    z: Array
    w: float
    gain: float
    worst: Dual


def scored(problem: Problem, coef: Array, intercept: float) -> ScoredModel:
    """Return a model with its scores and its worst-case risk over the ball."""
    z = model_scores(problem.X, coef, intercept)
    w = _dual_norm(problem, coef)
    gain = float(problem.ball.gain(w))
    return ScoredModel(problem, coef, intercept, z, w, gain, risk_of_scores(problem, coef, z))


def _dual_norm(problem: Problem, coef: Array) -> float:
    return float(problem.ball.cost.dual_norm(coef)) if np.any(coef) else 0.0


def risk_of_scores(problem: Problem, coef: Array, z: Array) -> Dual:
    """Return the worst-case risk under a norm of a model whose rows have the scores z."""
    if problem.loss.outputs > 1:
        return pair_risk(problem, coef, z)
    ball, w = problem.ball, _dual_norm(problem, coef)
    of_model = priced_risk if np.isfinite(ball.label_cost) else worst_risk
    return of_model(z, problem.y, problem.weights, problem.loss, w, ball)


def occupied(mass: Array) -> tuple[Array, Array]:
    """Return branch and row of each atom with mass (k, n), and of one for rows without weight."""
    xp = namespace(mass)
    keep = mass > 0
    keep[0] = keep[0] | ~xp.any(keep, axis=0)
    branch, row = xp.nonzero(keep)
    return branch, row


def distribution(
    model: ScoredModel,
    mass: Array,
    moves: Array,
    direction: Array,
    *,
    targets: Array | None = None,
    attained: bool = True,
) -> WorstCase:
    """Return the distribution of atoms (k, n): rows moved by ``moves`` times a direction of norm 1.

    ``targets`` of the atoms are those of the rows if None.
    """
    problem, ball = model.problem, model.problem.ball
    branch, row = occupied(mass)
    length, weights, old = moves[branch, row], mass[branch, row], problem.y[row]
    y = old if targets is None else targets[branch, row]
    spent = abs(length) ** ball.order
    if targets is not None and np.isfinite(ball.target_cost):
        spent = spent + ball.target_cost * abs(y - old) ** ball.order
    elif targets is not None:
        spent = spent + np.where(y != old, ball.label_cost, 0.0)
    scores = model.z[row] + length * float(model.coef @ direction)
    risk = float(weights @ problem.loss.value(scores, y))
    return WorstCase(
        points=as_dense(problem.X)[row] + length[:, None] * beside(direction, length),
        targets=y,
        weights=weights,
        origin=row,
        budget=float(weights @ spent),
        risk=risk,
        attained=attained,
        shortfall=max(0.0, model.worst.risk - risk),
        equilibrium=False,
    )


def plain_bound(
    problem: Problem, coef: Array, intercept: Any, worst: WorstCase, slopes: Array | None = None
) -> float:
    """Return a lower bound on the risk of plain fits to a distribution, ``LARGER`` times the model.

    It is that of this module. ``slopes`` of the points are those of a dual point; None: the
    derivatives of the loss.
    """
    loss, weights, y = problem.loss, worst.weights, worst.targets
    scores = model_scores(worst.points, coef, intercept)
    if slopes is None:
        # at a tangent -l*(a) = l(z) - a z
        slopes = loss.derivative(scores, y)
        product = slopes * scores
        heights = loss.value(scores, y) - (product if loss.outputs == 1 else product.sum(axis=-1))
    else:
        heights = -loss.conjugate(slopes, y)
    masses = weights if loss.outputs == 1 else weights[:, None]
    lower = float(weights @ heights)
    excess, center = 0.0, None
    if problem.fit_intercept:
        excess = float(abs((masses * slopes).sum(axis=0)).sum())
        center = Design(worst.points).adjoint(weights) / float(weights.sum())
        lower -= LARGER * (float(abs(scores).max()) + float(abs(y).max())) * excess
    pull = Design(worst.points, center=center).adjoint(masses * slopes)
    size = float(np.linalg.norm(pull))
    if np.any(coef):
        cost, most = problem.ball.cost, size * float(np.linalg.norm(coef))
        if cost.is_norm:
            most = max(most, float(np.sum(cost.norm(pull.T)) * np.max(cost.dual_norm(coef))))
        lower -= LARGER * most
    elif size > 0:
        # the constant model has no size: what is left of the rows' own pull counts
        rows = as_dense(problem.X)[worst.origin]
        own = Design(rows, center=center).adjoint(masses * slopes)
        lower -= LARGER * worst.risk * size / float(np.linalg.norm(own))
    # losses are nonnegative, so 0 is a bound too
    return max(lower, 0.0)
