r"""Smooth Lipschitz losses at order 2: Newton in (theta, b, lam) together, many problems at a time.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_k \psi_{ik},\qquad
          \psi = \ell(z_i + s, y_i) - \lambda s^2/w_i^2,\quad w_i = \|\theta\|_{*, i} .

A row has one stationary s while 2 lam/w^2 is at least the smoothness of the loss, and may have two
(k = 1, 2) below, where F has a kink: the model of a step keeps both branches of such a row linear
and shares its mass between them (``duality.ties``). The gap comes from the slopes of the moved
rows (``duality.lower_bound``).

``JointObjective`` evaluates rows in memory, ``solvers/streamed/order_two.py`` rows in chunks. Both
use the same step (``newton_step``), the same curve (``Curve``) and the same rules (``Progress``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    as_float,
    beside,
    column_sums,
    copied,
    entries,
    namespace,
    numpy,
    pick_columns,
    set_columns,
)
from ...duality import (
    Atoms,
    DualRows,
    RowDerivatives,
    best_multipliers,
    first_multipliers,
    lower_bound,
    move_derivatives,
)
from ...duality.chain import TINY
from ...duality.ties import Padded, TieModels, shares_of, solve_each, times
from ...losses import Loss
from ...losses.base import Inner

Array = NDArray[Any]

#: The relative precision to which a search minimises lam alone at the end.
FINE = 1e-13
#: Newton steps in lam alone before that search.
LAM_STEPS = 3
#: After a step in lam below this, relative to lam, the next one is rounding: it is quadratic.
LAST = 1e-6
#: The least bend of the inner problem in a step in lam alone, relative to lam.
FLAT = 1e-13
#: The share of the budget that a first guess of lam is taken to spend at least.
LEAST_SPENT = 1e-6
#: The least bend of the inner problem, relative to lam, in an exact step.
SHARP = 1e-12
#: The same in a step that follows one without progress, as where two branches part.
BLUNT = 0.2
#: Progress below this share of what is left asks for a blunt step.
PROGRESS = 0.1
#: A decrease below this share of what is left is none.
STALL = 1e-4
#: Steps in a row without a decrease after which a problem is left as it is.
PATIENCE = 4
#: A decrease below this share of the objective is rounding.
STILL = 1e-15
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step at most.
HALVINGS = 50
#: How many of them are tried at a time at first, then twice as many each time.
AT_ONCE = 4
#: Scores up to which several are tried at a time.
FEW = 10_000
#: After steps that promise more than this times the root of target times F no bound is sought.
HOPE = 10.0
#: The share of the way to w^2/lam = 0 that a step may go.
WAY = 0.9
#: Fits whose target, relative to the objective, is below this get lam alone minimised at the end.
ROUGH_FIT = 1e-5


@dataclass(frozen=True, eq=False)
class JointPoint:
    """Triples (theta, b, lam), one column per problem, the scores z and the branches of each row.

    ``value`` and ``shift`` of the branches have shape (k, n, B), as have ``slope`` and
    ``curvature`` of the loss at the moved scores; ``w`` (1, B) or (n, B). ``two`` (n, B) says
    which rows with a weight have two branches, ``p`` (n, B) is the share of the first one.
    """

    theta: Array
    b: Array
    lam: Array
    z: Array
    w: Array
    value: Array
    shift: Array
    slope: Array
    curvature: Array
    two: Array
    p: Array
    objective: Array

    def on_higher(self, part: Array) -> Array:
        """Return the entries (n, B) of an array of branches where the value is higher."""
        if len(part) == 1:
            only: Array = part[0]
            return only
        return namespace(part).where(self.value[0] >= self.value[1], part[0], part[1])

    def columns(self, index: Array) -> JointPoint:
        """Return some of the problems, ``index`` in their order or with repetitions."""
        if _every(index, len(self.b)):
            return self
        return JointPoint(*(pick_columns(part, index) for part in vars(self).values()))

    def replaced(self, index: Array, other: JointPoint) -> JointPoint:
        """Return the points with those of some problems, in their order, replaced."""
        if not len(other.b):
            return self
        if _every(index, len(self.b)):
            return other
        k = max(len(self.value), len(other.value))
        parts = {}
        for (name, mine), theirs in zip(vars(self).items(), vars(other).values(), strict=True):
            missing = -np.inf if name == "value" else None
            part = copied(_branches(mine, k, missing))
            set_columns(part, index, _branches(theirs, k, missing))
            parts[name] = part
        return JointPoint(**parts)

    def with_duals(self, dual: Array) -> JointPoint:
        """Return the points with the shares that have the mean slopes ``dual``, nan if unknown."""
        if len(self.value) == 1:
            return self
        xp, share = namespace(self.z), shares_of(dual, self.slope)
        return replace(self, p=xp.where(self.two & xp.isfinite(share), share, self.p))

    @property
    def shares(self) -> Array:
        """The masses (k, n, B) of branches, which sum to 1 per row."""
        xp = namespace(self.value)
        if len(self.value) == 1:
            return xp.ones_like(self.value)
        # without a weight any share will do
        first = xp.where(self.two, self.p, as_float(xp.isfinite(self.value[0])))
        return xp.stack([first, 1 - first])


def _branches(part: Array, k: int, missing: float | None) -> Array:
    """Return an array of branches (., n, B) with k of them, a copy or ``missing`` for a new one."""
    if part.ndim < 3 or len(part) == k:
        return part
    xp = namespace(part)
    new = part[:1] if missing is None else xp.full_like(part[:1], missing)
    extended: Array = xp.concat([part, new])
    return extended


@dataclass(frozen=True, eq=False)
class Ties:
    """Rows with two branches of the problems ``problem`` (T,): their numbers ``index`` (T, R).

    Only places that are ``held`` count. ``difference`` (T, R) is pi (psi_1 - psi_2), J (T, R, D)
    its gradient and ``shares`` (T, R) are the masses of first branches.
    """

    problem: Array
    index: Array
    held: Array
    difference: Array
    J: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class StepModel:
    """The models of steps of B problems: gradient (B, D), Hessian (B, D, D) and kinks."""

    gradient: Array
    hessian: Array
    ties: Ties | None

    def minimise(self) -> tuple[Array, Array, Array | None]:
        """Return the moves (B, D), the slopes of F along them and the shares of tied rows."""
        gradient, H, ties = self.gradient, self.hessian, self.ties
        move = np.zeros_like(gradient)
        free = np.arange(len(move)) if ties is None else np.delete(range(len(move)), ties.problem)
        if len(free):
            move[free] = -solve_each(H[free], gradient[free][:, :, None])[:, :, 0]
        descent = np.einsum("bi,bi->b", gradient, move)
        if ties is None:
            return move, descent, None
        tied, shares = ties.problem, np.where(ties.held, ties.shares, 0.0)
        # the gradient with all mass on second branches
        base = gradient[tied] - times(np.swapaxes(ties.J, 1, 2), shares)
        model = TieModels(base, H[tied], ties.difference, ties.J)
        move[tied], shares, descent[tied] = model.minimise(shares)
        return move, descent, shares


class Curve:
    """The places along moves (B, D) from (theta, b, lam), lam kept positive.

    Two branches of a row tie at a score that depends on w^2/lam =: level, and so does the bend of
    a single one: lam follows from a linear move of the level, so that tied rows, linear in
    (theta, b), stay tied to first order along the whole step. ``product`` is the inner product
    whose square root is the dual norm.
    """

    def __init__(self, x: Any, move: Array, descent: Array, product: Any) -> None:
        d = len(x.theta)
        self.x, self.descent, self.product = x, descent, product
        self.dtheta, self.db = move[:, :d].T, move[:, d]
        self.level = product(x.theta, x.theta) / x.lam
        self.drift = 2 * product(x.theta, self.dtheta) / x.lam - self.level * move[:, -1] / x.lam
        # no longer than the tangent stays above F = 0
        shorter = np.maximum(-self.drift / (WAY * self.level), -descent / x.objective)
        self.longest = 1 / np.maximum(shorter, 1.0)

    def at(self, length: Array) -> tuple[Array, Array, Array]:
        """Return theta, b and lam after a share (B,) of the moves."""
        theta = self.x.theta + length * self.dtheta
        lam = self.product(theta, theta) / (self.level + length * self.drift)
        return theta, self.x.b + length * self.db, lam

    def low_enough(self, objective: Array, length: Array) -> Array:
        """Whether values after a share of the moves are lower by a part of what it promises."""
        F = self.x.objective
        low: Array = objective <= F + ARMIJO * length * self.descent + STILL * np.abs(F)
        return low


@dataclass(eq=False)
class Progress:
    """How B descents go: the bounds so far, steps without a decrease, the bend of the next step."""

    target: Array
    lower: Array
    gap: Array
    stalls: Array
    floor: Array

    @classmethod
    def begun(cls, target: Array) -> Progress:
        """Return that of descents that have not begun."""
        B = len(target)
        stalls = np.zeros(B, dtype=int)
        return cls(target, np.zeros(B), np.full(B, np.inf), stalls, np.full(B, SHARP))

    def wants_bound(self, F: Array, fall: Array, descent: Array) -> bool:
        """Whether a bound may prove something: far off none does, as Newton squares the gap."""
        hopeless = -descent > HOPE * (self.target * F) ** 0.5
        return not bool((hopeless & (fall > STALL * -descent)).all())

    def over(self, F: Array, fall: Array, descent: Array) -> Array:
        """Take note of a step to the values F, and return which descents are at their end."""
        self.gap = np.maximum(F - self.lower, 0.0)
        # without a bound the gap says nothing: then what the model promised
        left = np.where(self.lower > 0, self.gap, -descent)
        self.stalls = np.where(fall <= STALL * left + STILL * F, self.stalls + 1, 0)
        # where progress is small beside what is left the model is too stiff
        stiff = (fall < PROGRESS * left) & (self.floor == SHARP)
        self.floor = np.where(stiff, BLUNT, SHARP)
        return np.asarray((self.gap <= self.target) | (self.stalls >= PATIENCE))

    def columns(self, index: Array) -> Progress:
        """Return those of some problems."""
        return Progress(*(part[index] for part in vars(self).values()))


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The objective of some problems over the same rows: evaluation, model of a step, bound."""

    rows: DualRows
    loss: Loss

    def columns(self, index: Array) -> JointObjective:
        """Return some of the problems, ``index`` in their order or with repetitions."""
        if _every(index, len(self.rows.delta)):
            return self
        return replace(self, rows=self.rows.columns(index))

    @cached_property
    def _targets(self) -> Array:
        """The targets, one column per problem, (n, B)."""
        y = self.rows.y
        return namespace(y).broadcast_to(y[:, None], self.rows.weights.shape)

    def at(
        self, theta: Array, b: Array, lam: Array, z: Array, near: JointPoint | None = None
    ) -> JointPoint:
        """Evaluate the objective.

        ``near`` is a point whose shifts are guesses of these, and whose shares stay those of rows
        that keep their two branches. All mass of other rows is on the higher branch.
        """
        rows, w, xp = self.rows, self.rows.dual_norm.norms(theta), namespace(z)
        inner = self._inner(z, w, lam, None if near is None else near.shift)
        value, shift = (part.reshape(-1, *z.shape) for part in inner)
        best, two = value[0], xp.zeros_like(z, dtype=bool if xp is np else xp.bool)
        p = as_float(value[0] >= value[-1])
        if len(value) > 1:
            best = xp.max(value, axis=0)
            two = xp.all(xp.isfinite(value), axis=0) & (rows.weights > 0)
            p = p if near is None else xp.where(two & near.two, near.p, p)
        F = lam * rows.delta + column_sums(rows.weights, best)
        _, slope, bend = self.loss.evaluate(z + shift, self._targets)
        return JointPoint(theta, b, lam, z, w, value, shift, slope, bend, two, p, F)

    def _inner(self, z: Array, w: Array, lam: Array, guess: Array | None = None) -> Inner:
        """Return the inner maxima, branches of all rows of all problems (k, nB)."""
        # pass a scalar where one serves all rows: broadcasting n copies is slower
        scale = float(w[0, 0]) if w.shape == (1, 1) else _each_row(w, z)
        price = float(lam[0]) if z.shape[1] == 1 else _each_row(lam, z)
        near = None if guess is None else abs(guess).reshape(len(guess), -1)
        return self.loss.inner(z.ravel(), self._targets.ravel(), scale, price, near)

    def start(self, theta: Array, b: Array, lam: Array | None = None) -> JointPoint:
        """Return the points at (theta, b), with lam near its best where none > 0 is given."""
        z = self.rows.design.scores(theta) + beside(b, self.rows.y)
        lam = np.zeros(len(b)) if lam is None else lam.copy()
        new = np.flatnonzero(~((lam > 0) & np.isfinite(lam)))
        if len(new):
            lam[new] = self.columns(new)._near_best(theta[:, new], pick_columns(z, new))
        return self.at(theta, b, lam, z)

    def _near_best(self, theta: Array, z: Array) -> Array:
        """Return lam near its best: what is spent, E t^2, falls about as its inverse square."""
        rows, w = self.rows, self.rows.dual_norm.norms(theta)
        lam = first_multipliers(z, rows.y, rows.weights, self.loss, w, rows.delta)
        shift = self._inner(z, w, lam).best.shift.reshape(z.shape)
        spent = column_sums(rows.weights, (shift / beside(w, z)) ** 2)
        return np.asarray(lam * np.sqrt(np.maximum(spent / rows.delta, LEAST_SPENT)))

    def derivatives(self, x: JointPoint, floor: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of F with the masses of the branches fixed."""
        # the bend > 0 vanishes where two branches part: there its floor counts
        lam, w = beside(x.lam, x.z), beside(x.w, x.z)
        least = beside(floor * x.lam, x.z)
        bend = namespace(x.z).maximum(2 * lam - w**2 * x.curvature, least)
        each = move_derivatives(x.slope, x.curvature, x.shift / w, w, bend)
        mass = self.rows.weights * x.shares
        parts = (mass * namespace(mass).stack(each)).sum(axis=1)
        return self.rows.derivatives(x.theta, x.w, RowDerivatives(*parts))

    def model(self, x: JointPoint, floor: Array) -> StepModel:
        """Return the models of the next steps."""
        gradient, hessian = self.derivatives(x, floor)
        tied = np.flatnonzero(numpy(x.two.any(axis=0)))
        if not len(tied):
            return StepModel(gradient, hessian, None)
        places = Padded.of(numpy(pick_columns(x.two, tied)).T)
        difference, J = self.columns(tied).branch_differences(x.columns(tied), places)
        shares = entries(x.p, places.index, tied[:, None])
        ties = Ties(tied, places.index, places.held, difference, J, shares)
        return StepModel(gradient, hessian, ties)

    def shared(self, x: JointPoint, floor: Array) -> tuple[JointPoint, Array, Array]:
        """Return the points with the shares of their models, the moves and the slopes along."""
        model = self.model(x, floor)
        move, descent, shares = model.minimise()
        if model.ties is None or shares is None:
            return x, move, descent
        p, ties = copied(x.p), model.ties
        t, r = np.nonzero(ties.held)
        at = (beside(ties.index[t, r], p), beside(ties.problem[t], p))
        p[at] = beside(shares[t, r], p)
        return replace(x, p=p), move, descent

    def branch_differences(self, x: JointPoint, tied: Padded) -> tuple[Array, Array]:
        """Return pi (psi_1 - psi_2) of the ``tied`` rows of every problem, and its gradients.

        Shapes (B, R) and (B, R, d + 2).
        """
        rows, index, d = self.rows, tied.index, len(x.theta)
        B, R = index.shape
        at = (index, np.arange(B)[:, None])
        w = np.broadcast_to(x.w, x.z.shape)[at]
        slope = entries(x.slope, *at)
        t = entries(x.shift, *at) / w
        by_z = slope[0] - slope[1]
        by_w = slope[0] * t[0] - slope[1] * t[1]
        apart = np.empty((B, R, d + 2))
        Z = numpy(rows.design.rows(index.ravel()).dense()).reshape(B, R, d)
        apart[..., :d] = by_z[..., None] * Z
        apart[..., :d] += by_w[..., None] * rows.dual_norm.directions(x.theta, x.w, index)
        apart[..., d] = by_z * rows.fit_intercept
        apart[..., -1] = t[1] ** 2 - t[0] ** 2
        weights, value = entries(rows.weights, *at), entries(x.value, *at)
        difference = weights * (value[0] - value[1])
        mass = weights * tied.held
        return np.where(tied.held, difference, -1.0), mass[..., None] * apart

    def lower_bound(self, x: JointPoint) -> Array:
        """Return a bound below the risk of every model, from the slopes at x."""
        atoms = Atoms(self.rows.weights * x.shares, x.slope, x.curvature)
        return lower_bound(self.rows, self.loss, atoms, x.z - beside(x.b, x.z) + x.shift)

    def settled(self, x: JointPoint) -> JointPoint:
        """Return the points with lam alone minimised to rounding, where that is lower.

        A few steps of Newton's method that knows the kinks do that, else a search.
        """
        new = x
        for _ in range(LAM_STEPS):
            step = self._multiplier_step(new)
            far = ~(np.abs(step) <= LAST * new.lam)
            new = self.at(x.theta, x.b, new.lam + step, x.z, replace(x, shift=new.shift))
            if not far.any():
                break
        rest = np.flatnonzero(far)
        if len(rest):
            part, old = self.columns(rest).rows, x.columns(rest)
            sample = (old.z, part.y, part.weights, self.loss, old.w, part.delta)
            lam = np.asarray(best_multipliers(*sample, old.lam, FINE).lam)
            searched = self.columns(rest).at(old.theta, old.b, lam, old.z, old)
            new = new.replaced(rest, searched)
        lower = new.objective <= x.objective
        return x.replaced(lower, new.columns(lower))

    def _multiplier_step(self, x: JointPoint) -> Array:
        """Return the steps in lam alone to where the slope of F, at a kink its jump, meets zero.

        The slope starts from g with all rows on the branch of the larger move, rises at the rate
        H, and jumps by pi (t_1^2 - t_2^2) at the kinks h_1 <= h_2 <= ... of tied rows: after j of
        them its root is r_j = -(g + jumps)/H, and the one of all is min_j max(r_j, h_j).
        """
        w, lam = beside(x.w, x.z), beside(x.lam, x.z)
        square = (x.shift / w) ** 2
        spent = self.rows.weights * x.on_higher(square)
        # t = s/w moves by -2t/bend, bend = 2 lam - w^2 l''
        bend = 2 * lam - w**2 * x.on_higher(x.curvature)
        H = numpy((4 * spent / namespace(bend).maximum(bend, FLAT * lam)).sum(axis=0))
        slope = self.rows.delta - numpy(spent.sum(axis=0))
        root = -slope / H
        if x.two.any():
            kink, jump = self._kinks(x, square)
            slope = slope - (jump * (kink < 0)).sum(axis=0)
            roots = -(slope + np.cumsum(jump, axis=0)) / H
            first = -(slope / H)
            root = np.minimum(first, np.maximum(roots, kink).min(axis=0))
        return np.clip(root, -x.lam / 2, x.lam)

    def _kinks(self, x: JointPoint, square: Array) -> tuple[Array, Array]:
        """Return the changes (R, B) of lam at which rows change branch, in order, and the jumps."""
        places = Padded.of(numpy(x.two).T)
        at = (places.index, np.arange(len(x.b))[:, None])
        value, t2 = entries(x.value, *at), entries(square, *at)
        apart = np.maximum(t2[0] - t2[1], TINY)
        kink = np.where(places.held, (value[0] - value[1]) / apart, np.inf)
        jump = np.where(places.held, entries(self.rows.weights, *at) * apart, 0.0)
        order = np.argsort(kink, axis=1)
        return np.take_along_axis(kink, order, 1).T, np.take_along_axis(jump, order, 1).T

    def advance(self, x: JointPoint, move: Array, descent: Array) -> JointPoint:
        """Return the next points, by the longest of the steps 1, 1/2, ... that descends, or x."""
        line = _Line(self, x, move, descent)
        new = line.at(line.curve.longest)
        left = np.flatnonzero(~line.curve.low_enough(new.objective, line.curve.longest))
        tried, at_once = 0, AT_ONCE
        while len(left) and tried < HALVINGS:
            B = len(left)
            at_once = max(1, min(at_once, FEW // (len(x.z) * B), HALVINGS - tried))
            again = np.tile(left, at_once)
            line = _Line(self.columns(again), x.columns(again), move[again], descent[again])
            halvings = np.repeat(np.arange(tried, tried + at_once) + 1.0, B)
            length = line.curve.longest * 0.5**halvings
            near = line.at(length)
            low = line.curve.low_enough(near.objective, length)
            lowest = np.where(low, near.objective, np.inf).reshape(at_once, B).argmin(axis=0)
            pick = lowest * B + np.arange(B)
            good = low[pick]
            new = new.replaced(left[good], near.columns(pick[good]))
            left = left[~good]
            tried, at_once = tried + at_once, 2 * at_once
        return new.replaced(left, x.columns(left)) if len(left) else new


class _Line:
    """The points of some problems along moves."""

    def __init__(self, objective: JointObjective, x: JointPoint, move: Array, descent: Array):
        self.objective, self.x = objective, x
        self.curve = Curve(x, move, descent, objective.rows.dual_norm.product)
        scores = objective.rows.design.scores(self.curve.dtheta)
        self.dz = scores + beside(self.curve.db, x.z)

    def at(self, length: Array) -> JointPoint:
        """Return the points after a share (B,) of the moves."""
        z = self.x.z + beside(length, self.x.z) * self.dz
        return self.objective.at(*self.curve.at(length), z, self.x)


@dataclass(eq=False)
class JointMinimum:
    """The last points of a descent and their certificates, one column per problem."""

    theta: Array
    b: Array
    lam: Array
    objective: Array
    gap: Array
    n_iter: Array
    dual: Array


def descend(objective: JointObjective, x: JointPoint, target: Array, max_iter: int) -> JointMinimum:
    """Minimise from x until each problem's gap is at most its ``target`` (B,)."""
    everything, end, B = objective, x, len(x.b)
    gap, steps = np.zeros(B), np.ones(B, dtype=int)
    active, progress = np.arange(B), Progress.begun(target)
    for n_iter in range(1, max_iter + 1):
        x, move, descent = objective.shared(x, progress.floor)
        new = objective.advance(x, move, descent)
        fall = x.objective - new.objective
        if n_iter == max_iter or progress.wants_bound(x.objective, fall, descent):
            progress.lower = np.maximum(progress.lower, objective.lower_bound(new))
        over = progress.over(new.objective, fall, descent) | (n_iter == max_iter)
        x = new
        if over.any():
            done, keep = np.flatnonzero(over), np.flatnonzero(~over)
            at = active[done]
            end = end.replaced(at, x.columns(done))
            gap[at], steps[at] = progress.gap[done], n_iter
            if not len(keep):
                break
            objective, x, active = objective.columns(keep), x.columns(keep), active[keep]
            progress = progress.columns(keep)
    fine = np.flatnonzero(target < ROUGH_FIT * end.objective)
    last = end
    if len(fine):
        last = end.replaced(fine, everything.columns(fine).settled(end.columns(fine)))
    gap = np.maximum(gap - (end.objective - last.objective), 0.0)
    # the mean slope of each row over its branches
    dual = (last.shares * last.slope).sum(axis=0)
    return JointMinimum(last.theta, last.b, last.lam, last.objective, gap, steps, dual)


def _every(index: Array, B: int) -> bool:
    """Whether numbers in increasing order, or a mask, stand for all of B problems."""
    if index.dtype == bool:
        return bool(index.all())
    return len(index) == B and bool((index == np.arange(B)).all())


def _each_row(v: Array, z: Array) -> Array:
    """Return one number per problem, or per row and problem, as the rows of z raveled have them."""
    repeated: Array = namespace(z).broadcast_to(beside(v, z), z.shape).ravel()
    return repeated
