"""The contract of a loss: elementwise in the score z = x'beta + b, convex, with infimum zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..arrays import beside, mass, namespace, numpy
from .inner import DOUBLINGS_TO_FAR, FAR, Inner, local_maxima, slope_limit
from .sublevel import Ends, inverted

if TYPE_CHECKING:
    from .piecewise import PiecewiseQuadratic

Array = NDArray[Any]

#: A slope that large, far out, has no limit.
ENDLESS = 1e3
#: Halvings of an interval of scores, from ``FAR`` to below rounding.
HALVINGS = 110


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
    ``steady``: whether the third derivative is nowhere larger than the second, in size.
    """

    task: ClassVar[str]
    lipschitz: float
    smoothness: float
    minimum_at_infinity: ClassVar[bool] = False
    profile: ClassVar[bool] = False
    steady: ClassVar[bool] = False
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
        low, high = min(-1.0, float(y.min())), max(1.0, float(y.max()))
        while weights @ self.derivative(high * ones, y) < 0 and high < FAR:
            high *= 2
        while weights @ self.derivative(low * ones, y) > 0 and low > -FAR:
            low *= 2
        for _ in range(HALVINGS):
            b = (low + high) / 2
            if not low < b < high:
                break
            if weights @ self.derivative(b * ones, y) < 0:
                low = b
            else:
                high = b
        return (low + high) / 2

    def constant_of_share(self, positive: Array) -> Array:
        """Return the best constants where the label +1 has these shares of the weight."""
        share = numpy(positive)
        labels = np.array([-1.0, 1.0])
        found = [self.constant(labels, np.array([1 - p, p])) for p in share.tolist()]
        return beside(np.array(found), positive)

    def slope_range(self, y: Array) -> SlopeRange:
        """Return the limits of dl/dz as z tends to -inf and to +inf; -inf or inf if none."""
        y = np.asarray(y, dtype=float)
        ends = [slope_limit(self, y, sign) for sign in (-1.0, 1.0)]
        if np.isfinite(self.lipschitz):
            return SlopeRange(*ends)
        low, high = (np.where(np.abs(end) > ENDLESS, np.sign(end) * np.inf, end) for end in ends)
        return SlopeRange(low, high)

    def score_at(self, slope: Array, y: Array, room: tuple[Array, Array] | None = None) -> Array:
        """Return a z with dl/dz = slope, by bisection; far out where there is none.

        ``room`` may hold the distances of the slope to the ends of its range, of which the slope
        itself says little near an end; a formula can use them.
        """
        low, high = np.full(np.shape(slope), -1.0), np.full(np.shape(slope), 1.0)
        for _ in range(DOUBLINGS_TO_FAR):
            short, shy = self.derivative(low, y) > slope, self.derivative(high, y) < slope
            if not (short | shy).any():
                break
            low, high = np.where(short, 2 * low, low), np.where(shy, 2 * high, high)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = self.derivative(middle, y) < slope
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return sup_z a z - l(z, y); here by bisection on the derivative, +inf off its range."""
        a, y = np.broadcast_arrays(np.asarray(a, dtype=float), y)
        z = self.score_at(a, y)
        low, high = self.slope_range(y)
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
