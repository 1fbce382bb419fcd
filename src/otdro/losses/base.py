"""The contract of a loss: elementwise in the score z = x'beta + b, convex, with infimum zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.base import BaseEstimator

from ..arrays import mass, namespace

if TYPE_CHECKING:
    from .piecewise import PiecewiseQuadratic

Array = NDArray[Any]

#: Scores beyond this are not sought.
FAR = 2.0**50
#: Halvings of an interval of scores, from ``FAR`` to below rounding.
HALVINGS = int(np.log2(FAR)) + np.finfo(float).bits
#: Cells of the scan of a row that may have several maxima.
CELLS = 128
#: Scores at which every loss is finite. A slope that is larger, far out, has no limit.
NEARER = 1e4


class SlopeRange(NamedTuple):
    """The least and the largest limit of dl/dz, one each per target."""

    low: Array
    high: Array


class Loss(BaseEstimator):  # type: ignore[misc]
    r"""A convex loss :math:`\ell(z, y) \ge 0` of the score z with infimum 0.

    A subclass states ``task`` (``"classification"``: y in {-1, +1}, or ``"regression"``),
    ``lipschitz`` (the largest slope in z, inf if there is none) and ``smoothness`` (the largest
    second derivative, inf if there is a kink), and writes ``value``, ``derivative`` and
    ``curvature``. Everything else has a default that holds for every such loss; override what has
    a formula.

    ``minimum_at_infinity``: whether the infimum is approached only by infinite scores, so that
    separable classes have no plain minimiser. ``profile``: whether the profile theory covers it.
    """

    task: ClassVar[str]
    lipschitz: float
    smoothness: float
    minimum_at_infinity: ClassVar[bool] = False
    profile: ClassVar[bool] = False
    #: Scores per row: 1, or the number of classes.
    outputs: int = 1

    def value(self, z: Array, y: Array) -> Array:
        """Return l(z, y)."""
        raise NotImplementedError

    def probability(self, z: Array) -> Array | None:
        """Return P(y = +1 given score z), that of -1 being at -z; None where there is none."""
        return None

    def derivative(self, z: Array, y: Array) -> Array:
        """Return dl/dz, a subgradient at kinks."""
        raise NotImplementedError

    def curvature(self, z: Array, y: Array) -> Array:
        """Return d2l/dz2, zero at kinks."""
        raise NotImplementedError

    def multinomial(self, classes: int) -> Loss | None:
        """Return the loss of one score per class that this one is of two, None if there is none."""
        return None

    @property
    def pieces(self) -> PiecewiseQuadratic | None:
        """The loss itself if it is piecewise quadratic, stating slopes and kappa, else None."""
        return None

    def evaluate(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature together; override where they share work."""
        return self.value(z, y), self.derivative(z, y), self.curvature(z, y)

    def constant(self, y: Array, weights: Array) -> float:
        """Return the constant score b that minimises sum_i weights_i l(b, y_i), by bisection."""
        if self.task == "classification":
            masses = [mass(weights, y < 0), mass(weights, y > 0)]
            y, weights = np.array([-1.0, 1.0]), np.array(masses)
        ones = namespace(y).ones_like(y)
        reach = max(1.0, abs(float(y.min())), abs(float(y.max())))

        def falls(b: Array) -> Array:
            return np.asarray(float(weights @ self.derivative(float(b) * ones, y)) < 0)

        low, high = turning_point(falls, np.array(reach))
        middle = float(low + high) / 2
        if self.task == "regression":
            # of equal targets exactly theirs
            middle = min(max(middle, float(y.min())), float(y.max()))
        return middle

    def slope_range(self, y: Array) -> SlopeRange:
        """Return the limits of dl/dz as z tends to -inf and to +inf; -inf or inf if none."""
        y, ends = np.asarray(y, dtype=float), []
        for sign in (-1.0, 1.0):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                far = self.derivative(np.full_like(y, sign * FAR), y)
            # a nearer score where that overflows
            near = self.derivative(np.full_like(y, sign * NEARER), y)
            ends.append(np.where(np.isfinite(far), far, near))
        if np.isfinite(self.lipschitz):
            return SlopeRange(*ends)
        low, high = (np.where(np.abs(end) > NEARER, np.sign(end) * np.inf, end) for end in ends)
        return SlopeRange(low, high)

    def score_at(self, slope: Array, y: Array, room: tuple[Array, Array] | None = None) -> Array:
        """Return a z with dl/dz = slope, by bisection; far out where there is none.

        ``room`` may hold the distances of the slope to the ends of its range, of which the slope
        itself says little near an end; a formula can use them.
        """
        low, high = turning_point(lambda z: self.derivative(z, y) < slope, np.ones(np.shape(slope)))
        return (low + high) / 2

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return sup_z a z - l(z, y); here by bisection on the derivative, +inf off its range."""
        a, y = np.broadcast_arrays(np.asarray(a, dtype=float), y)
        low, high = self.slope_range(y)
        z, least = self.score_at(a, y), a <= low
        if least.any():
            # the last score of the least slope: at one far out rounding would be all that is left
            last = turning_point(lambda z: self.derivative(z, y) <= a, np.ones(np.shape(a)))
            z = np.where(least, (last[0] + last[1]) / 2, z)
        # at an end of the range the supremum is a limit, taken at a score far out
        return np.where((a >= low) & (a <= high), a * z - self.value(z, y), np.inf)

    def sublevel(self, y: Array) -> Ends:
        """Return the ends of {z : l(z, y_k) <= t}, those of one target next to each other."""
        return inverted(self, y)

    def inner(self, z: Array, y: Array, w: Any, lam: Any, guess: Array | None = None) -> Inner:
        r"""Maximise :math:`\ell(z + s, y) - \lambda s^2 / w^2` over the shift s of the score.

        ``w`` and ``lam`` are numbers or hold one value per row. ``guess`` may hold \|s\| of a
        problem nearby, of shape (n,) or with its branches (k, n), to start an iteration from.
        Here by a global search that needs nothing but ``derivative``, ``lipschitz`` and
        ``smoothness``.
        """
        return local_maxima(self, z, y, lam / np.square(w))


class Inner(NamedTuple):
    r"""Local maxima of :math:`s \mapsto \ell(z_i + s, y_i) - (\lambda/w_i^2) s^2`.

    A row of each array is a branch. ``value`` is -inf where a row lacks that branch; ``shift`` is
    the maximiser s, the displacement of the score.
    """

    value: Array
    shift: Array

    @property
    def best(self) -> Inner:
        """The global maximum of every row, arrays of shape (n,)."""
        if len(self.value) == 1:
            return Inner(self.value[0], self.shift[0])
        xp = namespace(self.value)
        top = xp.argmax(self.value, axis=0)[None]
        value, shift = (xp.take_along_axis(part, top, axis=0)[0] for part in self)
        return Inner(value, shift)


def local_maxima(loss: Loss, z: Array, y: Array, kappa: Any) -> Inner:
    """Return the maximum of every row, or its two best local maxima, the larger shift first.

    A stationary point solves f(s) = l'(z + s) - 2 kappa s = 0, and a maximum is where f falls
    through 0. All lie between the limits of l' over 2 kappa. Where 2 kappa >= smoothness the
    problem is concave and f has one root; else there may be several, and a scan keeps two.
    """
    kappa = np.broadcast_to(np.asarray(kappa, dtype=float), z.shape)
    low, high = _bracket(loss, z, y, kappa)
    several = 2 * kappa < loss.smoothness
    endless = ~np.isfinite(low) | ~np.isfinite(high)
    low, high = np.where(endless, 0.0, low), np.where(endless, 0.0, high)
    left, right = np.tile(low, (2, 1)), np.tile(high, (2, 1))
    second = np.zeros(len(z), dtype=bool)
    rows = np.flatnonzero(several & ~endless)
    if len(rows):
        at = (loss, z[rows], y[rows], kappa[rows], low[rows], high[rows])
        left[:, rows], right[:, rows], second[rows] = _two_best(*at)
    branches = 2 if second.any() else 1
    y = np.broadcast_to(y, (branches, len(z)))
    shift = _fall(loss, z, y, kappa, left[:branches], right[:branches])
    value = _gain(loss, z, y, kappa, shift)
    value[0, endless] = np.inf
    value[1:, ~second] = -np.inf
    return Inner(value, shift)


def turning_point(holds: Callable[[Array], Array], reach: Array) -> tuple[Array, Array]:
    """Return the last points at which a condition holds and the first at which it does not.

    It holds up to some point and not beyond, one point per entry. The brackets begin at
    ``-reach`` and ``reach`` and are doubled up to ``FAR`` times that.
    """
    low, high = -reach, reach
    for _ in range(int(np.log2(FAR))):
        short, shy = ~holds(low), holds(high)
        if not (short | shy).any():
            break
        low, high = np.where(short, 2 * low, low), np.where(shy, 2 * high, high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = holds(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low, high


def _gain(loss: Loss, z: Array, y: Array, kappa: Array, s: Array) -> Array:
    """Return l(z + s) - kappa s^2."""
    return loss.value(z + s, np.broadcast_to(y, s.shape)) - kappa * s**2


def _bracket(loss: Loss, z: Array, y: Array, kappa: Array) -> tuple[Array, Array]:
    """Return shifts with f(low) >= 0 >= f(high), infinite where the loss outgrows the cost."""
    if np.isfinite(loss.lipschitz):
        reach = loss.lipschitz / (2 * kappa)
        low, high = loss.derivative(z - reach, y), loss.derivative(z + reach, y)
        # l' is between its values at the ends of the reach
        return low / (2 * kappa), high / (2 * kappa)
    return _doubled(loss, z, y, kappa, -1.0), _doubled(loss, z, y, kappa, 1.0)


def _doubled(loss: Loss, z: Array, y: Array, kappa: Array, sign: float) -> Array:
    # a loss that is flat near the row may outgrow the cost all the same, farther out
    last = z + sign * NEARER * (1.0 + np.abs(z))
    endless = sign * (loss.derivative(last, y) - 2 * kappa * (last - z)) > 0
    far = sign * (1.0 + np.abs(z))
    for _ in range(int(np.log2(NEARER))):
        short = sign * (loss.derivative(z + far, y) - 2 * kappa * far) > 0
        if not short.any():
            break
        far = np.where(short, 2 * far, far)
    return np.where(endless, sign * np.inf, far)


def _fall(loss: Loss, z: Array, y: Array, kappa: Array, low: Array, high: Array) -> Array:
    """Return a root of f in [low, high], f(low) >= 0 >= f(high), by bracketed Newton steps."""
    s = (low + high) / 2
    for _ in range(HALVINGS):
        slope = loss.derivative(z + s, y)
        f = slope - 2 * kappa * s
        low, high = np.where(f >= 0, s, low), np.where(f >= 0, high, s)
        bend = loss.curvature(z + s, y) - 2 * kappa
        step = f / np.where(bend < 0, -bend, np.inf)
        new = np.where(
            (s + step > low) & (s + step < high) & (bend < 0), s + step, (low + high) / 2
        )
        moved = np.abs(new - s)
        s = new
        if np.all(moved <= 4 * np.finfo(float).eps * (1 + np.abs(s))):
            break
    return s


def _two_best(
    loss: Loss, z: Array, y: Array, kappa: Array, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """Return the cells (2, n) of a scan with the two best falls of f, and where there are two.

    The larger shift comes first, so that a branch keeps its place from one point to the next.
    """
    grid = low + (high - low) * np.linspace(0.0, 1.0, CELLS + 1)[:, None]
    f = loss.derivative(z + grid, np.broadcast_to(y, grid.shape)) - 2 * kappa * grid
    f[0], f[-1] = np.maximum(f[0], 0.0), np.minimum(f[-1], 0.0)
    falls = (f[:-1] >= 0) & (f[1:] <= 0) & ((f[:-1] > 0) | (f[1:] < 0))
    falls[0] |= ~falls.any(axis=0)
    height = np.where(falls, _gain(loss, z, y, kappa, grid[:-1]), -np.inf)
    best = np.argsort(height, axis=0)[-2:]
    two = np.take_along_axis(height, best, axis=0)[0] > -np.inf
    cells = np.sort(np.where(two, best, best[1]), axis=0)[::-1]
    left, right = (np.take_along_axis(grid, cells + k, axis=0) for k in (0, 1))
    return left, right, two


def entropy(p: Array) -> Array:
    """Return -p log p, 0 at 0 and -inf below."""
    xp = namespace(p)
    if xp is np:
        return entr(p)
    entropies = -p * xp.log(xp.where(p > 0, p, 1.0))
    return xp.where(p < 0, -np.inf, entropies)


#: Levels t to psi, psi' and psi''.
Curve = Callable[[Array], tuple[Array, Array, Array]]


@dataclass(frozen=True, eq=False)
class Ends:
    r"""Ends of the sublevel sets :math:`\ell(z, y) \le t`, intervals of scores.

    An end is :math:`o z \le \psi(t)` with o = +1 or -1 and psi concave and increasing, the inverse
    of the loss on one side of its minimum: linear in the model, only the scalar t is bent. A side
    on which the loss does not grow has no end.

    ``of`` is the target that each end belongs to, ``side`` is o, ``steepest`` the largest |dl/dz|;
    ``curve`` maps the levels t > 0, one per end, to psi, psi' and psi''.
    """

    of: Array
    side: Array
    steepest: Array
    curve: Curve
    linear: bool = False


def inverted(loss: Loss, y: Array) -> Ends:
    """Return the ends by bisection, for a loss of which only value and derivatives are known."""
    pair = np.repeat(np.arange(len(y)), 2)
    side = np.tile([-1.0, 1.0], len(y))
    steepest = side * loss.derivative(side * FAR, y[pair])
    grows = steepest > 0
    of, side = pair[grows], side[grows]
    return Ends(of, side, steepest[grows], partial(_bisected, loss, y[of], side))


def _bisected(loss: Loss, y: Array, side: Array, t: Array) -> tuple[Array, Array, Array]:
    """Return psi with l(o psi, y) = t where the loss grows with o z, and its derivatives."""

    def within(v: Array) -> Array:
        z = side * v
        return (side * loss.derivative(z, y) <= 0) | (loss.value(z, y) <= t)

    high = turning_point(within, np.ones(len(t)))[1]
    first = 1 / np.abs(loss.derivative(side * high, y))
    return high, first, -loss.curvature(side * high, y) * first**3
