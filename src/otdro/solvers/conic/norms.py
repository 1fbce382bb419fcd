r"""The penalty on the dual norm of theta as rows: rate ||theta||, or rate ||theta||^2/(2 nu)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from ...costs import Cost
from ...losses.base import Array
from .blocks import Block, Scalar, at_least_zero


class Penalty(NamedTuple):
    """Scalars and blocks of rows; a scalar that is maximised over comes last."""

    scalars: tuple[Scalar, ...]
    blocks: tuple[Block, ...]


class PenaltyNorm:
    """The norm of theta that a ball penalises: the dual norm of its cost times ``unit``."""

    #: Whether the norm is the same in every orthonormal basis.
    rotation_invariant: ClassVar[bool] = False
    #: Whether a minimiser has zeros among its coefficients.
    leaves_zeros: ClassVar[bool] = False

    @property
    def oracle(self) -> UnitCost | None:
        """What gives the cuts of a norm that has no rows of its own, else None."""
        return None

    @property
    def unit(self) -> float:
        """The unit of the norm of the cost."""
        return 1.0

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
class UnitCost:
    """The norm of a cost over ``unit``."""

    cost: Cost
    unit: float

    @classmethod
    def of(cls, cost: Cost, d: int) -> UnitCost:
        """Return a cost over the geometric mean of the norms of unit vectors."""
        return cls(cost, float(np.exp(np.log(cost.norm(np.eye(d))).mean())))

    def norm(self, v: Array) -> Array:
        """Return ||v||/unit."""
        return self.cost.norm(v) / self.unit

    def dual_norm(self, w: Array) -> Array:
        """Return the dual norm times unit."""
        return self.cost.dual_norm(w) * self.unit

    def direction(self, w: Array) -> Array:
        """Return a subgradient of the dual norm."""
        return self.cost.direction(w) * self.unit


@dataclass(frozen=True, eq=False)
class CutNorm(FacedNorm):
    """The dual norm of any cost: as rows its cuts <v, theta> so far, of shape (m, d).

    ``root`` (k, d) and ``centre`` add ||root (theta - centre)||^2/2, the curvature that cuts lack.
    """

    cost: UnitCost
    cuts: Array
    root: Array
    centre: Array

    @property
    def oracle(self) -> UnitCost:
        """The cost, by ``dual_norm`` and ``direction``."""
        return self.cost

    @property
    def unit(self) -> float:
        """The unit of the norm of the cost."""
        return self.cost.unit

    def value(self, theta: Array) -> float:
        """Return the dual norm."""
        return float(self.cost.dual_norm(theta))

    def polar(self, g: Array) -> float:
        """Return the norm of the cost."""
        return float(self.cost.norm(g))

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

    def _rotated(self, penalty: Penalty) -> Penalty:
        blocks = [
            block if block.sign == 0 else replace(block, sign=0.0, matrix=block.sign * self.Q)
            for block in penalty.blocks
        ]
        return Penalty(penalty.scalars, tuple(blocks))

    def within(self, g: Array, bound: float) -> list[Array]:
        """Return the points of the norm itself, rotated back."""
        return [self.Q.T @ point for point in self.base.within(self.Q @ g, bound)]
