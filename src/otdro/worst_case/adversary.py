r"""The worst case of a model, and of a fit from its dual point the least favourable one.

Order 1 spends the budget where the slope of the loss is its Lipschitz constant. At order 2 each row
goes to its inner maximiser. Ties, a reach, labels that change at a price, costs that are no norm
and finite supports leave the best masses on a few places for each row (``place_masses``). Where no
distribution attains the supremum, the reach is one that leaves out little: ever less mass goes ever
farther.

``plain_bound`` checks that a model is the plain fit to a distribution. Slopes a of the moved rows
bound the mean loss of every model (beta', b') from below,

.. math:: E_Q\,\ell(x'\beta' + b', y) \ge -E_Q\,\ell^*(a, y) + E_Q[a x]'\beta' + E_Q[a]\,b',

so that a model whose risk is the first term, with E[a x] = 0 and E[a] = 0, is the plain fit.

The least favourable distribution of a fit has the slopes of its dual point. Rows split into atoms
of mass m and slope a = dl/dz, with E[a] = 0 and g = E[a x]. Moves t along v = -g/||g|| with
E[a t] = ||g|| leave E[a (x + t v)] = 0: no plain model has a smaller risk than -E l*(a), whatever
its coefficients. At order 2 the moves are in proportion to a, for the price ||g||^2/E[a^2]; at
order 1 the steepest atoms move, for ||g||/max |a|. What is left of delta moves targets, where they
may move. The mean slope of a row is that of the dual point; a row between two maximisers is split
between their slopes, so that -E l*(a) is the dual value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_float, as_index, beside, full, namespace, numpy
from ..design import Design, as_dense, mean, model_scores
from ..duality import (
    Dual,
    pair_norms,
    pair_risk,
    place_masses,
    present_classes,
    priced_risk,
    steepest_pair,
    worst_risk,
)
from ..problem import Ball, Problem, Solution
from ..solvers import Exact
from ..solvers.finite import places as support_places
from ..solvers.local_cost import worst_risk as local_worst_risk

Array = NDArray[Any]

#: Relative to the robust risk, what a distribution may fall short by where none attains it.
TOLERANCE = 1e-6
#: Relative to the robust risk, how far a plain fit to an equilibrium may fall below it, and a risk
#: below a bound by ascent, which is rough.
EQUILIBRIUM = 1e-5
#: Slopes that differ by this, relative to the steepest, are equal, and less mass than this is none.
EQUAL = 1e-9
#: Plain fits count whose coefficients are at most this many times those of the model.
LARGER = 10.0
#: A risk this close to the robust risk, relative to it, is that: rounding.
EXACT = 1e-8
#: The gap of a dual point, relative to the robust risk, that an equilibrium is sought with.
FINER = 1e-10
#: A slope of a dual point within this of the Lipschitz constant, relative to it, stands for that.
NEARLY_STEEP = 1e-3
#: A slope within this of an end of its range, relative to that, may be the end in a dual point of
#: a larger gap.
AT_END = 3e-6


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
    equilibrium: bool = False


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
    w = float(problem.ball.cost.dual_norm(coef))
    gain = float(problem.ball.gain(w))
    return ScoredModel(problem, coef, intercept, z, w, gain, risk_of_scores(problem, coef, z))


def risk_of_scores(problem: Problem, coef: Array, z: Array) -> Dual:
    """Return the worst-case risk under a norm of a model whose rows have the scores z."""
    if problem.loss.outputs > 1:
        return pair_risk(problem, coef, z)
    ball, w = problem.ball, float(problem.ball.cost.dual_norm(coef))
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
    model: ScoredModel, mass: Array, moves: Array, direction: Array, targets: Array | None = None
) -> WorstCase:
    """Return the distribution of atoms (k, n): rows moved by ``moves`` times a direction of norm 1.

    ``targets`` of the atoms are those of the rows if None.
    """
    problem, ball = model.problem, model.problem.ball
    branch, row = occupied(mass)
    length, weights, old = moves[branch, row], mass[branch, row], problem.y[row]
    y = old if targets is None else targets[branch, row]
    spent = abs(length) ** ball.order
    if np.isfinite(ball.target_cost):
        spent = spent + ball.target_cost * abs(y - old) ** ball.order
    if np.isfinite(ball.label_cost):
        spent = spent + np.where(y != old, ball.label_cost, 0.0)
    loss = problem.loss.value(model.z[row] + length * float(model.coef @ direction), y)
    points = as_dense(problem.X)[row] + length[:, None] * beside(direction, length)
    return _of_points(points, y, weights, row, spent, loss, model.worst.risk)


def _of_points(
    points: Array, y: Array, weights: Array, row: Array, price: Any, loss: Array, robust: float
) -> WorstCase:
    """Return the distribution of points with their rows, prices and losses."""
    risk = float(weights @ loss)
    return WorstCase(
        points=points,
        targets=y,
        weights=weights,
        origin=row,
        budget=float(weights @ price),
        risk=risk,
        attained=True,
        shortfall=max(0.0, robust - risk),
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


def check_reach(reach: Any, problem: Problem) -> float | None:
    """Return a reach > 0, None where moves are free; refuse what no reach is for."""
    if reach is None:
        return None
    if not (isinstance(reach, Real) and float(reach) > 0):
        raise ValueError(f"reach must be a number > 0, got reach={reach!r}.")
    if float(reach) == np.inf:
        return None
    cost, order = problem.ball.cost, problem.ball.order
    if problem.finite or not cost.is_norm:
        raise ValueError(f"reach needs a cost that is a norm, not {cost!r}.")
    if order != 1:
        raise ValueError(f"reach is for order 1; at order={order} far moves are expensive anyway.")
    return float(reach)


def default_reach(problem: Problem) -> float | None:
    """Return the largest distance of a row from the mean, in the cost; None if that is zero."""
    rows = numpy(as_dense(problem.X))[numpy(problem.weights) > 0]
    far = float(problem.ball.cost.norm(rows - mean(problem.X, problem.weights)).max())
    return far if far > 0 else None


def norm_worst_case(model: ScoredModel, reach: float | None) -> WorstCase:
    """Return the worst case of a model under a norm, of moves of at most ``reach`` if it is given.

    Order 1 spends delta where the slope is largest, order 2 at the inner maximisers.
    """
    ball = model.problem.ball
    if model.gain == 0 or ball.delta == 0:
        return _within(model, 0.0)
    if reach is not None:
        return _within(model, reach)
    worst = _steepest(model) if ball.order == 1 else _inner_maximisers(model)
    return worst or far_enough(lambda length: _within(model, length), ball)


def far_enough(within: Callable[[float], WorstCase], ball: Ball) -> WorstCase:
    """Return the worst case within the least of some reaches that falls short by ``TOLERANCE``.

    They grow from the one at which all rows may move. A little mass then goes far; only changes of
    labels may attain the supremum.
    """
    length, priced = float(ball.delta ** (1 / ball.order)), bool(np.isfinite(ball.label_cost))
    while True:
        worst = within(length)
        allowed = TOLERANCE * (worst.risk + worst.shortfall)
        if worst.shortfall <= allowed or length * np.finfo(float).eps > ball.delta:
            return replace(worst, attained=worst.attained and priced)
        # what is left out falls at least like 1/reach; with changes of labels a near reach may do
        length *= 4 if priced else 2 * worst.shortfall / allowed


def _moved(model: ScoredModel, mass: Array, shift: Array, labels: Array) -> WorstCase:
    """Return the distribution of masses, shifts of the scores and labels or targets, all (k, n).

    Where targets may move, a part of a shift is theirs: in the ratio w^2 to 1/kappa at order 2, all
    of it by the cheaper one at order 1.
    """
    ball, w = model.problem.ball, model.w
    share, targets = 1.0, labels
    if np.isfinite(ball.target_cost):
        share = w**2 / (w**2 + 1 / ball.target_cost)
        if ball.order == 1:
            share = 1.0 if w * ball.target_cost >= 1 else 0.0
        targets = labels - (1 - share) * shift
    moves = share * shift / w if w > 0 else 0.0 * shift
    direction = np.asarray(ball.cost.direction(model.coef), dtype=float)
    return distribution(model, mass, moves, direction, targets)


def _within(model: ScoredModel, reach: float) -> WorstCase:
    """Return the worst case of moves of at most ``reach``, with changes of labels at their price.

    A convex loss is moved by 0 or by the whole reach R, to either side.
    """
    problem, ball, z, loss = model.problem, model.problem.ball, model.z, model.problem.loss
    xp, stay, go = namespace(z), 0.0 * model.z, 0.0 * model.z + 1
    shift = reach * model.gain * xp.stack([stay, go, -go])
    labels = xp.broadcast_to(problem.y, shift.shape)
    price = reach**ball.order * as_float(shift != 0)
    if np.isfinite(ball.label_cost):
        shift, labels = xp.concat([shift, shift]), xp.concat([labels, -labels])
        price = xp.concat([price, price + ball.label_cost])
    mass = place_masses(loss.value(z + shift, labels), price, problem.weights, ball.delta)
    worst = _moved(model, mass, shift, labels)
    # a loss without kinks is steepest at infinity
    endless = ball.order == 1 and loss.pieces is None and bool((mass * abs(shift)).any())
    attained = worst.shortfall <= EXACT * model.worst.risk and not endless
    return replace(worst, attained=attained)


def _steepest(model: ScoredModel) -> WorstCase | None:
    """Return the worst case of order 1 that moves rows of the largest slope; None without such."""
    problem, z, y, loss = model.problem, model.z, model.problem.y, model.problem.loss
    if loss.pieces is None or np.isfinite(problem.ball.label_cost):
        return None
    xp, weights, room = namespace(z), problem.weights, EQUAL * loss.lipschitz
    low, high = loss.slope_range(y)
    slope = loss.derivative(z, y)
    up = as_float((slope >= high - room) & (high >= loss.lipschitz - room))
    down = as_float((slope <= low + room) & (-low >= loss.lipschitz - room))
    total = float(weights @ (up + down))
    if total <= EQUAL:
        return None
    masses = xp.stack([weights * up, weights * down, weights * (1 - up - down)])
    shift = full(len(y), model.gain * problem.ball.delta / total, z)
    return _moved(model, masses, xp.stack([shift, -shift, 0.0 * shift]), xp.stack([y, y, y]))


def _inner_maximisers(model: ScoredModel) -> WorstCase | None:
    """Return the worst case of order 2 at the best multiplier, under every label.

    None without risk and with a flat side of the loss: then no row is steep.
    """
    problem, ball, loss, z = model.problem, model.problem.ball, model.problem.loss, model.z
    xp, y, weights, gain = namespace(z), problem.y, problem.weights, model.gain
    priced, pieces = bool(np.isfinite(ball.label_cost)), loss.pieces
    mass, labels = weights[None], y[None]
    if pieces is not None and pieces.rooted and not priced:
        # every residual grows by the factor 1 + sqrt(delta) w/rms
        shift = loss.derivative(z, y)[None]
        if not (weights * loss.value(z, y)).any():
            if not pieces.quadratic:
                return None
            shift = xp.stack([full(len(y), side, z) for side in (gain, -gain)])
            mass, labels = xp.stack([weights / 2] * 2), xp.stack([y, y])
    else:
        shift = loss.inner(z, y, gain, model.worst.multiplier).shift
        labels = xp.broadcast_to(y, shift.shape)
        if priced:
            other = loss.inner(z, -y, gain, model.worst.multiplier).shift
            labels = xp.concat([labels, xp.broadcast_to(-y, other.shape)])
            # a little mass may stay where rounding would exceed the budget
            shift, labels = xp.concat([0 * y[None], shift, other]), xp.concat([y[None], labels])
        if len(shift) > 1:
            price = (shift / gain) ** 2
            if priced:
                price = price + np.where(labels != y, ball.label_cost, 0.0)
            mass = place_masses(loss.value(z + shift, labels), price, weights, ball.delta)
    if priced:
        worst = _moved(model, mass, shift, labels)
        return replace(worst, attained=worst.shortfall <= TOLERANCE * model.worst.risk)
    spent = float((mass * (shift / gain) ** 2).sum())
    scale = np.sqrt(ball.delta / spent) if spent > 0 else 1.0
    return _moved(model, mass, float(scale) * shift, labels)


def softmax_worst_case(
    problem: Problem, coef: Array, intercept: Array, reach: float | None
) -> WorstCase:
    """Return a worst case: a little mass far away, or the worst moves of at most ``reach``.

    The supremum is not attained. Within a reach each row moves by 0 or the whole of it, along the
    difference to its own class that raises its loss most.
    """
    ball, weights, loss = problem.ball, problem.weights, problem.loss
    labels, z = as_index(problem.y), model_scores(problem.X, coef, intercept)
    xp = namespace(z)
    plain = loss.value(z, labels)
    pair = steepest_pair(ball.cost, coef, present_classes(problem))
    risk = float(weights @ plain) + ball.delta * pair.norm
    # unit moves along B_k - B_y, (y, k, d); zero for k = y and equal classes
    between = np.asarray(ball.cost.direction(coef[None, :, :] - coef[:, None, :]), dtype=float)
    between = np.where((pair_norms(ball.cost, coef) > 0)[:, :, None], between, 0.0)

    def moved(mass: Array, other: Array, length: float) -> WorstCase:
        """Return the rows with ``mass`` of each moved by ``length`` towards the class ``other``."""
        goes, row = occupied(xp.stack([weights - mass, mass]))
        step = beside(between, weights)[labels[row], other[row]]
        points = as_dense(problem.X)[row] + length * goes[:, None] * step
        masses = xp.where(goes == 1, mass[row], (weights - mass)[row])
        reached = loss.value(model_scores(points, coef, intercept), labels[row])
        price = length * as_float(goes)
        worst = _of_points(points, problem.y[row], masses, row, price, reached, risk)
        return replace(worst, attained=not mass.any())

    def within(length: float) -> WorstCase:
        """Return the worst moves of at most a length; scores change by the move times every B."""
        shift = beside(length * (between @ coef.T), z)
        gains = loss.value(z[:, None, :] + shift[labels], labels[:, None])
        places = xp.stack([plain, xp.max(gains, axis=1)])
        price = beside(np.array([[0.0], [length]]), z)
        mass = place_masses(places, price, weights, ball.delta)[1]
        return moved(mass, xp.argmax(gains, axis=1), length)

    if pair.norm == 0 or ball.delta == 0:
        return moved(0.0 * weights, labels, 1.0)
    return far_enough(within, ball) if reach is None else within(reach)


def places_worst_case(problem: Problem, coef: Array, intercept: float) -> WorstCase:
    """Return a worst case over given places.

    Under a finite support these are its nodes and the maximum is the worst-case risk; else they
    are the row and the maxima of l - lam c found by ascent, and what is missing to the dual value
    is the shortfall.
    """
    local = None
    if problem.finite:
        nodes, price = support_places(problem)
        z = np.broadcast_to(nodes @ coef + intercept, price.shape)
        loss = problem.loss.value(z, np.broadcast_to(problem.y[:, None], price.shape))
        # all rows share the nodes
        points = np.broadcast_to(nodes, (len(price), *nodes.shape))
        mass = place_masses(loss.T, price.T, problem.weights, problem.ball.delta).T
    else:
        # one evaluation for all who ask: the multiplier of a fit would start another search
        local = local_worst_risk(problem, coef, intercept)
        points, loss, price, mass = local.points, local.loss, local.price, local.mass
    place, row = occupied(mass.T)
    at = row, place
    robust = -np.inf if local is None else local.risk
    worst = _of_points(points[at], problem.y[row], mass[at], row, price[at], loss[at], robust)
    if local is None:
        return worst
    near = bool(local.upper - worst.risk <= EQUILIBRIUM * abs(worst.risk))
    return replace(worst, attained=near)


def worst_case(
    problem: Problem,
    coef: Array,
    intercept: Any,
    *,
    fit: Solution | None = None,
    reach: Any = None,
) -> WorstCase:
    """Return the worst case of a linear model over the ball of a problem.

    ``fit`` is the solution of this problem that the model is, if it is one: with its dual point
    the distribution is the equilibrium, wherever there is one.
    ``reach`` bounds the length of a move, ``np.inf`` leaves it free. None does so too where the
    supremum is attained; where it is not, at order 1, moves are at most ``default_reach``.
    """
    bound, ball = check_reach(reach, problem), problem.ball
    is_norm = ball.cost.is_norm and not problem.finite
    far = is_norm and reach is None and ball.order == 1 and ball.delta > 0 and bool(np.any(coef))
    if far and problem.loss.pieces is None and np.isinf(ball.label_cost):
        # no distribution attains the supremum
        bound = default_reach(problem)
    if not is_norm:
        worst = places_worst_case(problem, coef, intercept)
    else:
        worst = _of_a_norm(problem, coef, intercept, bound)
        if fit is not None and fit.dual is not None and bound is None:
            balanced = _equilibrium(problem, fit, fit.dual, worst)
            if balanced is not None:
                return balanced
        if far and bound is None and not worst.attained:
            worst = _of_a_norm(problem, coef, intercept, default_reach(problem))
    short = worst.shortfall
    if fit is not None:
        # a fit may state more than the risk of its model: its multiplier is not the best one
        short = max(short, fit.objective - worst.risk)
    robust_risk = worst.risk + short
    fall = robust_risk - plain_bound(problem, coef, intercept, worst)
    flag = bool(fall <= EQUILIBRIUM * robust_risk)
    return replace(worst, shortfall=short, equilibrium=flag)


def _equilibrium(
    problem: Problem, fit: Solution, dual: Array, other: WorstCase
) -> WorstCase | None:
    """Return the least favourable distribution of a fit, None where its gap leaves none to 1e-5.

    ``other`` is the worst case of the model: where that attains the supremum, so does this one.
    """
    if problem.loss.outputs > 1 or np.isfinite(problem.ball.label_cost):
        return None
    if problem.ball.delta == 0:
        # the fit is the plain fit, to its gap
        return replace(other, equilibrium=bool(fit.gap <= EQUILIBRIUM * fit.objective))
    model = scored(problem, fit.coef, fit.intercept)
    worst, lower = least_favourable(model, model, dual, fit.gap)
    highest = (1 - EQUILIBRIUM) * fit.objective
    exists = worst is not None or other.attained
    if exists and lower < highest and fit.gap > FINER * fit.objective:
        # the gap is why: a dual point of a smaller one may do
        tol = FINER * fit.objective / (problem.constant[1] or fit.objective)
        [[finer]] = Exact(tol).solve([problem], [problem.ball.delta])
        if finer.dual is not None:
            optimum = scored(problem, finer.coef, finer.intercept)
            worst, lower = least_favourable(model, optimum, finer.dual, finer.gap)
    if worst is not None and lower >= highest:
        short = max(0.0, fit.objective - worst.risk)
        attained = other.attained or short <= TOLERANCE * fit.objective
        return replace(worst, shortfall=short, attained=attained, equilibrium=True)
    if model.gain == 0:
        # the risk of a constant model is the same everywhere, but it is not the plain fit
        return replace(other, attained=False)
    return None


def _of_a_norm(problem: Problem, coef: Array, intercept: Any, reach: float | None) -> WorstCase:
    """Return the worst case where rows may move anywhere at the price of a norm."""
    if problem.loss.outputs > 1:
        return softmax_worst_case(problem, coef, intercept, reach)
    return norm_worst_case(scored(problem, coef, intercept), reach)


def robust_risk_of(problem: Problem, coef: Array, intercept: Any) -> float:
    """Return the worst-case risk of a linear model over the ball of a problem.

    Where the cost is no norm it is found by ascent, from below.
    """
    if problem.finite:
        return places_worst_case(problem, coef, intercept).risk
    if not problem.ball.cost.is_norm:
        return local_worst_risk(problem, coef, intercept).risk
    return risk_of_scores(problem, coef, model_scores(problem.X, coef, intercept)).risk


@dataclass(frozen=True, eq=False)
class SlopeAtoms:
    """Masses and slopes of the atoms of the rows, arrays (k, n), and the centred pull E[a x]."""

    mass: Array
    slope: Array
    pull: Array

    def mean(self, values: Array) -> float:
        """Return E of values (k, n)."""
        return float((self.mass * values).sum())


def least_favourable(
    model: ScoredModel, optimum: ScoredModel, dual: Array, gap: float
) -> tuple[WorstCase | None, float]:
    """Return the distribution of a dual point, and a lower bound on the risk of plain fits to it.

    ``optimum`` is the solution that the dual point belongs to, near the model, and ``gap`` its gap.
    None and 0 where no distribution attains the supremum.
    """
    problem, ball, loss = model.problem, model.problem.ball, model.problem.loss
    xp, pieces = namespace(model.z), loss.pieces
    low, high = loss.slope_range(problem.y)
    dual = xp.clip(dual, low, high)
    if pieces is not None and pieces.kappa == 0:
        near = min(gap / model.worst.risk, AT_END) if model.worst.risk > 0 else 0.0
        means = [_at_ends(problem, dual, near), dual]
        choices = [_atoms(problem, *_branches(optimum, mean)[:2]) for mean in means]
    else:
        mass, slope, reached = _branches(optimum, dual)
        room = loss.curvature(reached, xp.broadcast_to(problem.y, reached.shape))
        growth = room * (reached - optimum.intercept)
        choices = [_atoms(problem, mass, slope)]
        if ball.order == 1:
            steep = abs(slope) >= (1 - NEARLY_STEEP) * loss.lipschitz
            slope = xp.where(steep, xp.sign(slope) * loss.lipschitz, slope)
            room, growth = xp.where(steep, 0.0, room), 0.0 * room
        repaired = _repaired(problem, _atoms(problem, mass, slope), room, growth)
        choices.append(_atoms(problem, mass, xp.clip(repaired, low, high)))
        if ball.order == 2 and pieces is not None:
            choices.extend([_spread(problem, atoms) for atoms in choices])
    if ball.order == 1 and model.w > 0:
        # else no distribution attains the supremum
        steepest = (1 - NEARLY_STEEP) * loss.lipschitz
        steep_atoms = [c.mean(abs(c.slope) >= steepest) > 0 for c in choices]
        if pieces is None or not all(steep_atoms):
            return None, 0.0
    candidates: list[tuple[WorstCase, float]] = []
    for atoms in choices:
        moves, targets = _moves(model, atoms)
        size = float(ball.cost.norm(atoms.pull))
        direction = -atoms.pull / size if size > 0 else ball.cost.direction(model.coef)
        worst = distribution(model, atoms.mass, moves, direction, targets)
        slopes = atoms.slope[occupied(atoms.mass)]
        lower = plain_bound(problem, model.coef, model.intercept, worst, slopes)
        candidates.append((worst, lower))
        if lower >= (1 - EQUILIBRIUM / 2) * model.worst.risk:
            # later choices have more atoms
            break
    return max(candidates, key=lambda pair: pair[1])


def _at_ends(problem: Problem, dual: Array, near: float) -> Array:
    """Return slopes next to an end of their range as that end, the others balanced to E[a] = 0."""
    low, high = problem.loss.slope_range(problem.y)
    xp, room = namespace(dual), near * (high - low)
    slope = xp.where(dual < low + room, low, xp.where(dual > high - room, high, dual))
    between = (slope - low) * (high - slope)
    if not (problem.fit_intercept and between.any()):
        return slope
    excess = float(problem.weights @ slope) / float(problem.weights @ between)
    return xp.clip(slope - excess * between, low, high)


def _atoms(problem: Problem, mass: Array, slope: Array) -> SlopeAtoms:
    center = mean(problem.X, problem.weights) if problem.fit_intercept else None
    pull = Design(problem.X, center=center).adjoint((mass * slope).sum(axis=0))
    return SlopeAtoms(mass, slope, pull)


def _branches(model: ScoredModel, dual: Array) -> tuple[Array, Array, Array]:
    """Return masses, slopes and moved scores (k, n) of atoms whose mean slopes are ``dual``.

    A loss of two slopes has these two. Else rows have one slope, or those of two local maxima of
    the inner problem of order 2 if the mean is between them.
    """
    problem, loss, z = model.problem, model.problem.loss, model.z
    xp, weights, ball = namespace(z), problem.weights, problem.ball
    one = weights[None], dual[None], z[None]
    if loss.pieces is not None and loss.pieces.kappa == 0:
        low, high = loss.slope_range(problem.y)
        share = (dual - low) / (high - low)
        return (
            xp.stack([weights * share, weights * (1 - share)]),
            xp.stack([high, low]),
            xp.stack([z, z]),
        )
    if ball.order == 1 or model.gain == 0 or (loss.pieces is not None and loss.pieces.rooted):
        return one
    inner = loss.inner(z, problem.y, model.gain, model.worst.multiplier)
    reached = z + inner.shift
    if len(reached) == 1:
        return weights[None], dual[None], reached
    slope = loss.derivative(reached, xp.broadcast_to(problem.y, reached.shape))
    apart = slope[0] - slope[1]
    share = (dual - slope[1]) / xp.where(apart == 0, 1.0, apart)
    split = xp.all(xp.isfinite(inner.value), axis=0) & (share > 0) & (share < 1)
    # a row that is not split has its better branch
    first = xp.where(split, share, xp.where(inner.value[0] >= inner.value[1], 1.0, 0.0))
    return (
        xp.stack([weights * first, weights * (1 - first)]),
        xp.where(split, slope, dual),
        reached,
    )


def _repaired(problem: Problem, atoms: SlopeAtoms, room: Array, growth: Array) -> Array:
    """Return slopes with E[a] = 0, by ``room``, and ||g||^2 = delta E[a^2], by ``growth``.

    So slopes change with the intercept and with the size of the coefficients: to first order the
    dual value does not.
    """
    total = max(atoms.mean(room), np.finfo(float).tiny)
    slope = atoms.slope
    if problem.fit_intercept:
        slope = slope - room * (atoms.mean(slope) / total)
        growth = growth - room * (atoms.mean(growth) / total)
    if np.isfinite(problem.ball.target_cost) or not growth.any():
        return slope
    at, along = (_atoms(problem, atoms.mass, part) for part in (slope, growth))
    norm, delta = problem.ball.cost.norm, problem.ball.delta
    square, turn = float(norm(at.pull)) ** 2, float(norm(along.pull)) ** 2
    cross = (float(norm(at.pull + along.pull)) ** 2 - square - turn) / 2
    # c + 2 b e + a e^2 = 0 at ||g + e dg||^2 = delta E[(a + e h)^2], for a Euclidean norm
    c = square - delta * at.mean(slope**2)
    b = cross - delta * at.mean(slope * growth)
    a = turn - delta * at.mean(growth**2)
    inside = b**2 - a * c
    if inside < 0 or b == 0:
        return slope
    return slope + growth * float(-c / (b + np.copysign(np.sqrt(inside), b)))


def _spread(problem: Problem, atoms: SlopeAtoms) -> SlopeAtoms:
    """Return atoms split without a change of their mean slopes, so that E[a^2] allows the moves.

    So it is where the cost just cancels the curvature 1/kappa of a quadratic loss: then a row may
    go either way by any length, and only E[a^2] matters to -E l*(a).
    """
    ball, pieces = problem.ball, problem.loss.pieces
    assert pieces is not None
    xp, mass, slope = namespace(atoms.slope), atoms.mass, atoms.slope
    square = atoms.mean(slope**2)
    needed = float(ball.cost.norm(atoms.pull)) ** 2 / ball.delta
    needed += ball.delta / (ball.target_cost * pieces.kappa**2)
    if needed <= (1 + EXACT) * square or square == 0:
        return atoms
    if pieces.quadratic:
        far = float(np.sqrt(needed - square))
        mass, slope = xp.concat([mass / 2, mass / 2]), xp.concat([slope + far, slope - far])
    elif pieces.rooted:
        # one end is 0, the other side has none
        part = square / needed
        mass, slope = (
            xp.concat([part * mass, (1 - part) * mass]),
            xp.concat([slope / part, 0 * slope]),
        )
    else:
        low, high = problem.loss.slope_range(problem.y)
        room = atoms.mean((high - slope) * (slope - low))
        part = min((needed - square) / room, 1.0) if room > 0 else 0.0
        share = (slope - low) / (high - low)
        mass = xp.concat([(1 - part) * mass, part * mass * share, part * mass * (1 - share)])
        slope = xp.concat([slope, 0 * slope + high, 0 * slope + low])
    return SlopeAtoms(mass, slope, atoms.pull)


def _moves(model: ScoredModel, atoms: SlopeAtoms) -> tuple[Array, Array | None]:
    """Return the moves t (k, n), shortened where the budget does not suffice, and the targets."""
    problem, ball, slope = model.problem, model.problem.ball, atoms.slope
    xp, price = namespace(slope), ball.target_cost
    size, square = float(ball.cost.norm(atoms.pull)), atoms.mean(slope**2)
    if square == 0:
        return 0.0 * slope, None
    if ball.order == 2:
        unit = slope / float(np.sqrt(square))
        length = min(size / float(np.sqrt(square)), float(np.sqrt(ball.delta)))
        # the square of a root may exceed delta by rounding
        rest = float(np.sqrt(max(ball.delta - length**2, 0.0) / price))
    else:
        top = float(xp.max(xp.where(atoms.mass > 0, abs(slope), 0.0)))
        steep = abs(slope) >= top * (1 - EQUAL)
        unit = xp.where(steep, xp.sign(slope), 0.0) / atoms.mean(steep)
        length = min(size / top, ball.delta)
        rest = (ball.delta - length) / price
    targets = problem.y - rest * unit if np.isfinite(price) else None
    return length * unit, targets
