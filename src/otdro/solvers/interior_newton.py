"""The Newton system of the interior-point method, reduced to (theta, xi)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular

from ..losses.base import Array
from .interior_model import Saddle
from .interior_rows import Map


class Squared:
    """The matrix T = sum of A' diag(D) A by its Cholesky factor: one pass over X.

    T is scaled to unit diagonal and shifted until it factors; refinement undoes the shift.
    """

    def __init__(self, parts: list[tuple[Map, Array]], d: int) -> None:
        self.T: Array = sum((rows.gram(D) for rows, D in parts), np.zeros((d, d)))
        top = float(np.diag(self.T).max(initial=0.0)) or 1.0
        self.scale = 1 / np.sqrt(np.maximum(np.diag(self.T), 1e-40 * top))
        scaled, diagonal, shift = self.T * self.scale[:, None] * self.scale, np.arange(d), 1e-16
        while shift < 1:
            shifted = scaled.copy()
            shifted[diagonal, diagonal] += shift
            try:
                self.factor = cho_factor(shifted, overwrite_a=True, check_finite=False)
                return
            except np.linalg.LinAlgError:
                shift *= 100
        raise np.linalg.LinAlgError("the Newton matrix is not finite")

    def solve(self, f: Array) -> Array:
        """Return T^-1 f for a vector or columns."""
        return (self.scale * cho_solve(self.factor, (self.scale * f.T).T, check_finite=False).T).T

    def times(self, x: Array) -> Array:
        """Return T x."""
        return self.T @ x


class Orthogonal:
    """The matrix T = sum of [A V]' diag(D) [A V] by a QR of the weighted rows.

    Slower than ``Squared``, but it never squares the condition of the rows.
    """

    def __init__(self, parts: list[tuple[Map, Array, Array]], d: int, lift: float = 1e-8) -> None:
        self.parts, self.d = parts, d
        m = d + parts[0][1].shape[1]
        R = np.zeros((0, m))
        for rows, V, D in parts:
            # rows in decreasing size keep a Householder QR stable row by row
            order, step = np.argsort(-D), max(256, 4 * m)
            for at in np.split(order, np.arange(step, len(order), step)):
                block = np.sqrt(D[at])[:, None] * np.hstack([rows.dense(at), V[at]])
                R = qr(np.vstack([R, block]), mode="r", check_finite=False)[0][:m]
        size = np.linalg.norm(R, axis=0)
        self.scale = 1 / np.maximum(size, 1e-20 * (float(size.max(initial=0.0)) or 1.0))
        lifted = np.vstack([R * self.scale, lift * np.eye(m)])
        if not np.isfinite(lifted).all():
            raise np.linalg.LinAlgError("the Newton matrix is not finite")
        self.R: Array = qr(lifted, mode="r", check_finite=False)[0][:m]

    def solve(self, f: Array) -> Array:
        """Return T^-1 f by the seminormal equations R'R x = f."""
        half = solve_triangular(self.R, (self.scale * f.T).T, trans="T", check_finite=False)
        return (self.scale * solve_triangular(self.R, half, check_finite=False).T).T

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

    def __init__(self, T: Squared | Orthogonal, B: Array, C: Array) -> None:
        self.T, self.B, self.C = T, B, C
        self.W = T.solve(B) if B.shape[1] else B
        size = np.abs(np.diag(C))
        self.small = 1 / np.sqrt(np.where(size > 0, size, 1.0))
        schur = (C - B.T @ self.W) * self.small[:, None] * self.small
        self.inverse = np.linalg.pinv(schur, rcond=1e-15)

    def _once(self, f: Array, g: Array) -> tuple[Array, Array]:
        y = self.small * (self.inverse @ (self.small * (g - self.W.T @ f)))
        return self.T.solve(f - self.B @ y), y

    def solve(self, f: Array, g: Array, refine: int = 2) -> tuple[Array, Array]:
        """Return (x, y) after ``refine`` steps of iterative refinement."""
        x, y = self._once(f, g)
        for _ in range(refine):
            dx, dy = self._once(f - self.T.times(x) - self.B @ y, g - self.B.T @ x - self.C @ y)
            x, y = x + dx, y + dy
        return x, y


class Newton:
    """Newton's equations of a saddle problem at one iterate; each right-hand side costs O(n d)."""

    def __init__(self, q: Saddle, xi: Array, careful: bool) -> None:
        self.q, self.xi = q, xi
        k = len(xi)
        products: Array = sum(  # type: ignore[assignment]
            rows.map.adjoint(np.column_stack([rows.wD[:, None] * rows.V, rows.w * rows.alpha]))
            for rows in q.groups
        )
        C: Array = sum(
            (rows.V.T @ (rows.wD[:, None] * rows.V) for rows in q.groups), np.zeros((k, k))
        )
        self.pull = products[:, k]
        self._breathe(C)
        self.system = self._system(products[:, :k], C, careful)

    def _system(self, B: Array, C: Array, careful: bool) -> Bordered:
        d, k = B.shape
        if not careful:
            return Bordered(Squared([(rows.map, rows.wD) for rows in self.q.groups], d), B, C)
        # only g, which is maximised over, stays outside the least-squares rows
        inside = k if self.q.head.breathing is None else k - 1
        parts = [(rows.map, rows.V[:, :inside], rows.wD) for rows in self.q.groups]
        border = np.vstack([B[:, inside:], C[:inside, inside:]])
        # a penalty, however small, settles the directions that the rows leave free
        lift = 1e-14 if self.q.rate > 0 else 1e-8
        return Bordered(Orthogonal(parts, d, lift), border, C[inside:, inside:])

    def _breathe(self, C: Array) -> None:
        """Add the second derivatives of -nu g^2/(2 rate) and of the barrier of [-g, g] in g."""
        rows = self.q.head
        if rows.breathing is None:
            return
        nu = self.q.names.index("nu")
        # D (S - P)^2 - (P + S) = -4 P S D without the cancellation
        C[-1, -1] = (
            -4 * float(rows.breathing @ (rows.P * rows.S * rows.D)) - self.xi[nu] / self.q.rate
        )
        C[[-1, nu], [nu, -1]] -= self.xi[-1] / self.q.rate

    def step(self, last: Array | None = None) -> tuple[Array, Array]:
        """Return (dtheta, dxi) for the current aims, corrected by ``last``, a predictor's dxi."""
        f, g = self.pull.copy(), -self.q.cost
        for rows in self.q.groups:
            f += rows.map.adjoint(rows.wD * rows.rho)
            square = rows.alpha**2 if last is None else rows.alpha**2 + rows.dalpha**2
            weight = (rows.w * square) @ np.broadcast_to(rows.K, rows.R.shape)
            g = g + rows.V.T @ (rows.wD * rows.rho) - rows.R.T @ (rows.w * rows.alpha) + weight / 2
        self._stretch(g, last)
        d, m = len(f), len(self.system.W)
        x, y = self.system.solve(np.append(f, g[: m - d]), g[m - d :])
        return x[:d], np.append(x[d:], y)

    def _stretch(self, g: Array, last: Array | None) -> None:
        """Add the gradient of -nu g^2/(2 rate) and of the barrier of [-g, g], to second order."""
        rows, rate = self.q.head, self.q.rate
        if rows.breathing is None:
            return
        nu = self.q.names.index("nu")
        second = np.zeros_like(self.xi) if last is None else last
        g[nu] += (self.xi[-1] ** 2 + second[-1] ** 2) / (2 * rate)
        g[-1] -= float(rows.breathing @ (rows.up / rows.E + rows.us / rows.F))
        g[-1] += (self.xi[nu] * self.xi[-1] + second[nu] * second[-1]) / rate
