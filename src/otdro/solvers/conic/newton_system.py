"""The Newton system of the interior-point method, reduced to (theta, xi)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgeqrf, dpotrf, dpotrs, dtrtrs

from ...losses.base import Array
from .model import Saddle
from .rows import Aim, LinearRows, Map, RowStep

#: The least diagonal entry of T, relative to the largest, by which T is scaled.
LEAST_DIAGONAL = 1e-40
#: The same for the columns of a factor of T, which are roots of it.
LEAST_COLUMN = 1e-20
#: The first shift of a scaled T that does not factor, and by what it grows.
SHIFT = 1e-16
SHIFT_GROWTH = 100.0
#: Rows of a unit matrix times this are added to a QR: they settle the directions that rows leave
#: free; with a penalty, however small, the penalty does.
LIFT = 1e-8
LIFT_PENALISED = 1e-14
#: Rows of a QR at a time, at least.
BLOCK_ROWS = 256
#: Directions of the border below this share of the best are without a pivot.
NO_PIVOT = 1e-15
#: Steps of iterative refinement.
REFINEMENTS = 2


class Cholesky:
    """The matrix T = sum of A' diag(D) A by its Cholesky factor: one pass over X.

    T is scaled to unit diagonal and shifted until it factors; refinement undoes the shift.
    """

    def __init__(self, parts: list[tuple[Map, Array]], d: int) -> None:
        self.T: Array = sum((rows.gram(D) for rows, D in parts), np.zeros((d, d)))
        top = float(np.diag(self.T).max(initial=0.0)) or 1.0
        self.scale = 1 / np.sqrt(np.maximum(np.diag(self.T), LEAST_DIAGONAL * top))
        scaled = self.T * self.scale[:, None] * self.scale
        diagonal = np.arange(d)
        unit = scaled[diagonal, diagonal]
        shift = SHIFT
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
        self.inverse = np.linalg.pinv(schur, rcond=NO_PIVOT)

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


class NewtonSystem:
    """Newton's equations of a saddle problem at one iterate; each right-hand side costs O(n d).

    ``groups`` are the sample rows and the head rows around the iterate.
    """

    def __init__(self, q: Saddle, groups: Sequence[LinearRows], xi: Array, careful: bool) -> None:
        self.q = q
        self.groups = groups
        self.xi = xi
        self.pull: Array = np.zeros(())
        self.flow = -q.cost
        for at in groups:
            held = at.rows.w * at.point.alpha
            self.pull = self.pull + at.rows.map.adjoint(held)
            self.flow = self.flow - held @ at.rows.R
        # only g, which is maximised over, stays outside the least-squares rows
        inside = 0 if not careful else len(xi) - (q.head.breathing is not None)
        B, C = self._border(inside)
        if not careful:
            T: Cholesky | Orthogonal = Cholesky([(at.rows.map, at.mass) for at in groups], len(B))
        else:
            lift = LIFT_PENALISED if q.rate > 0 else LIFT
            parts = [(at.rows.map, at.V[:, :inside], at.mass) for at in groups]
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
        self._breathe(C)
        return np.vstack([B[:, inside:], C[:inside, inside:]]), C[inside:, inside:]

    def _breathe(self, C: Array) -> None:
        """Add the second derivatives of -nu g^2/(2 rate) and of the barrier of [-g, g] in g."""
        breathing, head = self.q.head.breathing, self.groups[1]
        if breathing is None:
            return
        nu = self.q.nu
        P, S = head.steep
        # D (S - P)^2 - (P + S) = -4 P S D without the cancellation
        C[-1, -1] = -4 * float(breathing @ (P * S * head.D)) - self.xi[nu] / self.q.rate
        C[[-1, nu], [nu, -1]] -= self.xi[-1] / self.q.rate

    def step(self, aims: Sequence[Aim], last: Move | None = None) -> Move:
        """Return the step to the aims, to second order in ``last``, a predictor's."""
        f = self.pull.copy()
        g = self.flow
        for j, (at, aim) in enumerate(zip(self.groups, aims, strict=True)):
            rows, alpha = at.rows, at.point.alpha
            push = at.mass * aim.rho
            f += rows.map.adjoint(push)
            square = alpha**2 if last is None else alpha**2 + last.rows[j].dalpha ** 2
            one = len(rows.K) == 1
            weight = (rows.w @ square) * rows.K[0] if one else (rows.w * square) @ rows.K
            g = g + push @ at.V + weight / 2
        self._stretch(g, aims[1], last)
        d = len(f)
        m = len(self.system.W)
        x, y = self.system.solve(np.append(f, g[: m - d]), g[m - d :])
        dtheta, dxi = x[:d], np.append(x[d:], y)
        if not (np.isfinite(dtheta).all() and np.isfinite(dxi).all()):
            raise np.linalg.LinAlgError("the Newton step is not finite")
        pairs = zip(self.groups, aims, strict=True)
        return Move(dtheta, dxi, [at.step(aim, dtheta, dxi) for at, aim in pairs])

    def _stretch(self, g: Array, aim: Aim, last: Move | None) -> None:
        """Add the gradient of -nu g^2/(2 rate) and of the barrier of [-g, g], to second order."""
        breathing, rate = self.q.head.breathing, self.q.rate
        if breathing is None:
            return
        nu = self.q.nu
        second = np.zeros_like(self.xi) if last is None else last.dxi
        g[nu] += (self.xi[-1] ** 2 + second[-1] ** 2) / (2 * rate)
        g[-1] -= float(breathing @ aim.force.sum(0))
        g[-1] += (self.xi[nu] * self.xi[-1] + second[nu] * second[-1]) / rate


class Move(NamedTuple):
    """A step of theta and xi, and of the multipliers of both groups of rows."""

    dtheta: Array
    dxi: Array
    rows: list[RowStep]
