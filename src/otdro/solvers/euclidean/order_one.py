r"""Damped Newton for many problems at a time, and smooth losses under an order-1 Euclidean cost.

``descend`` is the loop of both orders: a step, the longest part of it that descends, a bound where
one may prove something, the end. An objective supplies the step as a line of points, and the bound.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell)

is the objective of order 1 (``PenalisedRisk``). Columns of a batch share the rows and differ in
weights, costs and rho. Its dual problem is

.. math:: \max\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \|Z'(\pi a)\|_2 \le \rho,\ \textstyle\sum_i \pi_i a_i = 0.

The slopes a_i = l'(z_i) of any point, moved in proportion to the curvatures D to where they are
feasible (``PenalisedRisk.lower_bound``), certify a gap of second order in the gradient. That needs
no Newton matrix, so steps may use the matrix of another point, of other weights or of some rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    beside,
    column_sums,
    factor_of,
    full,
    namespace,
    numbers,
    numpy,
    pick,
    pick_columns,
)
from ...design import WRITTEN_UP_TO, Design
from ...duality import (
    BALANCED,
    EQUAL,
    RIDGE,
    ROUNDING,
    STEPS,
    TRIES,
    feasible_growth,
    positive_solved,
    threshold,
)
from ...losses import Loss

Array = NDArray[Any]

#: The share of the predicted decrease that a step must bring: less is none.
ARMIJO = 1e-4
#: The shortest part of a step that is tried.
SHORTEST = 2.0**-50
#: Steps in a row without a decrease after which a problem is left as it is.
PATIENCE = 4
#: The least bend of the inner problem of order 2, relative to lam.
SHARP = 1e-12
#: Of the first move along the gradient: the least curvature, relative to the slope.
LEAST_BEND = 1e-3
#: An old Newton matrix is kept while a step shrinks the gradient by at least this factor; one of
#: other weights or of another point is expected to.
CONTRACTION = 0.1
#: Operations of the Newton systems of a batch up to which they are solved on the host: launching
#: kernels on a device takes longer.
ON_HOST_UP_TO = 10_000_000
#: Conjugate gradients end at this times the root of the gradient in units of rho.
CG_RTOL = 0.1

#: The least number that is divided by: what it divides can still be squared.
TINY = 1e-100


def norms(v: Array) -> Array:
    """Return the Euclidean norm of each column."""
    return np.sqrt(np.einsum("db,db->b", v, v))


def dots(u: Array, v: Array) -> Array:
    """Return u'v of each column, as NumPy."""
    products: Array
    products = np.vecdot(u.T, v.T) if isinstance(u, np.ndarray) else numpy((u * v).sum(axis=0))
    return products


def is_every(index: Array, B: int) -> bool:
    """Whether numbers stand for all of B problems, in their order."""
    return len(index) == B and bool((index == np.arange(B)).all())


def some_of(part: Any, index: Array, axis: int) -> Any:
    """Return an array or a batch of some of the problems; what has no axis of them as it is."""
    if part is None or isinstance(part, float):
        return part
    if hasattr(part, "columns"):
        return part.columns(index)
    return pick(part, index) if axis == 0 else pick_columns(part, index)


@dataclass(frozen=True, eq=False)
class Batch:
    """Arrays of B problems, all with the problems along one ``axis``; None for what is not kept."""

    axis: ClassVar[int] = -1
    #: The names of the arrays.
    __match_args__: ClassVar[tuple[str, ...]]

    @property
    def count(self) -> int:
        """The number of problems."""
        return int(getattr(self, self.__match_args__[0]).shape[self.axis])

    def columns(self, index: Array) -> Self:
        """Return some of the problems, by their numbers."""
        if is_every(index, self.count):
            return self
        each = (getattr(self, name) for name in self.__match_args__)
        return type(self)(*(some_of(part, index, self.axis) for part in each))

    @classmethod
    def joined(cls, parts: list[Self], index: list[Array]) -> Self:
        """Return the problems of several batches, each with the numbers of its own."""
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(index))
        columns: list[Any] = []
        for name in cls.__match_args__:
            each = [getattr(part, name) for part in parts]
            kept = all(part is not None for part in each)
            joined = namespace(each[0]).concat(each, axis=cls.axis) if kept else None
            columns.append(some_of(joined, order, cls.axis))
        return cls(*columns)

    def replaced(self, index: Array, other: Self) -> Self:
        """Return the problems with those at ``index`` replaced."""
        if not len(index):
            return self
        rest = np.delete(np.arange(self.count), index)
        parts = [(self.columns(rest), rest), (other, index)]
        some = [(part, number) for part, number in parts if len(number)]
        return self.joined([part for part, _ in some], [number for _, number in some])


@dataclass(frozen=True, eq=False)
class Place(Batch):
    """Places (theta, b) or moves of them, theta (d, B), with lam where it is known."""

    theta: Array
    b: Array
    lam: Array | None = None


@dataclass(frozen=True, eq=False)
class Line:
    """The points of some problems along moves from x; ``change`` is what the objective knows of
    the rows there, ``descent`` (B,) the slope of F, ``longest`` the share that is tried first."""

    objective: Any
    x: Any
    move: Any
    descent: Array
    change: Any
    longest: Any = 1.0

    def at(self, length: Array) -> Any:
        """Return the points after a share (B,) of the moves."""
        return self.objective.along(self, length)

    def columns(self, index: Array) -> Line:
        """Return the lines of some problems."""
        return Line(*(some_of(part, index, self.x.axis) for part in vars(self).values()))


class Descent(NamedTuple):
    """The last points of a descent, the gaps that were proved and the steps taken."""

    point: Any
    gap: Array
    n_iter: Array


def descend(objective: Any, x: Any, target: Array, max_iter: int) -> Descent:
    """Minimise from x until each problem's gap is at most its ``target`` (B,).

    ``objective.line(x)`` is the line of the next steps, ``objective.along(line, length)`` the
    points after a share of them and ``objective.lower_bound(new, line)`` the bound (B,) that the
    slopes there prove, or those continued along the line.
    """
    gap, steps = np.zeros(len(target)), np.ones(len(target), dtype=int)
    active, lower, stalls = np.arange(len(target)), 0.0 * gap, 0 * steps
    before = x.objective
    ended: list[Any] = []
    numbers_of: list[Array] = []
    for n_iter in range(1, max_iter + 1):
        line = objective.line(x)
        new = search(line)
        F, promised, last = new.objective, -line.descent, n_iter == max_iter
        fall = x.objective - F
        # far off no bound proves anything: what is left falls with each step as it did, or faster
        expected = promised * (promised / np.maximum(before, TINY)) ** 2
        wants = (expected <= target) | (fall <= ARMIJO * promised) | last
        if wants.any():
            bound = np.maximum(lower, objective.lower_bound(new, line))
            # a problem must not depend on its company
            lower = np.where(wants, bound, lower)
        left = np.maximum(F - lower, 0.0)
        stalls = np.where(fall <= ARMIJO * promised + ROUNDING * F, stalls + 1, 0)
        over = (left <= target) | (stalls >= PATIENCE) | last
        x, before = new, promised
        if not over.any():
            continue
        done, keep = np.flatnonzero(over), np.flatnonzero(~over)
        gap[active[done]], steps[active[done]] = left[done], n_iter
        ended.append(x.columns(done))
        numbers_of.append(active[done])
        if not len(keep):
            break
        objective, x = objective.columns(keep), x.columns(keep)
        active, target, lower = active[keep], target[keep], lower[keep]
        stalls, before = stalls[keep], before[keep]
    return Descent(type(x).joined(ended, numbers_of), gap, steps)


def low_enough(F: Any, new: Any, length: Any, descent: Any) -> Any:
    """Whether values F fall by a part of what a share of the steps promises."""
    return new <= F + ARMIJO * length * descent + ROUNDING * np.abs(F)


def search(line: Any) -> Any:
    """Return the points after the longest of the steps 1, 1/2, 1/4, ... that descends, or x."""
    F, descent, share = line.x.objective, line.descent, 1.0
    longest = line.longest * np.ones_like(descent)
    new = line.at(longest)
    left = np.flatnonzero(~low_enough(F, new.objective, longest, descent))
    while len(left) and share > SHORTEST:
        share /= 2
        length = share * longest[left]
        shorter = line.columns(left).at(length)
        low = low_enough(F[left], shorter.objective, length, descent[left])
        new = new.replaced(left[low], shorter.columns(np.flatnonzero(low)))
        left = left[~low]
    return new.replaced(left, line.x.columns(left))


@dataclass(frozen=True, eq=False)
class Minima(Batch):
    """Minimisers of a batch: multipliers ``lam``, certified gaps and dual points (n, B) if any."""

    theta: Array
    b: Array
    lam: Array
    objective: Array
    mean_loss: Array
    gap: Array
    n_iter: Array
    dual: Array | None

    def beyond(self, before: Self, t: float) -> Place:
        """Return the places on the line from other minima through these, t times as far on."""
        far = np.where(before.lam > 0, t, 0.0)
        theta = self.theta + far * (self.theta - before.theta)
        return Place(theta, self.b + far * (self.b - before.b))


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows and targets with the weights (n, B) of B problems, columns of sum 1."""

    rows: Design
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool

    def columns(self, index: Array) -> WeightedRows:
        """Return those of some problems, by their numbers."""
        if is_every(index, self.weights.shape[1]):
            return self
        weights = pick_columns(self.weights, index)
        return replace(self, rows=self.rows.problems(index), weights=weights)

    def part(self, some: slice) -> WeightedRows:
        """Return some of the rows, a copy: many passes go over them."""
        index = numbers(len(self.y), self.y)[some]
        weights = pick(self.weights, index)
        weights = weights / weights.sum(axis=0)
        return replace(self, rows=self.rows.rows(index), y=pick(self.y, index), weights=weights)

    def mean(self, v: Array) -> Array:
        """Return the weighted sum over rows, one per column."""
        return column_sums(self.weights, v)


@dataclass(frozen=True, eq=False)
class Zero(Batch):
    """The best models at theta = 0, with their slopes and curvatures (n, B), and g = Z'(pi a).

    ``gap`` is that of theta = 0 where it is optimal: then its slopes are the dual optimum.
    """

    b: Array
    risk: Array
    slope: Array
    curvature: Array
    g: Array
    mean_square: Array
    gap: Array

    @classmethod
    def of(cls, data: WeightedRows) -> Zero:
        """Return those of some problems; with an intercept their slopes sum to zero."""
        y, weights, loss = data.y, data.weights, data.loss
        B = weights.shape[1]
        b = np.zeros(B)
        if data.fit_intercept:
            b = np.array([loss.constant(y, weights[:, j]) for j in range(B)])
        z = full((len(y), B), 0.0, y) + beside(b, y)
        value, slope, curvature = loss.evaluate(z, y[:, None])
        g = data.rows.adjoint(weights * slope)
        risk, conjugate = data.mean(value), loss.conjugate(slope, y[:, None])
        # a row without weight may have any slope
        lower = -data.mean(namespace(conjugate).where(weights > 0, conjugate, 0.0))
        # rows that are no numbers prove nothing
        proved = np.isfinite(lower) & np.isfinite(norms(g))
        gap = np.where(proved, np.maximum(risk - lower, 0.0), np.inf)
        return cls(b, risk, slope, curvature, g, data.mean(slope**2), gap)

    def minima(self) -> Minima:
        """Return them as minimisers."""
        theta, none = np.zeros_like(self.g), np.zeros_like(self.risk)
        n_iter = np.ones(len(self.gap), dtype=int)
        return Minima(theta, self.b, none, self.risk, self.risk, self.gap, n_iter, self.slope)


@dataclass(frozen=True, eq=False)
class Points(Batch):
    """Points of a batch; ``z`` includes the intercept."""

    theta: Array
    b: Array
    z: Array
    value: Array
    slope: Array
    curvature: Array
    objective: Array

    @cached_property
    def w(self) -> Array:
        """The norms ||theta||_2."""
        return norms(self.theta)


class NewtonSystem:
    """The Newton matrices of the problems of a batch, by their numbers, and how well they serve.

    ``matrices`` (B, d + 1, d + 1) hold H - hh'/m, h = Z'(pi D) and m = sum pi D, D the curvatures.
    A matrix is renewed where the last step with it shrank the gradient by too little. Each problem
    is renewed by its own need, so that its steps do not depend on its company; folds of many rows
    (``shared``) take the matrix of the first problem, that of all rows, while that one is not at
    its end.
    """

    def __init__(self, B: int, shared: bool = False) -> None:
        self.shared = shared
        self.matrices: Array | None = None
        # nan without a matrix, infinite before its first step
        self.residual = np.full(B, np.nan)

    def retried(self) -> NewtonSystem:
        """Return the system for the next problems: the first step with a matrix is the test."""
        self.residual = np.where(np.isnan(self.residual), np.nan, np.inf)
        return self

    def renew(self, risk: PenalisedRisk, x: Points, residual: Array) -> Array:
        """Return the matrices for steps from x, where the gradients have the size ``residual``."""
        number, B = risk.number, len(self.residual)
        shrunk = residual / np.maximum(self.residual[number], TINY)
        self.residual[number] = residual
        new = np.flatnonzero(~(shrunk <= CONTRACTION))
        if len(new):
            all_rows = self.shared and number[new[0]] == 0
            new = new[:1] if all_rows else new
            made = _matrices(risk.columns(new), x.columns(new))
            if self.matrices is None:
                self.matrices = full((B, *made.shape[1:]), 0.0, made)
            where = beside(np.arange(B) if all_rows else number[new], self.matrices)
            self.matrices[where] = beside(numpy(made), self.matrices)
        assert self.matrices is not None
        some: Array = pick(self.matrices, number)
        return some


@dataclass(frozen=True, eq=False)
class PenalisedRisk:
    """The objectives F of B problems; ``number`` (B,) are their places in the Newton system."""

    data: WeightedRows
    rho: Array
    system: NewtonSystem
    number: Array

    def columns(self, index: Array) -> PenalisedRisk:
        """Return some of the problems."""
        if is_every(index, len(self.rho)):
            return self
        number = self.number[index]
        return PenalisedRisk(self.data.columns(index), self.rho[index], self.system, number)

    def at(self, theta: Array, b: Array, z: Array | None = None) -> Points:
        """Return the points at (theta, b), with scores z where they are known."""
        z = self.data.rows.scores(theta) + factor_of(b, self.data.y) if z is None else z
        value, slope, curvature = self.data.loss.evaluate(z, self.data.y[:, None])
        F = self.data.mean(value) + self.rho * norms(theta)
        return Points(theta, b, z, value, slope, curvature, F)

    @property
    def loss(self) -> Loss:
        """The loss of all problems."""
        return self.data.loss

    def off(self, zero: Zero) -> Array:
        """Whether theta = 0 is not optimal."""
        return is_off(zero, self.rho)

    def start(self, near: Place) -> Points:
        """Return the points at the places."""
        return self.at(near.theta, near.b)

    def from_zero(self, zero: Zero) -> Points:
        """Return the minimisers of the quadratic models along -g from theta = 0."""
        steepness, data = norms(zero.g), self.data
        u = -zero.g / steepness
        z = data.rows.scores(u)
        # the rows are centred on a mean that need not be that of these weights
        shift = data.mean(z) if data.fit_intercept else 0.0 * steepness
        spread = z - factor_of(shift, z)
        bend = data.mean(zero.curvature * spread**2)
        length = length_along_gradient(steepness, self.rho, bend, data.mean(spread**2) ** 0.5)
        b = zero.b - length * shift
        return self.at(length * u, b, factor_of(length, z) * z + factor_of(b, z))

    def line(self, x: Points) -> Line:
        """Return the lines of Newton steps, at the curvatures of when the matrix was renewed."""
        u, s = x.theta / x.w, self.data.mean(x.slope) * self.data.fit_intercept
        if self.data.rows.d > WRITTEN_UP_TO:
            step, db, dz = _by_products(self, x, s)
            descent = self.data.mean(x.slope * dz) + self.rho * dots(u, step)
            return Line(self, x, Place(step, db), descent, dz)
        g = self.data.rows.adjoint(self.data.weights * x.slope)
        matrices = self.system.renew(self, x, norms(g + self.rho * u))
        step, db = newton_step(matrices, g, s, u, self.rho, x.w)
        dz = self.data.rows.scores(step) + factor_of(db, self.data.y)
        descent = dots(g, step) + s * db + self.rho * dots(u, step)
        return Line(self, x, Place(step, db), descent, dz)

    def along(self, line: Line, length: Array) -> Points:
        """Return the points after a share of steps, which add ``line.change`` to the scores."""
        x, move = line.x, line.move
        z = x.z + factor_of(length, line.change) * line.change
        return self.at(x.theta + length * move.theta, x.b + length * move.b, z)

    def minima(self, end: Descent, target: Array) -> Minima:
        """Return the ends of descents."""
        return minima_of(end, self.rho, self.loss)

    def lower_bound(self, x: Points, line: Line) -> Array:
        """Return a bound (B,) below F of every model, from the slopes at x.

        They are shifted by a multiple of D until they sum to zero, then moved along D z'theta to
        where their pull has the size rho; where that does not help they are scaled.
        """
        # delta is the same for all problems
        if not self.rho.any():
            return self._lower_bound_without_penalty(x)
        a, growth = x.slope, x.curvature * (x.z - factor_of(x.b, x.z))
        if self.data.fit_intercept:
            mass = np.maximum(self.data.mean(x.curvature), TINY)
            a = a - factor_of(self.data.mean(a) / mass, a) * x.curvature
            growth = growth - factor_of(self.data.mean(growth) / mass, a) * x.curvature
        B = len(self.rho)
        both = namespace(a).concat([self.data.weights * a, self.data.weights * growth], axis=1)
        # one product for all columns takes little longer than for half of them
        pulls = self.data.rows.problems(np.tile(np.arange(B), 2)).adjoint(both)
        g, dg = pulls[:, :B], pulls[:, B:]
        size = norms(g)
        eta = feasible_growth(size**2 - self.rho**2, dots(g, dg), dots(dg, dg), outward=True)
        grown = np.isfinite(eta)
        eta = np.where(grown, eta, 0.0)
        # squares of columns of different scales lose digits: what the move leaves is measured anew
        left = np.maximum(norms(g + eta * dg), TINY)
        kappa = np.where(grown, np.minimum(1.0, self.rho / left), self.rho / left)
        a = factor_of(kappa, a) * (a + factor_of(eta, a) * growth)
        conjugate = self.data.loss.conjugate(a, self.data.y[:, None])
        # a row without weight may have any slope
        value = -self.data.mean(namespace(a).where(self.data.weights > 0, conjugate, 0.0))
        proves = ~np.isnan(value)
        if self.data.fit_intercept:
            # rows without curvature cannot be shifted to where the slopes sum to zero
            proves &= np.abs(self.data.mean(a)) <= BALANCED * self.data.mean(abs(a))
        return np.maximum(np.where(proves, value, 0.0), 0.0)

    def _lower_bound_without_penalty(self, x: Points) -> Array:
        """Return a bound (B,) below the mean loss of every model, however large.

        Slopes a with Z'(pi a) = 0 that sum to zero prove -E l*(a). Those at x, continued along a
        Newton step, are such slopes. Where the least risk is at infinity, the slopes of some rows
        leave the domain of l* on the way; they become 0, those of the limit, and the others are
        balanced without them.
        """
        data, theta = self.data, np.zeros_like(x.theta)
        wide = data.rows.d > WRITTEN_UP_TO
        one, rho = np.ones_like(self.rho), np.zeros_like(self.rho)
        xp, used = namespace(x.slope), data.weights > 0
        for _ in range(TRIES):
            s = data.mean(x.slope) * data.fit_intercept
            if wide:
                dz = _by_products(self, x, s)[2]
            else:
                g = data.rows.adjoint(data.weights * x.slope)
                step, db = newton_step(_matrices(self, x), g, s, theta, rho, one)
                dz = data.rows.scores(step) + factor_of(db, data.y)
            a = x.slope + x.curvature * dz
            conjugate = xp.where(used, data.loss.conjugate(a, data.y[:, None]), 0.0)
            outside = ~xp.isfinite(conjugate)
            if not outside.any():
                break
            x = replace(
                x,
                slope=xp.where(outside, 0.0, x.slope),
                curvature=xp.where(outside, 0.0, x.curvature),
            )
        size = norms(data.rows.adjoint(data.weights * a))
        squares = data.mean(a**2) * data.mean(data.rows.squared_norms()[:, None] + 0.0 * a)
        # to rounding, whose price is |Z'(pi a)| |theta|; steps of many columns leave more, and
        # their bound is of models up to the size of this one
        proves = (size <= BALANCED * np.sqrt(squares)) | wide
        if data.fit_intercept:
            proves &= np.abs(data.mean(a)) <= BALANCED * data.mean(abs(a))
        value = -data.mean(conjugate) - size * x.w
        return np.maximum(np.where(proves & np.isfinite(value), value, 0.0), 0.0)


def newton_step(
    matrices: Array, g: Array, s: Array, u: Array, rho: Array, w: Array
) -> tuple[Array, Array]:
    """Return the Newton steps of theta and b, with the intercept eliminated,

    (H - hh'/m + (rho/w)(I - uu')) step = -(g + rho u) + h s/m,  db = -(s + h'step)/m,

    g = Z'(pi a), s = sum pi a and u = theta/w; without an intercept s and h are 0. The matrices
    are those of ``NewtonSystem``.
    """
    H, h, m = matrices[:, :-1, :-1], numpy(matrices[:, :-1, -1]).T, numpy(matrices[:, -1, -1])
    rhs = h * (s / m) - g - rho * u
    step = numpy(solve_stiffened(H, *(beside(part, H) for part in (rho / w, u, rhs))))
    return step, -(s + dots(h, step)) / m


def minimise(objective: Any, zero: Any, target: Array, max_iter: int, start: Any = None) -> Any:
    """Return the minima of problems to gaps of at most ``target`` (B,), from ``start`` if given.

    An objective is that of rows in memory, or of rows in chunks (``solvers/streamed``).
    ``objective.off(zero)`` says of which problems theta = 0 is not the minimiser.
    """

    def moved(index: Array) -> Any:
        some, flat, goal = objective.columns(index), zero.columns(index), target[index]
        near = None if start is None else start.columns(index)
        return some.minima(descend(some, _first(some, flat, near), goal, max_iter), goal)

    return unless(zero, objective.off(zero), moved)


def unless(zero: Any, off: Array, moved: Callable[[Array], Any]) -> Any:
    """Return the models at theta = 0 as minima, those of ``moved`` where theta = 0 is ``off``."""
    some, settled = np.flatnonzero(off), np.flatnonzero(~off)
    if not len(settled):
        return moved(some)
    constant = zero.columns(settled).minima()
    if not len(some):
        return constant
    return type(constant).joined([moved(some), constant], [some, settled])


def _first(objective: Any, zero: Any, start: Any) -> Any:
    """Return the starts, or where these are no better than zero the points off zero.

    From F(start) < F(0) no descent ends in theta = 0, where F has no derivative.
    """
    some, warm = np.zeros(0, dtype=int), None
    if start is not None:
        each = np.moveaxis(start.theta, start.axis, 0).reshape(len(zero.risk), -1)
        some = np.flatnonzero(each.any(axis=1))
    if len(some):
        warm = objective.columns(some).start(start.columns(some))
        lower = np.flatnonzero(warm.objective < zero.risk[some])
        some, warm = some[lower], warm.columns(lower)
    rest = np.delete(np.arange(len(zero.risk)), some)
    if not len(rest):
        return warm
    cold = objective.columns(rest).from_zero(zero.columns(rest))
    return type(cold).joined([warm, cold], [some, rest]) if len(some) else cold


def is_off(zero: Zero, rho: Array) -> Array:
    """Whether theta = 0 is not optimal: at the threshold the slopes are the dual optimum."""
    least = threshold(norms(zero.g), zero.mean_square, 1.0, order=1)
    return np.asarray(~(least <= rho * (1 + EQUAL)))


def minima_of(end: Descent, rho: Array, loss: Loss) -> Minima:
    """Return the ends of descents under a penalty rho on the norm."""
    x = end.point
    # Lip may be infinite where delta = 0
    lam = np.array([loss.lipschitz * w if w > 0 else 0.0 for w in x.w.tolist()])
    mean_loss = x.objective - rho * x.w
    return Minima(x.theta, x.b, lam, x.objective, mean_loss, end.gap, end.n_iter, x.slope)


def length_along_gradient(steepness: Any, rho: Any, bend: Any, spread: Any) -> Any:
    """Return the length of the best move along -g from theta = 0, as a quadratic model goes.

    F falls with |g| - rho and bends with u'Hu =: ``bend`` along it; ``spread`` is the root mean
    square of the scores there, by which the least bend caps the move where H vanishes.
    """
    least = LEAST_BEND * (steepness - rho) * spread
    return (steepness - rho) / np.maximum(bend, np.maximum(least, TINY))


def _matrices(risk: PenalisedRisk, x: Points) -> Array:
    """Return the matrices at the curvatures of x; where they are large, beside the rows."""
    D = risk.data.weights * x.curvature
    m = np.maximum(numpy(D.sum(axis=0)), TINY)
    H, h = risk.data.rows.moments(D)
    if risk.data.fit_intercept:
        H = _eliminated(H, h, m, risk.data.rows, risk.rho / x.w)
    B, d = H.shape[:2]
    made = np.empty((B, d + 1, d + 1))
    made[:, :d, :d] = H
    made[:, :d, d] = made[:, d, :d] = risk.data.fit_intercept * h.T
    made[:, d, d] = m
    return made if B * d**3 <= ON_HOST_UP_TO else beside(made, D)


def _eliminated(H: Array, h: Array, m: Array, rows: Design, stiffness: Array) -> Array:
    """Return H - hh'/m; columns that are constant, so intercepts themselves, are kept apart.

    Of such a column only rounding is left. Where the stiffness is more than that, it alone draws
    the coefficient to 0; else the inverse would be anything, and the column's own square, before
    the centre was subtracted, leaves the coefficient where it is.
    """
    left = H - np.einsum("ib,jb->bij", h / m, h)
    centred = np.einsum("bii->bi", H)
    rounding = m[:, None] * rows.rounding + rows.n * np.finfo(float).eps * centred
    constant = np.einsum("bii->bi", left) <= rounding
    if not constant.any():
        return left
    apart = constant[:, :, None] | constant[:, None, :]
    square = np.abs(centred) + m[:, None] * rows.offset**2
    loose = constant & (stiffness[:, None] <= rounding)
    alone = np.where(loose, square, 0.0)[:, :, None] * np.eye(H.shape[1])
    return np.where(apart, alone, left)


def solve_stiffened(H: Array, stiffness: Array, u: Array, rhs: Array) -> Array:
    """Solve (H + stiffness (I - uu')) x = rhs for every column."""
    xp, stiff, d = namespace(H), stiffness[:, None], H.shape[1]
    q = xp.sqrt(stiff) * u.T
    A = H - q[:, :, None] * q[:, None, :]
    i = numbers(d, A)
    diagonal = A[:, i, i] + stiff
    A[:, i, i] = diagonal + RIDGE * xp.where(diagonal > 0, diagonal, 1.0)
    return positive_solved(A, rhs.T[:, :, None])[:, :, 0].T


def _by_products(risk: PenalisedRisk, x: Points, s: Array) -> tuple[Array, Array, Array]:
    """Return the Newton step, that of the intercept and of the scores, by conjugate gradients.

    Only products with the rows are needed. A gradient ends at rho u: rho is its unit, if there is
    one.
    """
    rows, D = risk.data.rows, risk.data.weights * x.curvature
    mass = np.maximum(numpy(D.sum(axis=0)), TINY)
    inverse_mass = risk.data.fit_intercept / mass
    u, stiffness = x.theta / x.w, risk.rho / x.w

    def applied(v: Array, z: Array) -> Array:
        curved = D * (z - factor_of(dots(D, z) * inverse_mass, z))
        across = v - dots(u, v) * u
        return rows.adjoint(curved) + stiffness * across + RIDGE * v

    # g - h s/m = Z'(pi a - D s/m)
    balanced = risk.data.weights * x.slope - factor_of(s / mass, D) * D
    r = -rows.adjoint(balanced) - risk.rho * u
    square = dots(r, r)
    unit = np.where(risk.rho > 0, risk.rho, 1.0)
    goal = CG_RTOL**2 * np.minimum(1.0, np.sqrt(square) / unit) * square
    step, dz, direction = np.zeros_like(r), 0.0 * x.z, r
    for _ in range(STEPS):
        # a problem that has ended stays as it is
        going = square > goal
        if not going.any():
            break
        z = rows.scores(direction)
        image = applied(direction, z)
        length = square / np.where(going, dots(direction, image), np.inf)
        step = step + length * direction
        dz = dz + factor_of(length, z) * z
        r = r - length * image
        before, square = square, dots(r, r)
        direction = r + square / np.where(going, before, np.inf) * direction
    # slopes sum to zero after the step: s + D'(Z step) + m db = 0
    db = -(s + dots(D, dz)) * inverse_mass
    return step, db, dz + factor_of(db, dz)
