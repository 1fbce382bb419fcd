r"""The worst-case risk of residuals r and of a norm w = ||theta||, as rows of a saddle problem.

The loss of a row is :math:`\max_{lo \le \alpha \le hi} \alpha r - \varphi(\alpha)` (``Curve``), a
norm gives the rows of its penalty (``PenaltyNorm``), and the risk has one of three forms:

* ``Linear``: E l(r) + rate w, with rate 0 at delta = 0;
* ``Root``: (sqrt(E r^2) + rate w)^2/(2 kappa), with r_+ for r if lo = 0;
* ``Joint``: min over nu of rate w^2/(2 nu) + E max over alpha of alpha r - (kappa - nu) alpha^2/2.

Where targets move at a price, :math:`\sqrt{w^2 + still^2}` takes the place of w at order 2, and
:math:`\max(w, still)` at order 1 (``Linear.above``). Each form states its rows, its risk at a
point, and the dual value of slopes alpha.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from ...costs import Cost
from ...losses import Loss
from ...losses.base import Array
from .saddle import Block, Line, Scalar, at_least_zero

#: Curvatures below this share of the largest are lost in rounding; the barrier rules there.
FLAT = float(np.finfo(float).eps)
#: Where nu and e start, relative to kappa: inside of nu <= kappa + e.
FIRST_NU = 0.5
FIRST_E = 0.1


@dataclass(frozen=True)
class Pieces:
    """A piecewise quadratic loss, phi = kappa alpha^2/2 on [lo, hi]."""

    lo: float
    hi: float
    kappa: float
    conjugate: None = None

    def attained(self, r: Array, k: float) -> Array:
        """Return the alpha in [lo, hi] that maximises alpha r - k alpha^2/2, k >= 0."""
        if k > 0:
            return np.clip(r / k, self.lo, self.hi)
        return np.where(r > 0, self.hi, np.where(r < 0, self.lo, 0.0))

    def at_curvature(self, r: Array, k: float) -> Array:
        """Return max over alpha in [lo, hi] of alpha r - k alpha^2/2; inf if it has no bound."""
        if k <= 0 and np.isinf(max(-self.lo, self.hi)):
            return np.full_like(r, np.inf)
        alpha = self.attained(r, k)
        return alpha * r - k * alpha**2 / 2

    def loss(self, r: Array) -> Array:
        """Return the loss of every row."""
        return self.at_curvature(r, self.kappa)

    def phi(self, alpha: Array) -> Array:
        """Return kappa alpha^2/2."""
        return self.kappa * alpha**2 / 2

    def slope_unit(self, unit: float) -> float:
        """Return the largest slope, or unit/kappa if that is less."""
        largest = max(-self.lo, self.hi)
        return min(largest, unit / self.kappa) if self.kappa > 0 else largest

    def rescaled(self, unit: float, slope: float) -> Pieces:
        """Return the loss over unit * slope, of residuals over ``unit``."""
        return Pieces(self.lo / slope, self.hi / slope, self.kappa * slope / unit)


@dataclass(frozen=True, eq=False)
class Smooth:
    """A smooth Lipschitz loss of the score, r = z: phi is its conjugate.

    Residuals are scores over ``unit``, alpha is dl/dz over ``slope``.
    """

    source: Loss
    y: Array
    lo: Array
    hi: Array
    unit: float = 1.0
    slope: float = 1.0
    kappa: float = 0.0

    def conjugate(self, alpha: Array, slack: Array) -> tuple[Array, Array]:
        """Return the score z at which dl/dz = alpha, and dz/dalpha."""
        room = (self.slope * slack[1], self.slope * slack[0])
        z = self.source.score_at(self.slope * alpha, self.y, room)
        curvature = np.maximum(self.source.curvature(z, self.y), FLAT * self.source.smoothness)
        return z / self.unit, self.slope / (self.unit * curvature)

    def loss(self, r: Array) -> Array:
        """Return the loss of every row."""
        return self.source.value(self.unit * r, self.y) / (self.unit * self.slope)

    def phi(self, alpha: Array) -> Array:
        """Return the conjugate of every row."""
        return self.source.conjugate(self.slope * alpha, self.y) / (self.unit * self.slope)

    def slope_unit(self, unit: float) -> float:
        """Return the largest slope."""
        return float(self.source.lipschitz)

    def rescaled(self, unit: float, slope: float) -> Smooth:
        """Return the loss over unit * slope, of residuals over ``unit``."""
        return replace(
            self,
            lo=self.lo / slope,
            hi=self.hi / slope,
            unit=self.unit * unit,
            slope=self.slope * slope,
        )


#: A convex loss of the residual r, by its slopes alpha in [lo, hi] and their convex phi(alpha).
Curve = Pieces | Smooth


class Penalty(NamedTuple):
    """Scalars and blocks of rows; a scalar g that is maximised over comes last.

    ``bound`` is the scalar t whose product with g is subtracted, if any.
    """

    scalars: tuple[Scalar, ...]
    blocks: tuple[Block, ...]
    bound: Scalar | None = None


class PenaltyNorm:
    """The norm of theta that a ball penalises: the dual norm of its cost times ``unit``."""

    #: Whether the norm is the same in every orthonormal basis.
    rotation_invariant: ClassVar[bool] = False
    #: Whether a minimiser has zeros among its coefficients.
    leaves_zeros: ClassVar[bool] = False
    #: Whether the norm is known by cuts, added one at a time.
    by_cuts: ClassVar[bool] = False
    #: The unit of the norm of the cost.
    unit: float = 1.0

    def value(self, theta: Array) -> float:
        """Return ||theta||."""
        raise NotImplementedError

    def polar(self, g: Array) -> float:
        """Return max g'theta over ||theta|| <= 1, the norm of the cost."""
        raise NotImplementedError

    def linear(self, rate: float, d: int) -> Penalty:
        """Return the rows of rate ||theta||."""
        raise NotImplementedError

    def over(self, nu: Scalar, rate: float, d: int) -> Penalty:
        """Return the rows of rate ||theta||^2/(2 nu)."""
        raise NotImplementedError

    def at_least(self, still: float, rate: float, d: int) -> Penalty:
        """Return the rows of rate max(||theta||, still)."""
        raise NotImplementedError

    def within(self, g: Array, bound: float) -> list[Array]:
        """Return points of polar norm at most ``bound`` near g, the best first."""
        size = self.polar(g)
        return [g if size <= bound else g * (bound / size)]


class EuclideanNorm(PenaltyNorm):
    """||theta||_2, its own polar norm."""

    rotation_invariant = True

    def value(self, theta: Array) -> float:
        """Return ||theta||_2."""
        return float(np.linalg.norm(theta))

    def polar(self, g: Array) -> float:
        """Return ||g||_2."""
        return float(np.linalg.norm(g))

    def linear(self, rate: float, d: int) -> Penalty:
        """Return min over t of rate t/2 + rate ||theta||^2/(2t)."""
        t = Scalar(rate / 2, 1.0)
        square = self._square(t, rate, d)
        return Penalty((t,), (square, at_least_zero({t: 1.0}, first=rate / 2)))

    def over(self, nu: Scalar, rate: float, d: int) -> Penalty:
        """Return the sum of rate theta_j^2/(2 nu)."""
        return Penalty((), (self._square(nu, rate, d),))

    def _square(self, t: Scalar, rate: float, d: int) -> Block:
        """Return rate theta_j^2/(2t) = max over alpha of alpha theta_j - t alpha^2/(2 rate)."""
        return Block(d, sign=1.0, k={t: 1 / rate}, lo=-np.inf)


class SumNorm(PenaltyNorm):
    """||theta||_1, polar to the largest |g_j|."""

    leaves_zeros = True

    def value(self, theta: Array) -> float:
        """Return ||theta||_1."""
        return float(np.abs(theta).sum())

    def polar(self, g: Array) -> float:
        """Return the largest |g_j|."""
        return float(np.abs(g).max(initial=0.0))

    def linear(self, rate: float, d: int) -> Penalty:
        """Return the largest alpha'theta over |alpha_j| <= rate."""
        return Penalty((), (Block(d, sign=1.0, lo=-rate, hi=rate),))

    def over(self, nu: Scalar, rate: float, d: int) -> Penalty:
        """Return the largest alpha'theta - nu g^2/(2 rate) over g and |alpha_j| <= g."""
        g = Scalar(0.0, 1.0)
        return Penalty((g,), (Block(d, sign=1.0, lo=0.0, hi=0.0, breathing=1.0),))

    def at_least(self, still: float, rate: float, d: int) -> Penalty:
        """Return the largest rate t + alpha'theta - g t over g and |alpha_j| <= g, t >= still."""
        t, g = Scalar(rate, 1.0 + still), Scalar(0.0, rate)
        rows = Block(d, sign=1.0, lo=0.0, hi=0.0, breathing=1.0)
        return Penalty((t, g), (rows, at_least_zero({t: 1.0}, -still)), t)

    def within(self, g: Array, bound: float) -> list[Array]:
        """Return g clipped, which costs least, and g scaled, which stays in the range of Z'."""
        return [np.clip(g, -bound, bound), *super().within(g, bound)]


class FacedNorm(PenaltyNorm):
    """A norm as the largest of linear functions: t above its faces."""

    def linear(self, rate: float, d: int) -> Penalty:
        """Return rate t, t above the faces."""
        t = Scalar(rate, 1.0)
        return Penalty((t,), self.faces(t, rate, d))

    def over(self, nu: Scalar, rate: float, d: int) -> Penalty:
        """Return rate t^2/(2 nu) = max over alpha of alpha t - nu alpha^2/(2 rate)."""
        t = Scalar(0.0, 1.0)
        square = Block(r={t: 1.0}, k={nu: 1 / rate}, lo=-np.inf)
        return Penalty((t,), (*self.faces(t, 1.0, d), square))

    def at_least(self, still: float, rate: float, d: int) -> Penalty:
        """Return rate t, t above the faces and still."""
        t = Scalar(rate, 1.0 + still)
        return Penalty((t,), (*self.faces(t, rate, d), at_least_zero({t: 1.0}, -still)))

    def faces(self, t: Scalar, total: float, d: int) -> tuple[Block, ...]:
        """Return the rows of t >= ||theta||, whose multipliers start with the sum ``total``."""
        raise NotImplementedError


class MaxNorm(FacedNorm):
    """The largest |theta_j|, polar to ||g||_1."""

    def value(self, theta: Array) -> float:
        """Return the largest |theta_j|."""
        return float(np.abs(theta).max(initial=0.0))

    def polar(self, g: Array) -> float:
        """Return ||g||_1."""
        return float(np.abs(g).sum())

    def faces(self, t: Scalar, total: float, d: int) -> tuple[Block, ...]:
        """Return t >= theta_j and t >= -theta_j."""
        first = total / (2 * d)
        return tuple(Block(d, sign=sign, r={t: -1.0}, first=first) for sign in (1.0, -1.0))


@dataclass(frozen=True, eq=False)
class CutNorm(FacedNorm):
    """The dual norm of any cost, times ``unit``: as rows its ``cuts`` <v, theta>, of shape (m, d).

    ``root`` (k, d) and ``centre`` add ||root (theta - centre)||^2/2, the curvature that cuts lack.
    """

    by_cuts = True

    cost: Cost
    cuts: Array
    root: Array
    centre: Array
    unit: float = 1.0

    @classmethod
    def of(cls, cost: Cost, d: int) -> CutNorm:
        """Return the norm without cuts, in units of the geometric mean of norms of unit vectors."""
        unit = float(np.exp(np.log(cost.norm(np.eye(d))).mean()))
        return cls(cost, np.empty((0, d)), np.empty((0, d)), np.zeros(d), unit)

    def value(self, theta: Array) -> float:
        """Return the dual norm."""
        return float(self.cost.dual_norm(theta)) * self.unit

    def polar(self, g: Array) -> float:
        """Return the norm of the cost."""
        return float(self.cost.norm(g)) / self.unit

    def direction(self, points: Array) -> Array:
        """Return a subgradient of the dual norm at every point."""
        return np.asarray(self.cost.direction(points) * self.unit)

    def faces(self, t: Scalar, total: float, d: int) -> tuple[Block, ...]:
        """Return t >= <v, theta> for every cut, and the curvature."""
        count = len(self.cuts)
        cuts = Block(count, matrix=self.cuts, r={t: -1.0}, first=total / count)
        if len(self.root) == 0:
            return (cuts,)
        h = -self.root @ self.centre
        return (cuts, Block(len(self.root), matrix=self.root, k0=1.0, lo=-np.inf, h=h))


@dataclass(frozen=True, eq=False)
class RotatedNorm(PenaltyNorm):
    """A norm of Q theta, Q orthogonal."""

    base: PenaltyNorm
    Q: Array

    def value(self, theta: Array) -> float:
        """Return ||Q theta||."""
        return self.base.value(self.Q @ theta)

    def polar(self, g: Array) -> float:
        """Return the polar norm of Q g."""
        return self.base.polar(self.Q @ g)

    def linear(self, rate: float, d: int) -> Penalty:
        """Return the rows of the norm in rotated coordinates."""
        return self._rotated(self.base.linear(rate, d))

    def over(self, nu: Scalar, rate: float, d: int) -> Penalty:
        """Return the rows of the squared norm in rotated coordinates."""
        return self._rotated(self.base.over(nu, rate, d))

    def at_least(self, still: float, rate: float, d: int) -> Penalty:
        """Return the rows of the larger of norm and still in rotated coordinates."""
        return self._rotated(self.base.at_least(still, rate, d))

    def _rotated(self, penalty: Penalty) -> Penalty:
        blocks = [
            block if block.sign == 0 else replace(block, sign=0.0, matrix=block.sign * self.Q)
            for block in penalty.blocks
        ]
        return penalty._replace(blocks=tuple(blocks))

    def within(self, g: Array, bound: float) -> list[Array]:
        """Return the points of the norm itself, rotated back."""
        return [self.Q.T @ point for point in self.base.within(self.Q @ g, bound)]


@dataclass(frozen=True, eq=False)
class Parts:
    """What a form adds to the sample rows, and the rows and scalars of its own.

    ``r`` and ``k`` are the coefficients of the scalars in the residuals and curvatures of all
    sample rows, ``k0`` the rest of their curvature; ``nu`` is the scalar that squares of theta are
    divided by, if any. The scalars and blocks of ``penalty`` come last and first.
    """

    penalty: Penalty
    scalars: tuple[Scalar, ...] = ()
    blocks: tuple[Block, ...] = ()
    r: Line = field(default_factory=dict)
    k: Line = field(default_factory=dict)
    k0: float = 0.0
    nu: Scalar | None = None


@dataclass(frozen=True, eq=False)
class Slopes:
    """Slopes alpha of rows, residuals c at zero, and ``polar``, the norm of Z'(pi o alpha)."""

    alpha: Array
    pi: Array
    c: Array
    polar: float

    @property
    def gain(self) -> float:
        """E alpha c."""
        return float(self.pi @ (self.alpha * self.c))

    @property
    def mean(self) -> float:
        """E alpha."""
        return float(self.pi @ self.alpha)

    @property
    def square(self) -> float:
        """E alpha^2."""
        return float(self.pi @ self.alpha**2)


class Multiple(NamedTuple):
    """The factor that makes slopes feasible, and the dual value there."""

    factor: float
    value: float


def _ratio(a: float, b: float) -> float:
    return float(a / b) if b > 0 else np.inf


@dataclass(frozen=True, eq=False)
class Form:
    """A worst-case risk of a loss with a penalty of some rate, of sqrt(w^2 + still^2) for w."""

    curve: Curve
    rate: float
    still: float = 0.0

    #: Whether nu = w^2/(2 lam) is one of the scalars.
    has_nu: ClassVar[bool] = False

    @property
    def roundings(self) -> float:
        """How many rounding errors of Z'(pi o alpha) a bound may charge instead of removing."""
        return 1.0

    @property
    def worth(self) -> float:
        """The size of a column of Z that just pays its penalty."""
        return self.rate

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the form as rows."""
        raise NotImplementedError

    def penalised(self, norm: PenaltyNorm, d: int, parts: Parts) -> Parts:
        """Return parts with the rows of rate sqrt(w^2 + still^2) in the place of their penalty."""
        if self.still == 0:
            return replace(parts, penalty=norm.linear(self.rate, d))
        # min over s of rate s/2 + rate (w^2 + still^2)/(2s)
        s = Scalar(self.rate / 2, 1.0)
        sign = at_least_zero({s: 1.0}, first=self.rate / 2)
        return replace(
            parts,
            penalty=norm.over(s, self.rate, d),
            scalars=(*parts.scalars, s),
            blocks=(*parts.blocks, sign, self._still_row(s)),
            nu=s,
        )

    def _still_row(self, nu: Scalar) -> Block:
        """Return rate still^2/(2 nu) = max over alpha of alpha still - nu alpha^2/(2 rate)."""
        return Block(h=self.still, k={nu: 1 / self.rate}, lo=-np.inf)

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the worst-case risk, at nu (where the form has it) an upper bound."""
        raise NotImplementedError

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return a multiple of slopes that is feasible, and its dual value."""
        raise NotImplementedError

    def standing(self, polar: float) -> float:
        """Return what still adds to a dual value at this polar norm: a^2 + polar^2 <= rate^2."""
        return self.still * float(np.sqrt(max(self.rate**2 - polar**2, 0.0)))

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return polar norms of Z'(pi o alpha) that the dual allows, the best first."""
        return (self.rate,)

    def charged(self, value: float, charge: float) -> float:
        """Return a dual value less the change ``charge`` of E alpha c."""
        return value - charge

    def slope_unit(self, unit: float) -> float:
        """Return the usual size of alpha at residuals of size ``unit``."""
        return self.curve.slope_unit(unit)

    def steepness(self, risk: float) -> float:
        """Return the slope of the loss at the worst case per unit of alpha."""
        return 1.0

    def rescaled(self, unit: float, slope: float, size: float) -> Form:
        """Return the form in units of residuals, of slopes, and of columns of Z."""
        return replace(
            self,
            curve=self.curve.rescaled(unit, slope),
            rate=self.rate / (size * slope),
            still=self.still * size / unit,
        )


@dataclass(frozen=True, eq=False)
class Linear(Form):
    """E l(r) + rate w; without a rate E l(r), the plain risk of delta = 0.

    Where ``above``, max(w, still) takes the place of w, else sqrt(w^2 + still^2).
    """

    above: bool = False

    @property
    def roundings(self) -> float:
        """Without a rate Z'(pi o alpha) must be 0, and errors accumulate over the rows."""
        return 1.0 if self.rate > 0 else 1e4

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the rows of the norm."""
        if self.above:
            penalty = norm.at_least(self.still, self.rate, d)
            return Parts(penalty, k0=self.curve.kappa, nu=penalty.bound)
        own = Parts(Penalty((), ()), k0=self.curve.kappa)
        return self.penalised(norm, d, own) if self.rate > 0 else own

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the mean loss plus rate w."""
        gain = max(w, self.still) if self.above else float(np.hypot(w, self.still))
        return float(pi @ self.curve.loss(r)) + self.rate * gain

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return E alpha c - phi(alpha), shrunk to the polar norm ``rate``."""
        factor = min(1.0, _ratio(self.rate, slopes.polar))
        phi = float(slopes.pi @ self.curve.phi(factor * slopes.alpha))
        polar = factor * slopes.polar
        rest = max(self.rate - polar, 0.0)
        standing = self.still * rest if self.above else self.standing(polar)
        return Multiple(factor, factor * slopes.gain - phi + standing)


@dataclass(frozen=True, eq=False)
class Root(Form):
    """(sqrt(E r^2) + rate w)^2/(2 kappa); its rows are those of the root."""

    curve: Pieces

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return sqrt(E r^2) = min over sigma of sigma/2 + E r^2/(2 sigma) and rate w."""
        sigma = Scalar(0.5, 1.0)
        sign = at_least_zero({sigma: 1.0})
        own = Parts(Penalty((), ()), (sigma,), (sign,), k={sigma: 1.0})
        return self.penalised(norm, d, own)

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return (sqrt(E r^2) + rate w)^2/(2 kappa)."""
        active = r if self.curve.lo < 0 else np.maximum(r, 0.0)
        root = float(np.sqrt(pi @ active**2)) + self.rate * float(np.hypot(w, self.still))
        return root**2 / (2 * self.curve.kappa)

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return E alpha c, squared over 2 kappa, with E alpha^2 <= 1 and polar <= rate."""
        gain = max(slopes.gain, 0.0)
        # the best multiple, where still and theta share the rate
        share = _ratio(gain, float(np.hypot(gain, self.still * slopes.polar)))
        best = _ratio(self.rate, slopes.polar) * min(share, 1.0)
        factor = min(best, _ratio(1.0, np.sqrt(slopes.square)))
        root = factor * slopes.gain + self.standing(factor * slopes.polar)
        return Multiple(factor, max(root, 0.0) ** 2 / (2 * self.curve.kappa))

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return rate sqrt(E alpha^2)."""
        return (self.rate * float(np.sqrt(slopes.square)),)

    def charged(self, value: float, charge: float) -> float:
        """Return the value, a square over 2 kappa, at a root less ``charge``."""
        return value - 2 * charge * float(np.sqrt(value / (2 * self.curve.kappa)))

    def slope_unit(self, unit: float) -> float:
        """Return 1, as E alpha^2 = 1."""
        return 1.0

    def steepness(self, risk: float) -> float:
        """Return sqrt(2 risk/kappa): the worst residual is alpha sqrt(2 kappa risk)."""
        return float(np.sqrt(2 * risk / self.curve.kappa))


@dataclass(frozen=True, eq=False)
class Joint(Form):
    r"""min over nu of rate w^2/(2 nu) + E max over alpha of alpha r - (kappa - nu) alpha^2/2.

    Past nu = kappa the maximum is at an end of [lo, hi]: with e = nu - kappa + q >= 0, q >= 0,

    .. math:: \alpha\,(r + e\,(lo + hi)/2) - e\,lo\,hi/2 - q\,\alpha^2/2

    is the same there and concave, and the least q is the best. An infinite slope leaves e = 0,
    kappa = 0 leaves q = 0.
    """

    has_nu = True

    curve: Pieces

    @property
    def worth(self) -> float:
        """sqrt(rate)."""
        return float(np.sqrt(self.rate))

    @property
    def _mid(self) -> float:
        return (self.curve.lo + self.curve.hi) / 2

    @property
    def _bend(self) -> float:
        return -self.curve.lo * self.curve.hi / 2

    @property
    def _bounded(self) -> bool:
        return bool(np.isfinite(self._mid))

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the rows, e in units of the largest slope squared."""
        kappa = self.curve.kappa
        r: Line = {}
        k: Line = {}
        if kappa == 0:
            nu = Scalar(self._bend, 1.0)
            scalars = [nu]
            signs = [at_least_zero({nu: 1.0})]
            r = {nu: self._mid}
        else:
            nu = Scalar(0.0, FIRST_NU * kappa)
            scalars = [nu]
            k = {nu: -1.0}
            signs = [at_least_zero({nu: 1.0})]
            if self._bounded:
                unit = max(-self.curve.lo, self.curve.hi) ** -2
                e = Scalar(self._bend * unit, FIRST_E * kappa)
                scalars.append(e)
                signs.append(at_least_zero({e: 1.0}))
                r = {e: self._mid * unit}
                k = {nu: -1.0, e: unit}
            signs.append(at_least_zero(k, kappa))
        if self.still > 0:
            signs.append(self._still_row(nu))
        penalty = norm.over(nu, self.rate, d)
        return Parts(penalty, tuple(scalars), tuple(signs), r, k, kappa, nu)

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the risk at nu, the mean loss if nothing can move."""
        w = float(np.hypot(w, self.still))
        if w == 0:
            return float(pi @ self.curve.loss(r))
        rest = self.curve.kappa - nu
        if rest >= 0 or not self._bounded:
            rows = self.curve.at_curvature(r, rest)
        else:
            rows = self.curve.at_curvature(r - rest * self._mid, 0.0) - rest * self._bend
        return float(pi @ rows) + self.rate * w**2 / (2 * nu)

    def feasible(self, slopes: Slopes) -> Multiple:
        r"""Return the best multiple s of the slopes.

        A row may split its mass between lo, hi and inside: with its second moment
        :math:`E\alpha^2 \le A \le E[(lo + hi)\alpha - lo\,hi]` and polar^2 <= rate A the value is
        :math:`E\alpha c - \kappa A/2`, at s times the slopes :math:`s\,gain - \kappa s^2 A/2`.
        """
        least = max(slopes.square, slopes.polar**2 / self.rate)
        best = _ratio(slopes.gain, self.curve.kappa * least)
        largest = np.inf
        if self._bounded:
            # the larger root s of s^2 least = s (lo + hi) E alpha - lo hi
            half = self._mid * slopes.mean
            largest = _ratio(float(half + np.sqrt(half**2 + 2 * least * self._bend)), least)
        s = max(min(1.0, best, largest), 0.0)
        if self.still > 0:
            return max((self._with_still(t, slopes) for t in (1.0, s)), key=lambda m: m.value)
        return Multiple(s, s * slopes.gain - self.curve.kappa * s**2 * least / 2)

    def _with_still(self, s: float, slopes: Slopes) -> Multiple:
        """Return s gain + still sqrt(rate A - s^2 polar^2) - kappa A/2 at the best A."""
        kappa = self.curve.kappa
        polar = s * slopes.polar
        least = max(s**2 * slopes.square, polar**2 / self.rate)
        most = 2 * (self._mid * s * slopes.mean + self._bend) if self._bounded else np.inf
        if least > most:
            return Multiple(0.0, 0.0)
        A = most
        if kappa > 0:
            best = (polar**2 + (self.still * self.rate / kappa) ** 2) / self.rate
            A = min(most, max(least, best))
        room = max(self.rate * A - polar**2, 0.0)
        return Multiple(s, s * slopes.gain + self.still * float(np.sqrt(room)) - kappa * A / 2)

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return sqrt(rate A), A at its least (if kappa > 0) and, for nu >= kappa, its largest."""
        least = float(np.sqrt(self.rate * slopes.square))
        if not self._bounded:
            return (least,)
        most = float(np.sqrt(2 * self.rate * max(self._mid * slopes.mean + self._bend, 0.0)))
        return (least, most) if self.curve.kappa > 0 else (most,)

    def rescaled(self, unit: float, slope: float, size: float) -> Joint:
        """Return the form in units of residuals, of slopes, and of columns of Z."""
        curve = self.curve.rescaled(unit, slope)
        return Joint(curve, self.rate / size**2, self.still * size / unit)
