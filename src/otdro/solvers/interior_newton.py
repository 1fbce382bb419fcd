"""The Newton system of the interior-point method, reduced to (theta, xi)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..losses.base import Array
from .interior_model import Saddle


class Bordered:
    """Solve [[T, B], [B', C]] (x, y) = (f, g) with T positive semidefinite and few columns in B.

    T is scaled to unit diagonal and regularised until it factors; refinement against the matrix
    itself undoes the regularisation.
    """

    def __init__(self, T: Array, B: Array, C: Array) -> None:
        self.T, self.B, self.C = T, B, C
        diagonal = np.diag(T)
        top = float(diagonal.max(initial=0.0)) or 1.0
        self.scale = 1 / np.sqrt(np.maximum(diagonal, 1e-40 * top))
        self.factor = self._factor(T * self.scale[:, None] * self.scale)
        self.W = self._base(B)
        schur = C - B.T @ self.W
        size = np.abs(np.diag(C))
        self.small = 1 / np.sqrt(np.where(size > 0, size, 1.0))
        self.schur = np.linalg.pinv(schur * self.small[:, None] * self.small, rcond=1e-15)

    @staticmethod
    def _factor(T: Array) -> tuple[Array, bool]:
        eps, diagonal = 1e-14, np.arange(len(T))
        while True:
            shifted = T.copy()
            shifted[diagonal, diagonal] += eps
            try:
                return cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)  # type: ignore[return-value]
            except np.linalg.LinAlgError:
                eps *= 100
                if not eps < 1:
                    raise

    def _base(self, f: Array) -> Array:
        """Return T^-1 f."""
        return (self.scale * cho_solve(self.factor, (self.scale * f.T).T, check_finite=False).T).T

    def _once(self, f: Array, g: Array) -> tuple[Array, Array]:
        y = self.small * (self.schur @ (self.small * (g - self.W.T @ f)))
        return self._base(f - self.B @ y), y

    def solve(self, f: Array, g: Array, refine: int = 2) -> tuple[Array, Array]:
        """Return (x, y) after ``refine`` steps of iterative refinement."""
        x, y = self._once(f, g)
        for _ in range(refine):
            dx, dy = self._once(f - self.T @ x - self.B @ y, g - self.B.T @ x - self.C @ y)
            x, y = x + dx, y + dy
        return x, y


class Newton:
    """Newton's equations of a saddle problem at one iterate; each right-hand side costs O(n d)."""

    def __init__(self, q: Saddle, xi: Array) -> None:
        self.q, self.xi = q, xi
        k = len(xi)
        T: Array = sum(rows.map.gram(rows.wD) for rows in q.groups)  # type: ignore[assignment]
        C: Array = sum(rows.V.T @ (rows.wD[:, None] * rows.V) for rows in q.groups)  # type: ignore[assignment]
        products: Array = sum(  # type: ignore[assignment]
            rows.map.adjoint(np.column_stack([rows.wD[:, None] * rows.V, rows.w * rows.alpha]))
            for rows in q.groups
        )
        self.pull = products[:, k]
        self._breathe(C)
        self.system = Bordered(T, products[:, :k], C)

    def _breathe(self, C: Array) -> None:
        """Add the second derivatives of -nu g^2/(2 rate) and of the barrier of [-g, g] in g."""
        rows = self.q.head
        if rows.breathing is None:
            return
        nu = self.q.names.index("nu")
        C[-1, -1] -= float(rows.breathing @ (rows.P + rows.S)) + self.xi[nu] / self.q.rate
        C[[-1, nu], [nu, -1]] -= self.xi[-1] / self.q.rate

    def step(self, last: Array | None = None) -> tuple[Array, Array]:
        """Return (dtheta, dxi) for the current aims; ``last``: the dxi of the predictor to correct."""
        f, g = self.pull.copy(), -self.q.cost
        for rows in self.q.groups:
            f += rows.map.adjoint(rows.wD * rows.rho)
            square = rows.alpha**2 if last is None else rows.alpha**2 + rows.dalpha**2
            weight = (rows.w * square) @ np.broadcast_to(rows.K, rows.R.shape)
            g = g + rows.V.T @ (rows.wD * rows.rho) - rows.R.T @ (rows.w * rows.alpha) + weight / 2
        self._stretch(g, last)
        return self.system.solve(f, g)

    def _stretch(self, g: Array, last: Array | None) -> None:
        """Add the gradient of -nu g^2/(2 rate) and of the barrier of [-g, g], with their second order."""
        rows, rate = self.q.head, self.q.rate
        if rows.breathing is None:
            return
        nu = self.q.names.index("nu")
        second = np.zeros_like(self.xi) if last is None else last
        g[nu] += (self.xi[-1] ** 2 + second[-1] ** 2) / (2 * rate)
        g[-1] -= float(rows.breathing @ (rows.up / rows.E + rows.us / rows.F))
        g[-1] += (self.xi[nu] * self.xi[-1] + second[nu] * second[-1]) / rate
