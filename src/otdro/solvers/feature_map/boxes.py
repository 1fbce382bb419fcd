r"""Bounds on the inner supremum of the quadratic features, by branching over boxes.

.. math:: \max_u\ \ell(u'\beta + b, y) - \lambda P(u),\qquad
          P(u) = \|\Phi(u) - \Phi(x)\|_\Lambda^2

with Phi all linear and quadratic terms: P is a polynomial of degree four. In coordinates t with
u = x + Tt, T T' the inverse of what Lam charges for linear terms at least, P >= |t|^2, so that
only a bounded cube can hold a maximum. A cell of it is dropped once its upper bound is no better
than a place known; the others are split. At the centre c of a cell, e = t - c,

.. math:: P \ge P(c) + g'e + e'Ke - C|e|^3,\qquad K = \tfrac12 \nabla^2 P(c),

and the loss is at most its chord over the scores of the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inner_ascent import LocalRows

Array = NDArray[Any]

#: The most columns: a cell has 2^d children, and about 10^d cells surround a maximum.
MOST_COLUMNS = 3
#: The most cells looked at, for all rows together.
MOST_CELLS = 1_000_000
#: Radii at which the loss is compared with the least price, relative to the unit of t.
RADII = np.geomspace(1e-8, 1e10, 260)


@dataclass(frozen=True, eq=False)
class Bounds:
    """For every row an ``upper`` bound on its supremum (inf: none), and the best place seen."""

    upper: Array
    points: Array


@dataclass(frozen=True, eq=False)
class Cells:
    """Cubes |t - centre| <= half around some rows."""

    row: Array
    centre: Array
    half: Array

    def split(self) -> Cells:
        """Return the halves along every axis."""
        d = self.centre.shape[1]
        corners = np.array(list(product((-0.5, 0.5), repeat=d)))
        centre = self.centre[:, None] + self.half[:, None, None] * corners
        times = len(corners)
        return Cells(
            np.repeat(self.row, times), centre.reshape(-1, d), np.repeat(self.half / 2, times)
        )

    def kept(self, keep: Array) -> Cells:
        """Return some of the cells."""
        return Cells(self.row[keep], self.centre[keep], self.half[keep])


def bounds(
    rows: LocalRows, beta: Array, b: float, lam: float, known: Array, slack: float
) -> Bounds | None:
    """Return bounds within ``slack`` of the gains known or found, None where there are none."""
    d, metric = rows.X.shape[1], rows.metric
    if metric is None or d > MOST_COLUMNS:
        return None
    at = CellCoordinates(rows, metric, beta, b, lam)
    best = known.copy()
    points = rows.X.copy()
    radius = at.radius(best)
    bounded = np.isfinite(radius)
    upper = np.where(bounded, -np.inf, np.inf)
    each = np.flatnonzero(bounded)
    cells = Cells(each, np.zeros((len(each), d)), radius[each])
    seen = 0
    while len(cells.row):
        cells = cells.split()
        seen += len(cells.row)
        value, limit = at.look(cells)
        order = np.argsort(value)
        last = cells.row[order]
        top = value[order]
        # of several entries of a row the last one stays, the largest
        better = top > best[last]
        points[last[better]] = at.places(cells.kept(order[better]))
        np.maximum.at(best, cells.row, value)
        open_ = limit > best[cells.row] + slack
        if seen > MOST_CELLS:
            np.maximum.at(upper, cells.row[open_], limit[open_])
            break
        cells = cells.kept(open_)
    return Bounds(np.maximum(upper, best + slack), points)


def linear_part(metric: Array, d: int) -> Array:
    """Return S with v'Lam v >= e'Se for features v = (e, q) whatever q: a Schur complement.

    e are the d linear terms.
    """
    cross = metric[:d, d:]
    return np.asarray(metric[:d, :d] - cross @ np.linalg.solve(metric[d:, d:], cross.T))


class CellCoordinates:
    """The coordinates t, and what does not change from cell to cell."""

    def __init__(self, rows: LocalRows, Lam: Array, beta: Array, b: float, lam: float) -> None:
        self.rows, self.beta, self.b, self.lam = rows, beta, b, lam
        self.Lam = Lam
        self.d = d = rows.X.shape[1]
        values, vectors = np.linalg.eigh(linear_part(Lam, d))
        self.T = vectors / np.sqrt(values)
        self.push = self.T.T @ beta
        # |e|_2 <= stretch |t|_2 and |t|_2 <= shrink |e|_2
        self.stretch = float(1 / np.sqrt(values[0]))
        self.shrink = float(np.sqrt(values[-1]))
        self.bend = float(np.sqrt(np.linalg.eigvalsh(Lam[d:, d:])[-1])) * self.stretch**2
        self.least = float(np.linalg.eigvalsh(Lam)[0])
        self.first, self.second = np.triu_indices(d)

    def radius(self, known: Array) -> Array:
        """Return |t| beyond which no place is better than those known, inf where there is none.

        P >= |t|^2, and P >= mu (|v|^2 + sum_k (u_k^2 - x_k^2)^2) with mu the least eigenvalue of
        Lam and v = u - x; the sum is at least |v|^2 (|v| - 2|x|)^2/d where that is not negative.
        """
        rows = self.rows
        z = rows.X @ self.beta + self.b
        size = np.linalg.norm(rows.X, axis=1)
        reach = RADII[:, None] / self.shrink
        quartic = (reach * np.maximum(reach - 2 * size, 0.0)) ** 2 / self.d
        price = np.maximum(RADII[:, None] ** 2, self.least * (reach**2 + quartic))
        shift = np.linalg.norm(self.push) * RADII[1:, None]
        y = np.broadcast_to(rows.y, (len(shift), len(z)))
        loss = np.maximum(rows.loss.value(z + shift, y), rows.loss.value(z - shift, y))
        # the loss at the outer end of an interval, the price at the inner one
        open_ = loss - self.lam * price[:-1] > known
        last = len(shift) - 1 - open_[::-1].argmax(axis=0)
        radius = np.where(open_.any(axis=0), RADII[last + 1], RADII[0])
        return np.where(open_[-1], np.inf, radius)

    def places(self, cells: Cells) -> Array:
        """Return the centres."""
        return np.asarray(self.rows.X[cells.row] + cells.centre @ self.T.T)

    def look(self, cells: Cells) -> tuple[Array, Array]:
        """Return the gain at the centres, and a bound above it on the cells."""
        loss, cost = self.rows.loss, self.rows.cost
        X, y = self.rows.X[cells.row], self.rows.y[cells.row]
        U = self.places(cells)
        z = U @ self.beta + self.b
        price = cost.price(U, X)
        value = loss.value(z, y) - self.lam * price
        half = cells.half
        long = half * np.sqrt(self.d)
        width = np.abs(self.push).sum() * half
        above, below = loss.value(z + width, y), loss.value(z - width, y)
        slope = (above - below) / np.maximum(2 * width, np.finfo(float).tiny)
        chord = (above + below) / 2
        grad = slope[:, None] * self.push - self.lam * (cost.price_gradient(U, X) @ self.T)
        A, K = self._curvature(U, X)
        steep = np.sqrt(np.linalg.eigvalsh(A)[:, -1])
        cubic = 2 * steep * self.bend
        values, vectors = np.linalg.eigh(K)
        flat = np.minimum(values[:, 0] * long**2 - cubic * long**3, 0.0)
        first = chord - self.lam * (price + flat) + np.abs(grad).sum(axis=1) * half
        # where P is convex enough the quadratic model has a maximum of its own
        curved = values - (cubic * long)[:, None]
        turned = np.einsum("nd,nde->ne", grad, vectors)
        convex = curved[:, :1] > 0
        rise = (turned**2 / (4 * self.lam * np.where(convex, curved, np.inf))).sum(axis=1)
        second = np.where(convex[:, 0], chord - self.lam * price + rise, np.inf)
        # and from afar the distance in features is at least that of the centre less the cell's
        near = np.maximum(np.sqrt(price) - steep * long - self.bend * long**2, 0.0)
        nearest = np.linalg.norm(np.maximum(np.abs(cells.centre) - half[:, None], 0.0), axis=1)
        third = np.maximum(above, below) - self.lam * np.maximum(near, nearest) ** 2
        return value, np.minimum(np.minimum(first, second), third)

    def _curvature(self, U: Array, X: Array) -> tuple[Array, Array]:
        """Return J'Lam J and half the Hessian of P, in the coordinates t."""
        cost, d = self.rows.cost, self.d
        force = ((cost.map(U) - cost.map(X)) @ self.Lam)[:, d:]
        M = np.zeros((len(U), d, d))
        M[:, self.first, self.second] = force
        M = M + np.swapaxes(M, 1, 2)
        J = cost.derivative(U) @ self.T
        A = np.swapaxes(J, 1, 2) @ (self.Lam @ J)
        return A, A + self.T.T @ M @ self.T
