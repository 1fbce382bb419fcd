r"""Saddle problems of rows, and Newton's equations along their central path.

Every convex problem of the interior-point method reads

.. math:: \min_x \max_{lo \le \alpha \le hi}\; c'\xi + \sum_i w_i\,[\alpha_i r_i(x)
          - \varphi_i(\alpha_i)], \qquad r = h - A\theta + R\xi,

with x = (theta, xi), xi a few scalars (intercept, epigraphs, nu), and a convex phi: mostly
:math:`k_i(x)\,\alpha_i^2/2` with :math:`k = k_0 + K\xi \ge 0`, else the conjugate of a smooth loss.
Sample rows have A = diag(o) Z; a norm of theta and the sign constraints on xi are head rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dgeqrf, dpotrf, dpotrs, dtrtrs

from ...arrays import TINY
from ...duality import ROUNDING
from ...losses.base import Array
from ..predictor_corrector import SHORT_OF, longest

#: The least size of a column of a factor of T, relative to the largest, by which it is scaled.
LEAST_COLUMN = 1e-20
#: By what the shift of a scaled T grows that does not factor.
SHIFT_GROWTH = 100.0
#: Rows of a unit matrix times this are added to a QR: they settle the directions that rows leave
#: free; with a penalty, however small, the penalty does.
LIFT = 1e-8
LIFT_PENALISED = 1e-14
#: Rows of a QR at a time, at least.
BLOCK_ROWS = 256
#: Steps of iterative refinement.
REFINEMENTS = 2
#: A step that leaves pairs behind is shortened by this factor.
SHORTER = 0.8
#: A corrected step below this is worse than a centring one.
TOO_SHORT = 0.1
#: A pair whose product is below this share of the mean is off the central path.
STRAYED = 1e-6
#: Residuals below minus this of a sign constraint start it feasible.
FEASIBLE = 1e-2


class Map(Protocol):
    """The matrix A of a group of rows, by its products."""

    def scores(self, theta: Array) -> Array:
        """Return A theta."""

    def adjoint(self, u: Array) -> Array:
        """Return A'u for a vector or columns."""

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A."""

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""


#: phi' and phi'' at the multipliers alpha of rows, whose distances to hi and lo are given.
Conjugate = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a saddle problem, as they are before and after every step.

    ``share`` weighs the barrier: p (hi - alpha) = s (alpha - lo) = share * mu on the path, p and s
    the prices of alpha <= hi and alpha >= lo. ``first`` is where alpha - lo starts if hi is
    infinite. ``outlying`` >= 1 is how many times larger than is usual a row is; its multiplier
    starts that much nearer to 0, as it must end. ``breathing`` marks rows whose box is [-g, g],
    g the last scalar of xi, maximised over as alpha is. ``conjugate`` gives phi' and phi'' where
    phi is not k alpha^2/2.
    """

    map: Map
    w: Array
    lo: Array
    hi: Array
    h: Array
    R: Array
    K: Array
    k0: Array | float = 0.0
    share: float = 1.0
    first: Array | float = 1.0
    outlying: Array | float = 1.0
    breathing: Array | None = None
    conjugate: Conjugate | None = None

    @cached_property
    def ends(self) -> Array:
        """1 at the finite ends, hi then lo; at an infinite one the slack stays 1, its price 0."""
        return np.stack([np.isfinite(self.hi), np.isfinite(self.lo)]).astype(float)

    @cached_property
    def barrier(self) -> Array:
        """The products p E and s F at mu = 1."""
        return np.asarray(self.share * self.ends)

    @cached_property
    def scalars(self) -> Array:
        """The places of the scalars of xi that the rows depend on."""
        used = np.abs(self.R).sum(axis=0) + np.abs(self.K).sum(axis=0)
        if self.breathing is not None:
            used[-1] = 1.0
        return np.flatnonzero(used)

    @cached_property
    def count(self) -> float:
        """The weighted sum of the products at mu = 1."""
        return self.total(self.barrier)

    @cached_property
    def free(self) -> Array:
        """The weights of rows without a box, 0 for the others."""
        return np.asarray(self.w * ~self.ends.any(axis=0))

    def total(self, products: Array) -> float:
        """Return the sum of w (p E + s F)."""
        return float((products @ self.w).sum())

    def residual(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """Return r and the curvature k at (theta, xi)."""
        return self.h - self.map.scores(theta) + self.R @ xi, self.k0 + self.K @ xi

    def begin(self, theta: Array, xi: Array) -> RowPoint:
        """Return alpha inside its box with p - s = r - k alpha if possible, both well above 0."""
        above, below = self.ends > 0
        one_sided = below & ~above
        low = np.where(below, self.lo, 0.0)
        high = np.where(above, self.hi, 0.0)
        # a box much wider than the unit of the slopes is one without ends
        room = np.where(one_sided, self.first, np.minimum((high - low) / 2, 1.0))
        top = np.where(one_sided, np.inf, high - room / self.outlying)
        alpha = np.clip(0.0, low + room / self.outlying, top)
        g = 0.0 if self.breathing is None else self.breathing * xi[-1]
        slack = np.stack([high + g - alpha, alpha - low + g])
        slack = np.where(self.ends > 0, slack, 1.0)
        r, k = self.residual(theta, xi)
        price = self._prices(r - k * alpha, slack, one_sided, np.where(one_sided, 1.0, room) + g)
        return RowPoint(self, r, k, alpha, slack, self.ends * price)

    def _prices(self, rest: Array, slack: Array, one_sided: Array, room: Array) -> Array:
        """Return p and s with products near ``room``, larger where p - s = r - k alpha is."""
        excess = np.stack([np.maximum(rest, 0.0), np.maximum(-rest, 0.0)])
        # the residual of an outlying row may be of any size, and says nothing yet
        price = room / slack + np.where(np.asarray(self.outlying) > 1, 0.0, excess)
        # one-sided rows: s = -r, so that sign constraints on xi hold along the whole path
        feasible = one_sided & (rest < -FEASIBLE)
        return np.stack([price[0], np.where(feasible, -rest, price[1])])


@dataclass(frozen=True, eq=False)
class RowPoint:
    """Residuals r, curvatures k and multipliers alpha of rows, with their ``slack`` and ``price``.

    ``slack`` holds E = hi - alpha and F = alpha - lo, kept beside alpha as hi - alpha loses its
    digits where alpha tends to hi; ``price`` their multipliers p and s.
    """

    rows: Rows
    r: Array
    k: Array
    alpha: Array
    slack: Array
    price: Array

    @property
    def products(self) -> Array:
        """The products p E and s F, 0 at infinite ends."""
        return np.asarray(self.slack * self.price)

    def linearised(self) -> LinearRows:
        """Return phi', D = dalpha/dr and V = -dr/dxi + alpha dk/dxi."""
        rows = self.rows
        P, S = steep = self.price / self.slack
        if rows.conjugate is None:
            first, second = self.k * self.alpha, self.k
        else:
            first, second = rows.conjugate(self.alpha, self.slack)
        V = self.alpha[:, None] * rows.K - rows.R
        if rows.breathing is not None:
            V[:, -1] = rows.breathing * (S - P)
        D = 1 / (second + P + S)
        return LinearRows(self, first, steep, D, rows.w * D, V)


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Rows around a point: ``bend`` is phi', ``steep`` holds p/E and s/F, D is dalpha/dr.

    ``mass`` is w D, V = -dr/dxi + alpha dk/dxi.

    Newton on r - phi' - p + s = 0, p E = up, s F = us leaves dalpha = D (rho - v'dx).
    """

    point: RowPoint
    bend: Array
    steep: Array
    D: Array
    mass: Array
    V: Array

    @property
    def rows(self) -> Rows:
        """The rows themselves."""
        return self.point.rows

    def aim(self, mu: float, last: RowStep | None = None) -> Aim:
        """Return the targets at mu, corrected by what the linearisation dropped of a ``last`` step.

        Mehrotra's correction: the products of steps.
        """
        target = mu * self.rows.barrier
        rho = self.point.r - self.bend
        if last is not None:
            target -= last.dprice * last.dslack
            rho = rho - last.dk * last.dalpha
        force = target / self.point.slack
        return Aim(force, rho - force[0] + force[1])

    def step(self, aim: Aim, dtheta: Array, dxi: Array) -> RowStep:
        """Return the Newton step of alpha, p and s that belongs to (dtheta, dxi)."""
        rows = self.rows
        slide = rows.map.scores(dtheta) + self.V @ dxi
        dalpha = self.D * (aim.rho - slide)
        dslack = rows.ends * dalpha
        np.negative(dslack[0], out=dslack[0])
        if rows.breathing is not None:
            dslack += rows.ends * (rows.breathing * dxi[-1])
        dprice = aim.force - self.point.price - self.steep * dslack
        return RowStep(self.point, slide, rows.K @ dxi, dalpha, dslack, dprice)


class Aim(NamedTuple):
    """The targets of p E and s F over the slack (``force``), and the row residual ``rho``."""

    force: Array
    rho: Array


@dataclass(frozen=True, eq=False)
class RowStep:
    """A step of the multipliers of rows from a point."""

    point: RowPoint
    slide: Array
    dk: Array
    dalpha: Array
    dslack: Array
    dprice: Array

    def longest(self) -> float:
        """Return the largest step to E, F, p, s >= 0."""
        # value and move are 0 where a side of the box is infinite
        return longest((self.point.slack, self.dslack), (self.point.price, self.dprice))

    def products(self, length: float) -> Array:
        """Return the products p E and s F after a share of the step, 0 at infinite ends."""
        slack = self.point.slack + length * self.dslack
        return np.asarray(slack * (self.point.price + length * self.dprice))

    def centred(self, length: float, mu: float, products: Array) -> bool:
        """Return whether a step leaves every product p E and s F above a fraction of its target,
        and rows without a box near r = k alpha."""
        x, rows = self.point, self.point.rows
        if (products < STRAYED * mu * rows.barrier).any():
            return False
        if not rows.free.any():
            return True
        r = x.r + length * (x.alpha * self.dk - self.slide)
        miss = r - (x.k + length * self.dk) * (x.alpha + length * self.dalpha)
        before = np.abs(x.r - x.k * x.alpha)
        allowed = 0.5 * np.abs(r) + (1 - 0.5 * length) * before
        return float(rows.free @ np.abs(miss)) <= float(rows.free @ allowed) + TINY

    def taken(self, length: float, theta: Array, xi: Array) -> RowPoint:
        """Return the point after a share of the step, at the new (theta, xi)."""
        x = self.point
        return RowPoint(
            x.rows,
            *x.rows.residual(theta, xi),
            x.alpha + length * self.dalpha,
            x.slack + length * self.dslack,
            x.price + length * self.dprice,
        )


@dataclass(frozen=True, eq=False)
class Scalar:
    """An entry of xi: its price in the objective, and where it starts."""

    cost: float
    start: float


#: Coefficients of some scalars.
Line = Mapping[Scalar, float]


@dataclass(frozen=True, eq=False)
class Block:
    r"""Rows max over alpha in [lo, hi] of alpha (h + a'theta + r'xi) - (k0 + k'xi) alpha^2/2.

    The vectors a are the rows of ``matrix``, or ``sign`` times the unit vectors; a block of count 1
    without either has a = 0. ``first`` is where alpha starts if lo = 0 and hi is infinite.
    """

    count: int = 1
    sign: float = 0.0
    matrix: Array | None = None
    r: Line = field(default_factory=dict)
    k: Line = field(default_factory=dict)
    k0: float = 0.0
    lo: float = 0.0
    hi: float = np.inf
    h: Array | float = 0.0
    first: float = 1.0
    breathing: float = 0.0

    def dense(self, d: int) -> Array:
        """Return the rows a."""
        return self.sign * np.eye(self.count, d) if self.matrix is None else self.matrix


def at_least_zero(r: Line, h: float = 0.0, first: float = 1.0) -> Block:
    """Return the constraint r'xi + h >= 0, max over alpha >= 0 of -alpha (r'xi + h)."""
    return Block(r={scalar: -value for scalar, value in r.items()}, h=-h, first=first)


class Selection:
    """The map A with rows -sign_i e_(at_i)'."""

    def __init__(self, sign: Array, at: Array, d: int) -> None:
        self.sign = sign
        self.at = at
        self.d = d

    def scores(self, theta: Array) -> Array:
        """Return A theta."""
        return -self.sign * theta[self.at]

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        out = np.zeros((self.d, *u.shape[1:]))
        np.add.at(out, self.at, -(self.sign * u.T).T)
        return out

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A, a diagonal matrix."""
        return np.diag(np.bincount(self.at, D * self.sign**2, minlength=self.d))

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        out = np.zeros((len(at), self.d))
        out[np.arange(len(at)), self.at[at]] = -self.sign[at]
        return out


class Table:
    """The map A of a dense matrix."""

    def __init__(self, A: Array) -> None:
        self.A = A

    def scores(self, theta: Array) -> Array:
        """Return A theta."""
        return self.A @ theta

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        return self.A.T @ u

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A."""
        return (self.A.T * D) @ self.A

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        return self.A[at]


def coefficients(line: Line, scalars: Sequence[Scalar]) -> Array:
    """Return the coefficients of all scalars, 0 for those not in the line."""
    return np.array([line.get(scalar, 0.0) for scalar in scalars], dtype=float)


def stacked(blocks: Sequence[Block], scalars: Sequence[Scalar], d: int, share: float) -> Rows:
    """Return blocks as one group of rows; without any, an idle row."""
    blocks = blocks or [Block(lo=-1.0, hi=1.0)]
    repeat = np.repeat(np.arange(len(blocks)), [block.count for block in blocks])

    def each(values: Sequence[float] | Sequence[Array]) -> Array:
        return np.array(values, dtype=float)[repeat]

    rows_map: Map
    if any(block.matrix is not None for block in blocks):
        rows_map = Table(-np.vstack([block.dense(d) for block in blocks]))
    else:
        at = np.concatenate([np.arange(block.count) for block in blocks])
        rows_map = Selection(each([block.sign for block in blocks]), at, d)
    breathing = each([block.breathing for block in blocks])
    return Rows(
        map=rows_map,
        w=np.ones(len(repeat)),
        lo=each([block.lo for block in blocks]),
        hi=each([block.hi for block in blocks]),
        h=np.concatenate([np.broadcast_to(block.h, block.count) for block in blocks]),
        R=each([coefficients(block.r, scalars) for block in blocks]),
        K=each([coefficients(block.k, scalars) for block in blocks]),
        k0=each([block.k0 for block in blocks]),
        share=share,
        first=each([block.first for block in blocks]),
        breathing=breathing if breathing.any() else None,
    )


@dataclass(frozen=True, eq=False)
class Saddle:
    """Sample rows and head rows over (theta, xi), the linear cost of xi and where it starts.

    ``nu`` is the place of that scalar in xi, -1 if the form lacks it; with breathing head rows the
    last scalar is g, the multiplier of the l1 norm, which is maximised over: less nu g^2/(2 rate),
    or less nu g where it is ``bilinear``.
    """

    sample: Rows
    head: Rows
    cost: Array
    start: Array
    rate: float
    nu: int
    d: int
    bilinear: bool = False

    def begin(self) -> Iterate:
        """Return the first iterate."""
        theta = np.zeros(self.d)
        sample, head = (rows.begin(theta, self.start) for rows in (self.sample, self.head))
        return Iterate(theta, self.start.copy(), (sample, head))

    def mean_product(self, products: Sequence[Array]) -> float:
        """Return the mean complementarity from the products of both groups."""
        count = self.sample.count + self.head.count
        total = self.sample.total(products[0]) + self.head.total(products[1])
        return total / count if count > 0 else 0.0


class Cholesky:
    """The matrix T = sum of A' diag(D) A by its Cholesky factor: one pass over X.

    T is scaled to unit diagonal and shifted until it factors; refinement undoes the shift.
    """

    def __init__(self, parts: list[tuple[Map, Array]], d: int) -> None:
        self.T: Array = sum((rows.gram(D) for rows, D in parts), np.zeros((d, d)))
        top = float(np.diag(self.T).max(initial=0.0)) or 1.0
        self.scale = 1 / np.sqrt(np.maximum(np.diag(self.T), LEAST_COLUMN**2 * top))
        scaled = self.T * self.scale[:, None] * self.scale
        diagonal = np.arange(d)
        unit = scaled[diagonal, diagonal]
        shift = float(np.finfo(float).eps)
        while shift < 1:
            scaled[diagonal, diagonal] = unit + shift
            # symmetric, so that its transpose is no copy
            self.factor, failed = dpotrf(scaled.T, clean=False)
            if not failed:
                return
            shift *= SHIFT_GROWTH
        raise np.linalg.LinAlgError("the Newton matrix is not finite")

    def solve(self, f: Array) -> Array:
        """Return T^-1 f for a vector or columns."""
        x, _ = dpotrs(self.factor, (self.scale * f.T).T)
        return (self.scale * x.T).T

    def times(self, x: Array) -> Array:
        """Return T x."""
        return self.T @ x


def _block(rows: Map, V: Array, D: Array, at: Array) -> Array:
    """Return some of the rows sqrt(D) [A V]."""
    return np.sqrt(D[at])[:, None] * np.hstack([rows.dense(at), V[at]])


def _triangle(A: Array) -> Array:
    """Return the factor R of a QR of A, which has at least as many rows as columns."""
    if not np.isfinite(A).all():
        raise np.linalg.LinAlgError("the Newton matrix is not finite")
    m = A.shape[1]
    return np.asfortranarray(np.triu(dgeqrf(A)[0][:m]))


class Orthogonal:
    """The matrix T = sum of [A V]' diag(D) [A V] by a QR of the weighted rows.

    Slower than ``Cholesky``, but it never squares the condition of the rows.
    """

    def __init__(self, parts: list[tuple[Map, Array, Array]], d: int, lift: float = LIFT) -> None:
        self.parts = parts
        self.d = d
        m = d + parts[0][1].shape[1]
        step = max(BLOCK_ROWS, 4 * m)
        R = np.zeros((0, m))
        if sum(len(D) for _, _, D in parts) <= step:
            R = np.vstack([_block(rows, V, D, np.arange(len(D))) for rows, V, D in parts])
        else:
            for rows, V, D in parts:
                order = np.argsort(-D)
                for at in np.split(order, np.arange(step, len(order), step)):
                    R = _triangle(np.vstack([R, _block(rows, V, D, at)]))
        size = np.sqrt(np.einsum("ij,ij->j", R, R))
        self.scale = 1 / np.maximum(size, LEAST_COLUMN * (float(size.max(initial=0.0)) or 1.0))
        R = R * self.scale
        # rows in decreasing size keep a Householder QR stable row by row
        R = R[np.argsort(-np.abs(R).max(axis=1, initial=0.0))]
        self.R: Array = _triangle(np.vstack([R, lift * np.eye(m)]))

    def solve(self, f: Array) -> Array:
        """Return T^-1 f by the seminormal equations R'R x = f."""
        half, _ = dtrtrs(self.R, (self.scale * f.T).T, trans=1)
        x, _ = dtrtrs(self.R, half)
        return (self.scale * x.T).T

    def truncated(self, rcond: float) -> Array:
        """Return the inverse of T on the directions that the rows settle, zero on the others."""
        _, size, Vt = np.linalg.svd(self.R)
        keep = size > rcond * size[0]
        half = Vt[keep] * self.scale / size[keep, None]
        return half.T @ half

    def times(self, x: Array) -> Array:
        """Return T x, never forming T."""
        out = np.zeros_like(x)
        for rows, V, D in self.parts:
            u = D * (rows.scores(x[: self.d]) + V @ x[self.d :])
            out += np.concatenate([rows.adjoint(u), V.T @ u])
        return out


class Bordered:
    """Solve [[T, B], [B', C]] (x, y) = (f, g), T positive semidefinite, few columns in B."""

    def __init__(self, T: Cholesky | Orthogonal, B: Array, C: Array) -> None:
        self.T = T
        self.B = B
        self.C = C
        self.W = B
        if B.shape[1] == 0:
            return
        self.W = T.solve(B)
        size = np.abs(np.diag(C))
        self.small = 1 / np.sqrt(np.where(size > 0, size, 1.0))
        schur = (C - B.T @ self.W) * self.small[:, None] * self.small
        self.inverse = np.linalg.pinv(schur, rcond=ROUNDING)

    def _refined(self, f: Array) -> Array:
        x = self.T.solve(f)
        for _ in range(REFINEMENTS):
            x = x + self.T.solve(f - self.T.times(x))
        return x

    def _once(self, f: Array, g: Array) -> tuple[Array, Array]:
        y = self.small * (self.inverse @ (self.small * (g - self.W.T @ f)))
        return self.T.solve(f - self.B @ y), y

    def solve(self, f: Array, g: Array) -> tuple[Array, Array]:
        """Return (x, y), refined."""
        if not len(g):
            return self._refined(f), g
        x, y = self._once(f, g)
        for _ in range(REFINEMENTS):
            dx, dy = self._once(f - self.T.times(x) - self.B @ y, g - self.B.T @ x - self.C @ y)
            x = x + dx
            y = y + dy
        return x, y


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point (theta, xi) with the multipliers of the sample rows and of the head rows."""

    theta: Array
    xi: Array
    rows: tuple[RowPoint, RowPoint]


class SaddleStep(NamedTuple):
    """A step of theta and xi, and of the multipliers of both groups of rows."""

    dtheta: Array
    dxi: Array
    rows: tuple[RowStep, ...]

    def taken(self, x: Iterate, length: float) -> Iterate:
        """Return the iterate after a share of the step."""
        theta = x.theta + length * self.dtheta
        xi = x.xi + length * self.dxi
        sample, head = (step.taken(length, theta, xi) for step in self.rows)
        return Iterate(theta, xi, (sample, head))


class SaddleEquations:
    """Newton's equations of a saddle problem at one iterate; each right-hand side costs O(n d).

    ``careful`` equations are solved by a QR of the rows, others by the Cholesky factor of T.
    """

    def __init__(self, q: Saddle, x: Iterate, careful: bool) -> None:
        self.q = q
        self.xi = x.xi
        self.groups = [point.linearised() for point in x.rows]
        self.mean = q.mean_product([point.products for point in x.rows])
        self.pull: Array = np.zeros(())
        self.flow = -q.cost
        for at in self.groups:
            held = at.rows.w * at.point.alpha
            self.pull = self.pull + at.rows.map.adjoint(held)
            self.flow = self.flow - held @ at.rows.R
        # only g, which is maximised over, stays outside the least-squares rows
        inside = 0 if not careful else len(x.xi) - (q.head.breathing is not None)
        B, C = self._border(inside)
        if not careful:
            T: Cholesky | Orthogonal = Cholesky(
                [(at.rows.map, at.mass) for at in self.groups], len(B)
            )
        else:
            lift = LIFT_PENALISED if q.rate > 0 else LIFT
            parts = [(at.rows.map, at.V[:, :inside], at.mass) for at in self.groups]
            T = Orthogonal(parts, len(self.pull), lift)
        self.system = Bordered(T, B, C)

    def _border(self, inside: int) -> tuple[Array, Array]:
        """Return the columns of the scalars past ``inside`` against (theta, inside) and outside."""
        d = len(self.pull)
        k = len(self.xi)
        if inside == k:
            return np.empty((d + k, 0)), np.empty((0, 0))
        C = np.zeros((k, k))
        B = np.zeros((d, k))
        for at in self.groups:
            on = at.rows.scalars
            V = at.V[:, on]
            massV = at.mass[:, None] * V
            B[:, on] += at.rows.map.adjoint(massV)
            C[on[:, None], on] += V.T @ massV
        breathing = self.q.head.breathing
        if breathing is not None:
            # second derivatives of -nu g^2/(2 rate), or -t g, and of the barrier of [-g, g] in g
            nu = self.q.nu
            head = self.groups[1]
            P, S = head.steep
            # D (S - P)^2 - (P + S) = -4 P S D without the cancellation
            C[-1, -1] = -4 * float(breathing @ (P * S * head.D))
            if self.q.bilinear:
                C[[-1, nu], [nu, -1]] -= 1.0
            else:
                C[-1, -1] -= self.xi[nu] / self.q.rate
                C[[-1, nu], [nu, -1]] -= self.xi[-1] / self.q.rate
        return np.vstack([B[:, inside:], C[:inside, inside:]]), C[inside:, inside:]

    def step(self, mu: float, last: SaddleStep | None = None, length: float = 1.0) -> SaddleStep:
        """Return the step to products mu, to second order in all of a ``last`` step."""
        before = (None, None) if last is None else last.rows
        aims = [at.aim(mu, row) for at, row in zip(self.groups, before, strict=True)]
        f = self.pull.copy()
        g = self.flow
        for at, aim, row in zip(self.groups, aims, before, strict=True):
            rows, alpha = at.rows, at.point.alpha
            push = at.mass * aim.rho
            f += rows.map.adjoint(push)
            square = alpha**2 if row is None else alpha**2 + row.dalpha**2
            one = len(rows.K) == 1
            weight = (rows.w @ square) * rows.K[0] if one else (rows.w * square) @ rows.K
            g = g + push @ at.V + weight / 2
        breathing, rate = self.q.head.breathing, self.q.rate
        if breathing is not None:
            # the gradient of -nu g^2/(2 rate), or -t g, and of the barrier of [-g, g], to second
            # order
            nu = self.q.nu
            g[-1] -= float(breathing @ aims[1].force.sum(0))
            second = np.zeros_like(self.xi) if last is None else last.dxi
            if self.q.bilinear:
                g[nu] += self.xi[-1]
                g[-1] += self.xi[nu]
            else:
                g[nu] += (self.xi[-1] ** 2 + second[-1] ** 2) / (2 * rate)
                g[-1] += (self.xi[nu] * self.xi[-1] + second[nu] * second[-1]) / rate
        d = len(f)
        m = len(self.system.W)
        x, y = self.system.solve(np.append(f, g[: m - d]), g[m - d :])
        dtheta, dxi = x[:d], np.append(x[d:], y)
        if not (np.isfinite(dtheta).all() and np.isfinite(dxi).all()):
            raise np.linalg.LinAlgError("the Newton step is not finite")
        pairs = zip(self.groups, aims, strict=True)
        return SaddleStep(dtheta, dxi, tuple(at.step(aim, dtheta, dxi) for at, aim in pairs))

    def longest(self, step: SaddleStep) -> float:
        """Return the largest multiple of a step that leaves no slack or price negative."""
        return min(rows.longest() for rows in step.rows)

    def mean_after(self, step: SaddleStep, length: float) -> float:
        """Return the mean product after a share of a step."""
        return self.q.mean_product([rows.products(length) for rows in step.rows])

    def centred(self, step: SaddleStep) -> float:
        """Return the length of a step, shortened while a product falls far behind the others.

        Where no length above a share of it does, the first one is returned.
        """
        longest = min(1.0, SHORT_OF * self.longest(step))
        length = longest
        while length > TOO_SHORT * longest:
            products = [rows.products(length) for rows in step.rows]
            mu = self.q.mean_product(products)
            pairs = zip(step.rows, products, strict=True)
            if all(rows.centred(length, mu, each) for rows, each in pairs):
                return length
            length *= SHORTER
        return longest
