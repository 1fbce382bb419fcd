r"""The least favourable distribution of a fit, from the slopes of its dual point.

Rows split into atoms of mass m and slope a = dl/dz, with E[a] = 0 and g = E[a x]. Moves t along
v = -g/||g|| with E[a t] = ||g|| leave E[a (x + t v)] = 0: no plain model has a smaller risk than
-E l*(a), whatever its coefficients. At order 2 the moves are in proportion to a, for the price
||g||^2/E[a^2]; at order 1 the steepest atoms move, for ||g||/max |a|. What is left of delta moves
targets, where they may move. The mean slope of a row is that of the dual point; a row between two
maximisers is split between their slopes, so that -E l*(a) is the dual value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace
from ..design import Design, mean
from ..problem import Problem
from .distribution import (
    EQUILIBRIUM,
    LARGER,
    STEEP,
    ScoredModel,
    WorstCase,
    distribution,
    occupied,
    plain_bound,
)

Array = NDArray[Any]

#: A slope of a dual point within this of the Lipschitz constant, relative to it, stands for that.
NEARLY_STEEP = 1e-3
#: A slope within this of an end of its range, relative to that, may be the end in a dual point of
#: a larger gap.
AT_END = 3e-6
#: Relative to delta, what may be missing for the moves: they are shortened by that instead.
MISSING = 1e-7
#: By how much, relative to them, moves are lengthened to spend what is left of the budget.
LONGER = 3e-7


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
    moved = [(atoms, *_moves(model, atoms)) for atoms in choices]
    values = [_lower(model, *each) for each in moved]
    # the first one that is good enough has the fewest atoms
    enough = min((1 - EQUILIBRIUM / 2) * model.worst.risk, max(values))
    atoms, moves, targets = moved[next(k for k, value in enumerate(values) if value >= enough)]
    direction = _direction(model, atoms.pull)
    worst = distribution(model, atoms.mass, moves, direction, targets=targets)
    slopes = atoms.slope[occupied(atoms.mass)]
    return worst, plain_bound(problem, model.coef, model.intercept, worst, slopes)


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


def _direction(model: ScoredModel, pull: Array) -> Array:
    """Return -g/||g||; where the model has coefficients, under l_inf, as far as they say."""
    cost, coef = model.problem.ball.cost, model.coef
    size = float(cost.norm(pull))
    if size == 0:
        return np.asarray(cost.direction(coef), dtype=float)
    direction = -pull / size
    if cost.dual_p != 1:
        return direction
    close = (coef != 0) & (abs(direction - np.sign(coef)) <= LONGER)
    return np.where(close, np.sign(coef), direction)


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
    if needed <= (1 + MISSING) * square or square == 0:
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
    longer = 1 + (0.0 if np.isfinite(price) else LONGER)
    if ball.order == 2:
        unit = slope / float(np.sqrt(square))
        length = min(longer * size / float(np.sqrt(square)), float(np.sqrt(ball.delta)))
        # the square of a root may exceed delta by rounding
        rest = float(np.sqrt(max(ball.delta - length**2, 0.0) / price))
    else:
        top = float(xp.max(xp.where(atoms.mass > 0, abs(slope), 0.0)))
        steep = abs(slope) >= top * (1 - STEEP)
        unit = xp.where(steep, xp.sign(slope), 0.0) / atoms.mean(steep)
        length = min(longer * size / top, ball.delta)
        rest = (ball.delta - length) / price
    targets = problem.y - rest * unit if np.isfinite(price) else None
    return length * unit, targets


def _lower(model: ScoredModel, atoms: SlopeAtoms, moves: Array, targets: Array | None) -> float:
    """Return the dual value of atoms, less what pulls that are left can take from it."""
    problem = model.problem
    xp, slope = namespace(atoms.slope), atoms.slope
    y = xp.broadcast_to(problem.y, slope.shape) if targets is None else targets
    heights = xp.where(atoms.mass > 0, problem.loss.conjugate(slope, y), 0.0)
    left = abs(float(problem.ball.cost.norm(atoms.pull)) - atoms.mean(slope * moves))
    excess = abs(atoms.mean(slope)) if problem.fit_intercept else 0.0
    return -atoms.mean(heights) - LARGER * (model.w * left + float(abs(model.z).max()) * excess)
