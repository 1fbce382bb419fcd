r"""The worst case of a model, and of a fit from its dual point the least favourable one.

Rows split into atoms of mass m and slope a = dl/dz, with E[a] = 0 and g = E[a x]. Moves t along
v = -g/||g|| with E[a t] = ||g|| leave E[a (x + t v)] = 0: no plain model has a smaller risk than
-E l*(a), whatever its coefficients. At order 2 the moves are in proportion to a, for the price
||g||^2/E[a^2]; at order 1 the steepest atoms move, for ||g||/max |a|. What is left of delta moves
targets, where they may move. The mean slope of a row is that of the dual point; a row between two
maximisers is split between their slopes, so that -E l*(a) is the dual value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace
from ..design import Design, mean, model_scores
from ..problem import Problem, Solution
from ..solvers import Exact
from ..solvers.local_cost import worst_risk as local_worst_risk
from .best_response import (
    EQUAL,
    EQUILIBRIUM,
    EXACT,
    TOLERANCE,
    ScoredModel,
    WorstCase,
    check_reach,
    default_reach,
    distribution,
    norm_worst_case,
    occupied,
    places_worst_case,
    plain_bound,
    risk_of_scores,
    scored,
    softmax_worst_case,
)

Array = NDArray[Any]

#: The gap of a dual point, relative to the robust risk, that an equilibrium is sought with.
FINER = 1e-10
#: A slope of a dual point within this of the Lipschitz constant, relative to it, stands for that.
NEARLY_STEEP = 1e-3
#: A slope within this of an end of its range, relative to that, may be the end in a dual point of
#: a larger gap.
AT_END = 3e-6


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
    bound = check_reach(reach, problem)
    if problem.finite or not problem.ball.cost.is_norm:
        worst = places_worst_case(problem, coef, intercept)
    else:
        worst = _of_a_norm(problem, coef, intercept, bound)
        if fit is not None and fit.dual is not None and bound is None:
            balanced = _equilibrium(problem, fit, fit.dual, worst)
            if balanced is not None:
                return balanced
        if reach is None and not worst.attained and problem.ball.order == 1 and np.any(coef):
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
