r"""A worst-case distribution for a model that is given: its scores and its rows are known.

Order 1 spends the budget where the slope of the loss is its Lipschitz constant, else ever less mass
goes ever farther, or rows move by the whole of a reach. At order 2 each row goes to its inner
maximiser. Ties, a reach, labels that change at a price, costs that are no norm and finite supports
leave the best masses on a few places for each row (``place_masses``).

``plain_bound`` checks that a model is the plain fit to a distribution. Slopes a of the moved rows
bound the mean loss of every model (beta', b') from below,

.. math:: E_Q\,\ell(x'\beta' + b', y) \ge -E_Q\,\ell^*(a, y) + E_Q[a x]'\beta' + E_Q[a]\,b',

so that a model whose risk is the first term, with E[a x] = 0 and E[a] = 0, is the plain fit.
"""

from __future__ import annotations

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
from ..losses import PiecewiseQuadratic
from ..problem import Problem
from ..solvers.finite import places as support_places
from ..solvers.local_cost import worst_risk as local_worst_risk

Array = NDArray[Any]

#: Relative to the robust risk, what a distribution may fall short by where none attains it.
TOLERANCE = 1e-6
#: Relative to the robust risk, how far a plain fit to an equilibrium may fall below it.
EQUILIBRIUM = 1e-5
#: A slope within this of the steepest one, relative to it, is equally steep.
STEEP = 1e-9
#: Plain fits count whose coefficients are at most this many times those of the model.
LARGER = 10.0
#: Less mass than this is none.
NO_MASS = 1e-9
#: A risk this close to the robust risk, relative to it, is that: rounding.
EXACT = 1e-8
#: A risk this close to its bound above, relative to it, is attained: bounds by ascent are rough.
ASCENT = 1e-5


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


def check_reach(reach: Any, order: int) -> float:
    """Return a reach > 0; refuse it at order 2, where moves are bounded by themselves."""
    if order != 1:
        raise ValueError(f"reach is for order 1; at order={order} far moves are expensive anyway.")
    if not (isinstance(reach, Real) and 0 < float(reach) < np.inf):
        raise ValueError(f"reach must be a number > 0, got reach={reach!r}.")
    return float(reach)


def default_reach(problem: Problem) -> float | None:
    """Return the largest distance of a row from the mean, in the cost; None if that is zero."""
    rows = numpy(as_dense(problem.X))[numpy(problem.weights) > 0]
    far = float(problem.ball.cost.norm(rows - mean(problem.X, problem.weights)).max())
    return far if far > 0 else None


def norm_worst_case(model: ScoredModel, reach: float | None) -> WorstCase:
    """Return the worst case of a model under a norm: shifts of the scores, turned into moves.

    Where targets may move, a part of a shift is theirs: in the ratio w^2 to 1/kappa at order 2, all
    of it by the cheaper one at order 1.
    """
    problem, ball, w = model.problem, model.problem.ball, model.w
    attained = True
    if model.gain == 0 or ball.delta == 0:
        mass, shift = problem.weights[None], 0.0 * model.z[None]
    elif reach is not None:
        mass, shift = _within(model, reach)
    elif ball.order == 1:
        mass, shift, attained = _order_one(model)
    else:
        mass, shift, attained = _order_two(model)
    share, targets = 1.0, None
    if np.isfinite(ball.target_cost):
        share = w**2 / (w**2 + 1 / ball.target_cost)
        if ball.order == 1:
            share = 1.0 if w * ball.target_cost >= 1 else 0.0
        targets = problem.y - (1 - share) * shift
    moves = share * shift / w if w > 0 else 0.0 * shift
    direction = np.asarray(ball.cost.direction(model.coef), dtype=float)
    worst = distribution(model, mass, moves, direction, targets=targets, attained=attained)
    if reach is None:
        return worst
    return replace(worst, attained=worst.shortfall <= EXACT * model.worst.risk)


def _within(model: ScoredModel, reach: float) -> tuple[Array, Array]:
    """Return masses and shifts of moves of at most ``reach``.

    A convex loss is moved by 0 or by the whole reach R, to either side.
    """
    problem, xp = model.problem, namespace(model.z)
    shift = reach * model.gain * xp.stack([0.0 * model.z, 0.0 * model.z + 1, 0.0 * model.z - 1])
    loss = problem.loss.value(model.z + shift, xp.broadcast_to(problem.y, shift.shape))
    price = reach * as_float(shift != 0)
    return place_masses(loss, price, problem.weights, problem.ball.delta), shift


def _order_one(model: ScoredModel) -> tuple[Array, Array, bool]:
    """Return masses and shifts that spend delta at the largest slope, or of a mass that goes far.

    A share eps of every row by delta/eps falls short by O(eps) where no slope is the largest.
    """
    z, y, weights, loss = model.z, model.problem.y, model.problem.weights, model.problem.loss
    xp, lipschitz = namespace(z), loss.lipschitz
    budget = model.gain * model.problem.ball.delta
    low, high = loss.slope_range(y)
    slope = loss.derivative(z, y)
    if loss.pieces is not None:
        room = STEEP * lipschitz
        up = as_float((slope >= high - room) & (high >= lipschitz - room))
        down = as_float((slope <= low + room) & (-low >= lipschitz - room))
        total = float(weights @ (up + down))
        if total > NO_MASS:
            masses = xp.stack([weights * up, weights * down, weights * (1 - up - down)])
            shift = full(len(y), budget / total, z)
            return masses, xp.stack([shift, -shift, 0.0 * shift]), True
    even = 2 * as_float(slope >= 0) - 1
    # the sign along which the loss is, in the end, steepest
    length = xp.where(high > -low, 1.0, xp.where(high < -low, -1.0, even)) * budget
    plain = loss.value(z, y)
    risk = float(weights @ plain) + lipschitz * budget
    eps = 0.5
    while eps > np.finfo(float).eps:
        far = (1 - eps) * plain + eps * loss.value(z + length / eps, y)
        if risk - weights @ far <= TOLERANCE * risk:
            break
        eps /= 4
    masses = xp.stack([(1 - eps) * weights, eps * weights])
    return masses, xp.stack([0.0 * length, length / eps]), False


def _order_two(model: ScoredModel) -> tuple[Array, Array, bool]:
    """Return masses and shifts to the inner maximisers at the multiplier of the worst case."""
    problem, z, w = model.problem, model.z, model.gain
    y, weights, loss = problem.y, problem.weights, problem.loss
    pieces, attained = loss.pieces, True
    mass = weights[None]
    if pieces is not None and pieces.rooted:
        # every residual grows by the factor 1 + sqrt(delta) w/rms
        shift = loss.derivative(z, y)[None]
        if not (weights * loss.value(z, y)).any():
            mass, shift, attained = _from_zero_risk(model, pieces)
    else:
        inner = loss.inner(z, y, w, model.worst.multiplier)
        shift = inner.shift
        if len(shift) == 2:
            price = (shift / w) ** 2
            value = inner.value + model.worst.multiplier * price
            mass = place_masses(value, price, weights, problem.ball.delta)
    spent = float((mass * (shift / w) ** 2).sum())
    scale = np.sqrt(problem.ball.delta / spent) if spent > 0 else 1.0
    return mass, float(scale) * shift, attained


def _from_zero_risk(model: ScoredModel, pieces: PiecewiseQuadratic) -> tuple[Array, Array, bool]:
    """Return masses and shifts for a quadratic loss without risk, from nowhere steep.

    Every row goes either way; or, flat beside a quadratic side, a mass eps of the nearest row at
    the distance sqrt(delta/eps) has the risk (sqrt(delta) w - slack sqrt(eps))^2/(2 kappa).
    """
    z, y, weights = model.z, model.problem.y, model.problem.weights
    xp, n, length = namespace(z), len(y), model.gain * float(np.sqrt(model.problem.ball.delta))
    if pieces.quadratic:
        shift = full(n, length, z)
        return xp.stack([weights / 2, weights / 2]), xp.stack([shift, -shift]), True
    lo, _ = pieces.slopes
    side = 1.0 if lo == 0 else -1.0
    slack = xp.where(weights > 0, -side * pieces.residual(z, y), np.inf)
    i = int(slack.argmin())
    eps = float(weights[i])
    if slack[i] > 0:
        eps = min(eps, (TOLERANCE * length / (2 * float(slack[i]))) ** 2)
    moved = full(n, 0.0, z)
    moved[i] = eps
    away = -side * float(pieces.orientation(y)[i]) * length / np.sqrt(eps)
    shifts = xp.stack([full(n, 0.0, z), full(n, away, z)])
    return xp.stack([weights - moved, moved]), shifts, bool(slack[i] <= 0)


def priced_worst_case(model: ScoredModel, reach: float | None) -> WorstCase:
    """Return a worst case of a model: rows keep or change their label, and move or stay.

    At order 2 a row's places are its inner maximisers under both labels. At order 1 labels change
    where that gains more than a move does, and a little mass goes far for the rest of the budget;
    within a ``reach``, rows move by 0 or the whole of it.
    """
    problem, ball, z, w = model.problem, model.problem.ball, model.z, model.w
    y, loss = problem.y, problem.loss
    shifts: list[Array] = []
    for label in (y, -y):
        if reach is not None:
            up, down = (loss.value(z + s * w * reach, label) for s in (1.0, -1.0))
            shifts.append(np.where(up >= down, w * reach, -w * reach))
        elif ball.order == 2 and w > 0 and ball.delta > 0:
            shifts.append(loss.inner(z, label, w, model.worst.multiplier).best.shift)
    if not shifts:
        return _with_changed_labels(model)
    zero = np.zeros_like(z)
    shift = np.stack([zero, shifts[0], zero, shifts[1]])
    label = np.stack([y, y, -y, -y])
    moves = shift / w if w > 0 else 0.0 * shift
    price = abs(moves) ** ball.order + np.where(label != y, ball.label_cost, 0.0)
    mass = place_masses(loss.value(z + shift, label), price, problem.weights, ball.delta)
    direction = np.asarray(ball.cost.direction(model.coef), dtype=float)
    worst = distribution(model, mass, moves, direction, targets=label)
    return replace(worst, attained=worst.shortfall <= TOLERANCE * model.worst.risk)


def _with_changed_labels(model: ScoredModel) -> WorstCase:
    """Return labels changed where that gains most, and what is left of delta on moves.

    A row changes where it gains more than lam kappa, and of rows that gain just as much what the
    budget allows.
    """
    problem, ball, weights = model.problem, model.problem.ball, model.problem.weights
    y, robust = problem.y, model.worst
    gain = problem.loss.value(model.z, -y) - problem.loss.value(model.z, y)
    gains = np.stack([0.0 * gain, gain])
    mass = place_masses(gains, ball.label_cost * np.array([[0.0], [1.0]]), weights, ball.delta)[1]
    mass = np.where(gain >= robust.multiplier * ball.label_cost * (1 - TOLERANCE), mass, 0.0)
    changes, origin = occupied(np.stack([weights - mass, mass]))
    spent = float(mass.sum()) * ball.label_cost
    changed = replace(
        problem,
        X=problem.X[origin],
        y=np.where(changes == 1, -y[origin], y[origin]),
        weights=np.where(changes == 1, mass[origin], (weights - mass)[origin]),
        ball=replace(ball, delta=max(ball.delta - spent, 0.0), label_cost=np.inf),
    )
    moved = norm_worst_case(scored(changed, model.coef, model.intercept), None)
    short = max(0.0, robust.risk - moved.risk)
    return replace(
        moved,
        origin=origin[moved.origin],
        budget=moved.budget + spent,
        attained=moved.attained and short <= TOLERANCE * robust.risk,
        shortfall=short,
    )


def softmax_worst_case(
    problem: Problem, coef: Array, intercept: Array, reach: float | None
) -> WorstCase:
    """Return a worst case: a little mass far away, or the worst moves of at most ``reach``.

    The supremum is not attained: rows of the class with the steepest pair go far towards looking
    like the other class. Within a reach each row moves by 0 or the whole of it, along the
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
        scores = model_scores(points, coef, intercept)
        reached = float(masses @ loss.value(scores, labels[row]))
        return WorstCase(
            points=points,
            targets=problem.y[row],
            weights=masses,
            origin=row,
            budget=length * float(mass.sum()),
            risk=reached,
            attained=not mass.any(),
            shortfall=max(0.0, risk - reached),
        )

    if pair.norm == 0 or ball.delta == 0:
        return moved(0.0 * weights, labels, 1.0)
    if reach is not None:
        # scores of all classes change by the move times every B
        shift = beside(reach * (between @ coef.T), z)
        gains = loss.value(z[:, None, :] + shift[labels], labels[:, None])
        places = xp.stack([plain, xp.max(gains, axis=1)])
        price = beside(np.array([[0.0], [reach]]), z)
        mass = place_masses(places, price, weights, ball.delta)[1]
        return moved(mass, xp.argmax(gains, axis=1), reach)
    own = labels == pair.own
    share, total = 1.0, float((weights * own).sum())
    while True:
        # a share of every row of the class, by delta over that mass: what is missing vanishes
        mass = xp.where(own, share * weights, 0.0)
        worst = moved(mass, 0 * labels + pair.other, ball.delta / (share * total))
        if worst.shortfall <= TOLERANCE * risk or share < np.finfo(float).eps:
            return worst
        share /= 4


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
    weights = mass[row, place]
    risk = float(weights @ loss[row, place])
    return WorstCase(
        points=points[row, place],
        targets=problem.y[row],
        weights=weights,
        origin=row,
        budget=float(weights @ price[row, place]),
        risk=risk,
        attained=local is None or bool(local.upper - risk <= ASCENT * abs(risk)),
        shortfall=0.0 if local is None else max(0.0, local.risk - risk),
    )
