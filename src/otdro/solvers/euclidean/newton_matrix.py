"""The Newton matrix of a batch of order-1 problems, renewed only where an old one does badly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, factor_of, namespace, numbers, pick, pick_columns
from ...design import Design
from ...duality.ties import RIDGE, positive_solved
from .batch import Batch, Points, by_columns, dots, norms
from .block_rows import BlockRows
from .conjugate_gradients import RowSystem
from .stack import Stack

Array = NDArray[Any]

#: An old Newton matrix is kept while a step shrinks the gradient by at least this factor; the
#: second where a new matrix takes no longer than the rest of a step, n d^2 up to a number.
CONTRACTION, CHEAP_CONTRACTION = 0.3, 0.1
CHEAP_UP_TO = 10_000_000
#: Columns above which the Newton system is solved by conjugate gradients, without its matrix.
DENSE_UP_TO = 2_000
#: Operations of the Newton systems of a batch up to which they are solved by the host: a device
#: takes longer to be told.
ON_HOST_UP_TO = 10_000_000


class NewtonMatrix:
    """The Newton system of (theta, b) with the intercept eliminated,

    (H - hh'/m + (rho/w)(I - uu')) step = -(g + rho u) + h s/m,

    H = Z'(pi D)Z, h = Z'(pi D), m = sum pi D at the curvatures D of when it was last renewed,
    g = Z'(pi a), s = sum pi a at the current point, u = theta/w. A ``borrowed`` matrix is that of
    other rows: good for steps, but slopes moved by it prove nothing. Each problem of a batch is
    renewed by its own need, so that its steps do not depend on its company.
    """

    H: Array
    h: Array
    g: Array
    s: Array
    curvature: Array
    mass: Array

    def __init__(self, contraction: float = CONTRACTION) -> None:
        self.contraction = contraction
        self.residual: Array = np.zeros(0)
        self.fresh: Array = np.zeros(0, dtype=bool)
        self.borrowed = False
        self.dz: Array | None = None

    @classmethod
    def over(cls, design: Design | Stack | BlockRows) -> NewtonMatrix:
        """Return that of problems over some rows, renewed more often where that is cheap."""
        cheap = design.n * design.d**2 <= CHEAP_UP_TO
        return cls(CHEAP_CONTRACTION if cheap else CONTRACTION)

    def retried(self) -> NewtonMatrix:
        """Try the matrix, if there is one, on the next problem: its first step is the test."""
        self.residual = namespace(self.residual).full_like(self.residual, np.inf)
        return self

    def lent(self) -> NewtonMatrix:
        """Return the matrix for the steps of a problem over other rows."""
        self.borrowed = self.H.shape[1] > 0
        return self.retried()

    def discard(self, some: Array) -> None:
        """Have the matrices of some problems renewed at the next update."""
        self.residual = namespace(self.residual).where(some, -1.0, self.residual)

    def keep(self, index: Array) -> None:
        """Forget the problems outside ``index``."""
        self.H, self.h = pick(self.H, index), self.h[:, index]
        self.curvature, self.mass = pick_columns(self.curvature, index), self.mass[index]
        self.residual = self.residual[index]

    def update(self, batch: Batch, p: Points) -> None:
        """Take the gradient at p, and the matrix too unless the old one did well enough."""
        self.s = batch.mean(p.slope)
        if batch.design.d > DENSE_UP_TO:
            # one that is not formed is new
            self.residual = 0.0 * self.s
            self.fresh = self.residual >= 0
            self.renew(batch, p)
            return
        self.g = batch.design.adjoint(batch.weights * p.slope)
        residual = norms(self.g + batch.rho * (p.theta / p.w))
        # the same matrix contracts the gradient about as much again
        known = len(self.residual) > 0
        self.fresh = residual > self.contraction * self.residual if known else residual >= 0
        if self.fresh.all():
            self.renew(batch, p)
        elif self.fresh.any():
            new = self.fresh
            H, self.h[:, new], self.mass[new] = _matrices(batch.columns(new), p.columns(new))
            self.H[beside(new, self.H)] = H
            xp = namespace(p.curvature)
            self.curvature = xp.where(beside(new, p.curvature), p.curvature, self.curvature)
        self.residual = residual

    def renew(self, batch: Batch, p: Points) -> None:
        """Take the matrices at p, for all problems."""
        self.borrowed = False
        self.fresh = namespace(self.fresh).ones_like(self.fresh)
        self.H, self.h, self.mass = _matrices(batch, p)
        self.curvature = p.curvature

    def step(self, batch: Batch, p: Points) -> tuple[Array, Array, Array]:
        """Return the step in theta (d, B), the intercept's, and Z'(pi (a + D Z step))."""
        s = self.s * batch.fit_intercept
        if batch.design.d > DENSE_UP_TO:
            return self._by_products(batch, p, s)
        w, u, xp, H = p.w, p.theta / p.w, namespace(p.theta), self.H
        balanced = self.g - self.h * (s / self.mass)
        rhs = -(balanced + batch.rho * u)
        known = (beside(part, H) for part in (batch.rho / w, u, rhs))
        step = solve_stiffened(H, *known)
        pull = balanced + batch.small((H @ step.T[:, :, None])[:, :, 0].T)
        step = batch.small(step)
        db = -(s + xp.einsum("db,db->b", self.h, step)) / self.mass * batch.fit_intercept
        return step, db, pull

    def moves(self, batch: Batch, step: Array, db: Array) -> Array:
        """Return what the last step adds to the scores; conjugate gradients know it."""
        if self.dz is not None:
            return self.dz
        return batch.design.scores(step) + factor_of(db, batch.y)

    def slope_along(self, batch: Batch, p: Points, step: Array, db: Array) -> Array:
        """Return the derivative of F along the last step."""
        u, xp = p.theta / p.w, namespace(p.theta)
        if self.dz is not None:
            return batch.mean(p.slope * self.dz) + batch.rho * xp.einsum("db,db->b", u, step)
        along: Array = xp.einsum("db,db->b", self.g + batch.rho * u, step)
        return along + self.s * db

    def _by_products(self, batch: Batch, p: Points, s: Array) -> tuple[Array, Array, Array]:
        """Return what ``step`` does from products with Z only, which know their scores.

        With the solution x and the residual r = -(g - hs/m) - rho u - Ax of the system
        Z'(pi a + D Z step) = -Z'r.p - stiff Z'x.p.
        """
        rows = _uncentred(batch) or batch.design
        D = by_columns(batch.weights * self.curvature)
        inverse_mass = batch.fit_intercept / self.mass
        u = by_columns(p.theta / p.w)
        along = by_columns((p.z - factor_of(p.b, p.z)) / factor_of(p.w, p.z))
        system = RowSystem(rows, D, inverse_mass, batch.rho / p.w, along)
        # g - h s/m = Z'(pi a - D s/m)
        balanced = batch.weights * p.slope - factor_of(s / self.mass, D) * D
        solved = system.solve(-balanced, -batch.rho, batch.rho)
        x, step = solved.x, rows.adjoint(solved.x.p)
        pull = -solved.pull - system.stiff * step
        # slopes sum to zero after the step: s + D'(Z step) + m db = 0, whatever is the centre
        db = -(s + dots(D, x.z)) * inverse_mass
        self.dz = x.z + factor_of(db, x.z)
        if rows is not batch.design:
            db = db + batch.design.shift(step)
        step += x.c * u
        return step, db, pull


def _uncentred(batch: Batch) -> Design | Stack | BlockRows | None:
    """Return sparse rows X without their centre c, where the intercept makes it irrelevant.

    Z'p = X'p - c 1'p = X'p for p with sum zero, as (D - DD'/m)q has.
    """
    design = batch.design
    return design.uncentred if batch.fit_intercept and design.sparse else None


def _matrices(batch: Batch, p: Points) -> tuple[Array, Array, Array]:
    """Return H - hh'/m, h and m at the curvatures of p; H, where it is large, beside the rows."""
    D = batch.weights * p.curvature
    m = batch.small(D.sum(axis=0))
    xp = namespace(m)
    m = xp.maximum(m, np.finfo(float).tiny)
    if batch.design.d > DENSE_UP_TO:
        H, h = np.empty((len(m), 0, 0)), np.empty((0, len(m)))
    else:
        H, h = batch.design.moments(D)
    if not batch.fit_intercept:
        return _solved_there(H, D), 0.0 * h, m
    if H.shape[1]:
        H = _eliminated(H, h, m, batch, batch.rho / p.w)
    return _solved_there(H, D), h, m


def _solved_there(H: Array, D: Array) -> Array:
    """Return matrices where they are solved: small ones stay on the host, others go beside D."""
    B, d = H.shape[:2]
    return H if B * d**3 <= ON_HOST_UP_TO else beside(H, D)


def _eliminated(H: Array, h: Array, m: Array, batch: Batch, stiffness: Array) -> Array:
    """Return H - hh'/m; columns that are constant, so intercepts themselves, are kept apart.

    Of such a column only rounding is left. Where the stiffness is more than that, it alone draws
    the coefficient to 0; else the inverse would be anything, and the column's own square, before
    the centre was subtracted, leaves the coefficient where it is.
    """
    xp = namespace(H)
    design = batch.design
    left = H - xp.einsum("ib,jb->bij", h / m, h)
    centred = xp.einsum("bii->bi", H)
    rounding = m[:, None] * beside(design.rounding, m) + design.n * np.finfo(float).eps * centred
    constant = xp.einsum("bii->bi", left) <= rounding
    if not constant.any():
        return left
    apart = constant[:, :, None] | constant[:, None, :]
    square = xp.abs(centred) + m[:, None] * beside(design.offset, m) ** 2
    loose = constant & (beside(stiffness, rounding)[:, None] <= rounding)
    alone = xp.where(loose, square, 0.0)[:, :, None] * beside(np.eye(H.shape[1]), H)
    return xp.where(apart, alone, left)


def solve_stiffened(H: Array, stiffness: Array, u: Array, rhs: Array) -> Array:
    """Solve (H + stiffness (I - uu')) x = rhs for every column."""
    xp, stiff, d = namespace(H), stiffness[:, None], H.shape[1]
    q = xp.sqrt(stiff) * u.T
    A = H - q[:, :, None] * q[:, None, :]
    i = numbers(d, A)
    diagonal = A[:, i, i] + stiff
    A[:, i, i] = diagonal + RIDGE * xp.where(diagonal > 0, diagonal, 1.0)
    return positive_solved(A, rhs.T[:, :, None])[:, :, 0].T
