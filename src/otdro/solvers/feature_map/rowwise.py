r"""Logistic loss, order 2, one dual norm a row: Newton in (theta, b, lam) together.

.. math:: \min\ \lambda\delta + \sum_i \pi_i \max_s \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},
          \qquad w_i^2 = \theta' B_i\theta .

The method of ``joint``. A lower bound comes from atoms of mass m and slope a: the adversary moves
an atom by -a B_i C^-1 g (see ``LocalBound``), which leaves no model a gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ...losses import Loss
from ..euclidean.joint import Atoms, Joint, Point
from ..smoothing.smoothed_dual import Rows

Array = NDArray[Any]


class Rowwise(Joint):
    """The objective with B_i = A(x_i)^-1 of shape (n, d, d)."""

    def __init__(self, rows: Rows, B: Array) -> None:
        super().__init__(rows.design, rows.y, rows.weights, rows.delta, rows.fit_intercept)
        self.B = B
        self.flat = B.reshape(len(B), -1)
        self.mean = self._blend(rows.weights)
        self.Z = rows.design.dense()

    def _blend(self, r: Array) -> Array:
        """Return sum_i r_i B_i."""
        d = self.B.shape[1]
        blended: Array = (r @ self.flat).reshape(d, d)
        return blended

    def norms(self, theta: Array) -> Array:
        """Return w_i."""
        return np.sqrt(np.maximum((self.B @ theta) @ theta, 1e-300))

    def directions(self, x: Point, rows: Array) -> Array:
        """Return u_i = B_i theta/w_i."""
        return np.asarray((self.B[rows] @ x.theta) / x.w[rows, None])

    def square(self, theta: Array, other: Array) -> float:
        """Return the mean of theta'B_i other."""
        return float(theta @ self.mean @ other)

    def _multiplier(self, theta: Array, z: Array) -> float:
        """Return lam near its best: delta = E t^2, t = w alpha/(2 lam), by bisection in log lam."""
        w = self.norms(theta)
        far = np.sqrt(self.weights @ w**2 / self.delta) / 2
        low, high = np.log(1e-8 * far), np.log(far)
        while high - low > 0.1:
            lam = float(np.exp((low + high) / 2))
            inner = self.loss.inner(z, self.y, w, lam)
            best = inner.value.argmax(axis=0)[None]
            t = np.take_along_axis(inner.shift, best, axis=0)[0] / w
            if self.weights @ t**2 > self.delta:
                low = np.log(lam)
            else:
                high = np.log(lam)
        return float(np.exp((low + high) / 2))

    def derivatives(self, x: Point, atoms: Atoms, floor: float) -> tuple[Array, Array]:
        """Return gradient and Hessian with the masses fixed.

        psi in (m, w_i, lam) is that of ``joint``; w_i has the gradient u_i = B_i theta/w_i and the
        Hessian (B_i - u_i u_i')/w_i.
        """
        w, lam, y = x.w[atoms.row], x.lam, atoms.y
        s, t = atoms.alpha, atoms.v / w
        s1 = s * (1 - s)
        D = np.maximum(2 * lam - w**2 * s1, floor * lam)
        h = np.stack([-s1 * w, s + s1 * w * t, -2 * t])
        parts = [
            -y * s,
            s * t,
            -(t**2),
            s1 + h[0] ** 2 / D,
            y * (h[0] * h[1] / D - s1 * t),
            y * h[0] * h[2] / D,
            h[1] ** 2 / D + s1 * t**2,
            h[1] * h[2] / D,
            h[2] ** 2 / D,
        ]
        gm, gw, gl, mm, mw, ml, ww, wl, ll = (self.by_row(atoms, atoms.p * r) for r in parts)
        U, Z = (self.B @ x.theta) / x.w[:, None], self.Z
        d, bent = len(x.theta), gw / x.w
        grad, H = np.zeros(d + 2), np.zeros((d + 2, d + 2))
        grad[:d], grad[-1] = gm @ Z + gw @ U, self.delta + gl.sum()
        cross = Z.T @ (mw[:, None] * U)
        H[:d, :d] = Z.T @ (mm[:, None] * Z) + cross + cross.T + self._blend(bent)
        H[:d, :d] += U.T @ ((ww - bent)[:, None] * U)
        H[:d, -1] = H[-1, :d] = ml @ Z + wl @ U
        H[-1, -1] = ll.sum()
        if self.fit_intercept:
            grad[d] = gm.sum()
            H[:d, d] = H[d, :d] = mm @ Z + mw @ U
            H[d, -1] = H[-1, d] = ml.sum()
        H[d, d] = mm.sum() if self.fit_intercept else 1.0
        return grad, H

    def lower_bound(self, x: Point, p: Array) -> float:
        """Return the bound of the atoms, moved as by a shift of b and a growth of theta."""
        atoms = self.atoms(x, p)
        mass, alpha = atoms.p * self.weights[atoms.row], atoms.alpha
        dual = LocalBound(self.loss, self.Z, self.B, self.delta, self.fit_intercept)
        slopes = Slopes(atoms.row, atoms.y, mass, -atoms.y * alpha, alpha * (1 - alpha))
        return max(0.0, dual.bound(slopes))


@dataclass(frozen=True, eq=False)
class Slopes:
    """Atoms: row, target, mass, slope a = dl/dz, and how much ``room`` a has to move."""

    row: Array
    y: Array
    mass: Array
    a: Array
    room: Array


@dataclass(frozen=True, eq=False)
class LocalBound:
    r"""The dual problem of any convex loss under local costs.

    .. math:: F^* \ge -\sum m\,\ell^*(a, y)\quad\text{if}\quad g'C^{-1}g \le \delta,\
              \sum m a = 0,\qquad g = \sum m a z,\ C = \sum m a^2 B_i .
    """

    loss: Loss
    Z: Array
    B: Array
    delta: float
    fit_intercept: bool

    def bound(self, slopes: Slopes) -> float:
        """Return the value of slopes made feasible, each moved in proportion to its room."""
        a = slopes.a
        a = a - self._offset(slopes, a, self.slope(slopes, a))
        budget, q = self._budget(slopes, a)
        if budget > self.delta:
            # g'C^-1 g has the derivative 2 m (z'q da - q'B_i q d(a^2)/2)
            turn, bend = self.derivatives(slopes, a)
            steep = (self.Z @ q)[slopes.row] * turn - ((self.B @ q) @ q)[slopes.row] * bend / 2
            h = -slopes.room * steep
            h = h - self._offset(slopes, a, turn * h)
            eta = self._first_feasible(slopes, a, h, budget, -2 * float(slopes.mass @ (h * steep)))
            if not np.isfinite(eta):
                return -np.inf
            a = a + eta * h
        value = self.conjugate(slopes, a)
        # an atom without mass may have any slope
        return -float(slopes.mass @ np.where(slopes.mass > 0, value, 0.0))

    def slope(self, slopes: Slopes, a: Array) -> Array:
        """Return the mean slope of each atom."""
        return a

    def square(self, slopes: Slopes, a: Array) -> Array:
        """Return the mean squared slope of each atom."""
        return np.asarray(a**2)

    def derivatives(self, slopes: Slopes, a: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``slope`` and ``square``."""
        return np.ones_like(a), 2 * a

    def conjugate(self, slopes: Slopes, a: Array) -> Array:
        """Return l*(a, y) of each atom."""
        return self.loss.conjugate(a, slopes.y)

    def _offset(self, slopes: Slopes, a: Array, lack: Array) -> Array:
        """Return the change, in proportion to the room, that makes up for sum m lack."""
        if not self.fit_intercept:
            return np.zeros_like(a)
        turn, _ = self.derivatives(slopes, a)
        total = max(float(slopes.mass @ (slopes.room * turn**2)), np.finfo(float).tiny)
        return np.asarray(slopes.room * turn * (slopes.mass @ lack) / total)

    def _budget(self, slopes: Slopes, a: Array) -> tuple[float, Array]:
        """Return g'C^-1 g and C^-1 g."""
        n, d = self.Z.shape
        first = np.bincount(slopes.row, slopes.mass * self.slope(slopes, a), minlength=n)
        second = np.bincount(slopes.row, slopes.mass * self.square(slopes, a), minlength=n)
        g, C = first @ self.Z, (second @ self.B.reshape(n, -1)).reshape(d, d)
        try:
            q = cho_solve(cho_factor(C), g)
        except LinAlgError:
            # no slope is left to move
            return np.inf, g
        return float(g @ q), q

    def _first_feasible(
        self, slopes: Slopes, a: Array, h: Array, budget: float, fall: float
    ) -> float:
        """Return an eta near the least with g'C^-1 g <= delta at a + eta h, by Newton."""
        eta = 0.0
        for _ in range(6):
            if not (fall > 0 and np.isfinite(budget)):
                return np.inf
            # slightly beyond: where the budget is met to rounding the next step would be zero
            eta += (budget - self.delta) / fall * (1 + 1e-9) + 1e-12 * self.delta / fall
            budget, _ = self._budget(slopes, a + eta * h)
            if budget <= self.delta:
                return eta
        return np.inf


@dataclass(frozen=True, eq=False)
class KinkedBound(LocalBound):
    """The dual of a loss with two slopes only: ``Slopes.a`` is the share of a row at the larger.

    A row whose mass is shared has both slopes, not their mean.
    """

    def ends(self, slopes: Slopes) -> tuple[Array, Array]:
        """Return the least and the largest slope of every atom."""
        low, high = self.loss.slope_range(slopes.y)
        return low, high

    def slope(self, slopes: Slopes, a: Array) -> Array:
        """Return the mean slope of each row."""
        low, high = self.ends(slopes)
        return np.asarray(low + a * (high - low))

    def square(self, slopes: Slopes, a: Array) -> Array:
        """Return the mean squared slope of each row."""
        low, high = self.ends(slopes)
        return np.asarray(low**2 + a * (high**2 - low**2))

    def derivatives(self, slopes: Slopes, a: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``slope`` and ``square``."""
        low, high = self.ends(slopes)
        return high - low, high**2 - low**2

    def conjugate(self, slopes: Slopes, a: Array) -> Array:
        """Return the mean of l* over both slopes, +inf where a share is none."""
        low, high = (self.loss.conjugate(end, slopes.y) for end in self.ends(slopes))
        return np.where((a >= 0) & (a <= 1), low + a * (high - low), np.inf)
