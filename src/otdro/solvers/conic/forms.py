r"""The worst-case risk of residuals r and w = ||theta|| in the forms that it takes.

* ``Plain`` (delta = 0): E l(r);
* ``Linear``: E l(r) + rate w;
* ``Root``: (sqrt(E r^2) + rate w)^2/(2 kappa), with r_+ for r if lo = 0;
* ``Joint``: min over nu of rate w^2/(2 nu) + E max over alpha of alpha r - (kappa - nu) alpha^2/2.

Each states its rows, its risk at a point, and the dual value of slopes alpha.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from ...losses.base import Array
from .blocks import Block, Line, Scalar, at_least_zero
from .curves import Curve, Pieces
from .norms import Penalty, PenaltyNorm

#: Where nu and e start, relative to kappa: inside of nu <= kappa + e.
FIRST_NU, FIRST_E = 0.5, 0.1


@dataclass(frozen=True, eq=False)
class Parts:
    """What a form adds to the sample rows, and the rows and scalars of its own.

    ``r`` and ``k`` are the coefficients of the scalars in the residuals and curvatures of all
    sample rows, ``k0`` the rest of their curvature; ``nu`` is the scalar of that name. The
    scalars of ``penalty`` come last.
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
    """A worst-case risk of a loss with a penalty of some rate."""

    curve: Curve
    rate: float

    #: How many rounding errors of Z'(pi o alpha) a bound may charge instead of removing.
    roundings: ClassVar[float] = 1.0

    @property
    def worth(self) -> float:
        """The size of a column of Z that just pays its penalty."""
        return self.rate

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the form as rows."""
        raise NotImplementedError

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the worst-case risk, at nu (where the form has it) an upper bound."""
        raise NotImplementedError

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return a multiple of slopes that is feasible, and its dual value."""
        raise NotImplementedError

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return polar norms of Z'(pi o alpha) that the dual allows, the best first."""
        raise NotImplementedError

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
        rate = self.rate / (size * slope)
        return replace(self, curve=self.curve.rescaled(unit, slope), rate=rate)


class Plain(Form):
    """E l(r)."""

    # Z'(pi o alpha) must be 0, and errors accumulate over the rows
    roundings = 1e4

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return no rows but those of the sample."""
        return Parts(Penalty((), ()), k0=self.curve.kappa)

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the mean loss."""
        return float(pi @ self.curve.loss(r))

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return E alpha c - phi(alpha), if Z'(pi o alpha) = 0."""
        if slopes.polar > 0:
            return Multiple(0.0, 0.0)
        return Multiple(1.0, slopes.gain - float(slopes.pi @ self.curve.phi(slopes.alpha)))

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return 0."""
        return (0.0,)


class Linear(Form):
    """E l(r) + rate w."""

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the rows of the norm."""
        return Parts(norm.linear(self.rate, d), k0=self.curve.kappa)

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the mean loss plus rate w."""
        return float(pi @ self.curve.loss(r)) + self.rate * w

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return E alpha c - phi(alpha), shrunk to the polar norm ``rate``."""
        factor = min(1.0, _ratio(self.rate, slopes.polar))
        phi = float(slopes.pi @ self.curve.phi(factor * slopes.alpha))
        return Multiple(factor, factor * slopes.gain - phi)

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return the rate."""
        return (self.rate,)


@dataclass(frozen=True, eq=False)
class Root(Form):
    """(sqrt(E r^2) + rate w)^2/(2 kappa); its rows are those of the root."""

    curve: Pieces

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return sqrt(E r^2) = min over sigma of sigma/2 + E r^2/(2 sigma) and rate w."""
        sigma = Scalar(0.5, 1.0)
        sign = at_least_zero({sigma: 1.0})
        return Parts(norm.linear(self.rate, d), (sigma,), (sign,), k={sigma: 1.0})

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return (sqrt(E r^2) + rate w)^2/(2 kappa)."""
        active = r if self.curve.lo < 0 else np.maximum(r, 0.0)
        return (float(np.sqrt(pi @ active**2)) + self.rate * w) ** 2 / (2 * self.curve.kappa)

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return E alpha c, squared over 2 kappa, with E alpha^2 <= 1 and polar <= rate."""
        factor = min(_ratio(self.rate, slopes.polar), _ratio(1.0, np.sqrt(slopes.square)))
        return Multiple(factor, max(factor * slopes.gain, 0.0) ** 2 / (2 * self.curve.kappa))

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
        if kappa == 0:
            nu = Scalar(self._bend, 1.0)
            signs = [at_least_zero({nu: 1.0})]
            return self._parts(norm, d, [nu], signs, r={nu: self._mid})
        nu = Scalar(0.0, FIRST_NU * kappa)
        if not self._bounded:
            signs = [at_least_zero({nu: 1.0}), at_least_zero({nu: -1.0}, kappa)]
            return self._parts(norm, d, [nu], signs, k={nu: -1.0})
        unit = max(-self.curve.lo, self.curve.hi) ** -2
        e = Scalar(self._bend * unit, FIRST_E * kappa)
        q = {nu: -1.0, e: unit}
        signs = [at_least_zero({nu: 1.0}), at_least_zero({e: 1.0}), at_least_zero(q, kappa)]
        return self._parts(norm, d, [nu, e], signs, r={e: self._mid * unit}, k=q)

    def _parts(
        self,
        norm: PenaltyNorm,
        d: int,
        scalars: list[Scalar],
        signs: list[Block],
        **coefficients: Line,
    ) -> Parts:
        """Return the parts over scalars of which nu is the first, with ``r`` and ``k`` as given."""
        nu = scalars[0]
        return Parts(
            penalty=norm.over(nu, self.rate, d),
            scalars=tuple(scalars),
            blocks=tuple(signs),
            k0=self.curve.kappa,
            nu=nu,
            **coefficients,
        )

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the risk at nu, the mean loss if w = 0."""
        if w == 0:
            return float(pi @ self.curve.loss(r))
        return float(pi @ self._rows(r, self.curve.kappa - nu)) + self.rate * w**2 / (2 * nu)

    def _rows(self, r: Array, rest: float) -> Array:
        """Return max over alpha of alpha r - rest alpha^2/2."""
        if rest >= 0 or not self._bounded:
            return self.curve.at_curvature(r, rest)
        return self.curve.at_curvature(r - rest * self._mid, 0.0) - rest * self._bend

    def feasible(self, slopes: Slopes) -> Multiple:
        r"""Return the best multiple s of the slopes.

        A row may split its mass between lo, hi and inside: with its second moment
        :math:`E\alpha^2 \le A \le E[(lo + hi)\alpha - lo\,hi]` and polar^2 <= rate A the value is
        :math:`E\alpha c - \kappa A/2`, at s times the slopes :math:`s\,gain - \kappa s^2 A/2`.
        """
        least = max(slopes.square, slopes.polar**2 / self.rate)
        best = _ratio(slopes.gain, self.curve.kappa * least)
        factor = max(min(1.0, best, self._largest(least, slopes.mean)), 0.0)
        return Multiple(factor, factor * slopes.gain - self.curve.kappa * factor**2 * least / 2)

    def _largest(self, least: float, mean: float) -> float:
        """Return the larger root s of s^2 least = s (lo + hi) E alpha - lo hi."""
        if not self._bounded:
            return np.inf
        half = self._mid * mean
        return _ratio(float(half + np.sqrt(half**2 + 2 * least * self._bend)), least)

    def radii(self, slopes: Slopes) -> tuple[float, ...]:
        """Return sqrt(rate A), A at its least (if kappa > 0) and, for nu >= kappa, its largest."""
        least = float(np.sqrt(self.rate * slopes.square))
        if not self._bounded:
            return (least,)
        most = float(np.sqrt(2 * self.rate * max(self._mid * slopes.mean + self._bend, 0.0)))
        return (least, most) if self.curve.kappa > 0 else (most,)

    def rescaled(self, unit: float, slope: float, size: float) -> Joint:
        """Return the form in units of residuals, of slopes, and of columns of Z."""
        return Joint(self.curve.rescaled(unit, slope), self.rate / size**2)
