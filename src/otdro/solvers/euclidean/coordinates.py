"""Centred coordinates, in which Euclidean problems are round: one problem, or many over X."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from ...costs.mahalanobis import StructuredFactor, shortest
from ...design import REDUCE_UP_TO, Design, Span, mean, row_space
from ...problem import Problem, Solution
from ..base import Starts, verdict

Array = NDArray[Any]


class Minimisers(Protocol):
    """Minimisers of a batch of problems, the batch along the last axis."""

    theta: Array
    b: Array
    objective: Array
    gap: Array
    n_iter: Array


class Coordinates:
    r"""Whitened, centred coordinates: :math:`\beta = LV\theta`, :math:`\|\beta\|_* = \|\theta\|_2`.

    L is the factor of the cost, V spans the rows of a wide problem (else the identity), and the
    intercept is that of the centred rows, :math:`b + \bar x'\beta`. Methods that need products
    with the rows only, and these sparse, do without V (``reduce`` False). ``center`` stands in for
    the mean row: any point near it serves.
    """

    span: Span | None

    def __init__(self, problem: Problem, reduce: bool = True, center: Array | None = None) -> None:
        self.center = None
        if problem.fit_intercept:
            self.center = mean(problem.X, problem.weights) if center is None else center
        cost = problem.ball.cost
        self.factor = cost.factor() if cost.euclidean else None
        self.X, self.span = problem.X, None
        if reduce and cost.euclidean and _is_wide(problem.X, self.d):
            self.design, self.span = row_space(self.design, problem.ball.delta == 0)

    @property
    def d(self) -> int:
        """The columns of L."""
        return int(self.X.shape[1] if self.factor is None else self.factor.shape[1])

    @cached_property
    def design(self) -> Design:
        """The rows in these coordinates."""
        return Design(self.X, self.factor, self.center)

    def theta(self, coef: Array) -> Array:
        """Return the coordinates of coefficients beta."""
        theta = coef if self.factor is None else shortest(self.factor, coef)
        return theta if self.span is None else self.span.drop(theta)

    def coef(self, theta: Array) -> Array:
        """Return beta = L V theta."""
        theta = theta if self.span is None else self.span.lift(theta)
        return theta if self.factor is None else self.factor @ theta

    def intercept(self, b: float, coef: Array) -> float:
        """Return the intercept on the rows as given, from that on centred rows."""
        return float(self._shifted(b, -coef))

    def centred(self, intercept: float, coef: Array) -> float:
        """Return the intercept on centred rows, from that on the rows as given."""
        return float(self._shifted(intercept, coef))

    def _shifted(self, b: Any, coef: Array) -> Any:
        return b if self.center is None else b + self.center @ coef

    def places(self, starts: Starts) -> tuple[Array, Array]:
        """Return theta (d, B) and the intercepts on centred rows of solutions."""
        coef = np.stack([start.coef for start in starts], axis=1)
        return self.theta(coef), self._shifted(np.array([s.intercept for s in starts]), coef)

    def solutions(
        self,
        minima: Minimisers,
        lam: Array,
        dual: Array | None,
        target: Array,
        mean_loss: list[float] | None = None,
    ) -> list[Solution]:
        """Return a batch of minima on the rows as given, certified where a gap is on target."""
        coefs = self.coef(minima.theta)
        intercepts = np.asarray(self._shifted(minima.b, -coefs), dtype=float).tolist()
        gaps, goals, steps = minima.gap.tolist(), target.tolist(), minima.n_iter.tolist()
        objectives, multipliers = minima.objective.tolist(), lam.tolist()
        return [
            Solution(
                coef=np.ascontiguousarray(coefs[:, j]),
                intercept=intercepts[j],
                multiplier=multipliers[j],
                objective=objectives[j],
                gap=gaps[j],
                n_iter=steps[j],
                converged=gaps[j] <= goals[j],
                message=verdict(gaps[j], goals[j], steps[j]),
                dual=None if dual is None else dual[:, j],
                mean_loss=None if mean_loss is None else mean_loss[j],
            )
            for j in range(len(gaps))
        ]


def _is_wide(X: Any, d: int) -> bool:
    """Whether rows of d coordinates are reduced to their span."""
    return bool(d > X.shape[0] and X.shape[0] <= REDUCE_UP_TO)


@dataclass(eq=False)
class FactoredRows:
    """The rows z_i = L_b'(x_i - c) of B problems over the same X, each under its own cost.

    Problem b has the factor L number ``owner[b]`` (None: the identity), which acts on coefficients
    and products; ``base`` holds the rows x_i - c. Of a structured factor [diag(root), F] the rows
    are [X diag(root), ``low``], low = XF, and c = 0. Vectors have the problems along their last
    axis and as many entries as the widest factor has columns.
    """

    base: Design
    factors: list[Any]
    low: list[Array | None]
    owner: Array

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.base.n

    @property
    def sparse(self) -> bool:
        """Whether X is sparse."""
        return self.base.sparse

    @cached_property
    def d(self) -> int:
        """The columns of the widest factor."""
        return max(self.base.d if L is None else int(L.shape[1]) for L in self.factors)

    def problems(self, index: Array) -> FactoredRows:
        """Return the rows of some problems."""
        return FactoredRows(self.base, self.factors, self.low, self.owner[index])

    @property
    def uncentred(self) -> FactoredRows:
        """The rows without their centre."""
        return FactoredRows(self.base.uncentred, self.factors, self.low, self.owner)

    @cached_property
    def _groups(self) -> list[tuple[Any, Array | None, Array]]:
        """Each factor with XF, if it is structured, and the places of its problems."""
        owners = np.unique(self.owner).tolist()
        places = [np.flatnonzero(self.owner == k) for k in owners]
        return [(self.factors[k], self.low[k], at) for k, at in zip(owners, places, strict=True)]

    def _lift(self, theta: Array) -> Array:
        """Return L_b theta_b, of a structured factor diag(root) times its part of theta."""
        beta = np.empty((self.base.d, theta.shape[1]))
        for L, low, some in self._groups:
            part = theta[: self.base.d, some]
            if low is not None:
                part = L.root[:, None] * part
            elif L is not None:
                part = L @ part
            beta[:, some] = part
        return beta

    def _pull(self, g: Array) -> Array:
        """Return L_b'g_b, of a structured factor diag(root) g_b."""
        pulled = np.zeros((self.d, g.shape[1]))
        for L, low, some in self._groups:
            part = g[:, some]
            if low is not None:
                part = L.root[:, None] * part
            elif L is not None:
                part = L.T @ part
            pulled[: len(part), some] = part
        return pulled

    def shift(self, theta: Array) -> Array:
        """Return what the centre takes off every score."""
        return self.base.shift(self._lift(theta))

    def scores(self, theta: Array) -> Array:
        """Return Z_b theta_b, shape (n, B)."""
        z = self.base.scores(self._lift(theta))
        for _, low, some in self._groups:
            if low is not None:
                z[:, some] += low @ theta[self.base.d : self.base.d + low.shape[1], some]
        return z

    def adjoint(self, r: Array) -> Array:
        """Return Z_b'r_b, shape (d, B)."""
        g = self._pull(self.base.adjoint(r))
        for _, low, some in self._groups:
            if low is not None:
                g[self.base.d : self.base.d + low.shape[1], some] = low.T @ r[:, some]
        return g

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z_b' diag(D_b) Z_b, shape (B, d, d), and Z_b'D_b, shape (d, B)."""
        G, s = self.base.moments(D)
        for L, _, some in self._groups:
            if L is not None:
                G[some] = L.T @ G[some] @ L
        return G, self._pull(s)

    def lent(self, H: Array, h: Array, B: int) -> tuple[Array, Array]:
        """Return H (B, d, d) and h (d, B) of all problems from Z'DZ and Z'D of the first.

        They become T'HT and T'h, T = L^-1 L_b.
        """
        own = self.factors[self.owner[0]]
        matrices, pulls = np.empty((B, *H.shape)), np.empty((len(h), B))
        for L, _, some in self._groups:
            T = np.eye(len(h)) if L is None else L
            T = T if own is None else solve_triangular(own, T, lower=True)
            matrices[some] = H if L is own else T.T @ H @ T
            pulls[:, some] = (h if L is own else T.T @ h)[:, None]
        return matrices, pulls

    @cached_property
    def offset(self) -> Array:
        """|L|'|c|, what is subtracted from each column, shape (B, d)."""
        size = np.empty((len(self.owner), self.d))
        for L, _, some in self._groups:
            size[some] = self.base.offset if L is None else np.abs(L).T @ self.base.offset
        return size

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant."""
        return self.offset**2 * self.base.left_of_squares


class CostSpan(Span):
    """The span of wide rows under a cost: beta = C gamma, ||beta||_* = ||gamma||_2."""

    def __init__(self, span: Span, basis: Array, L: Any) -> None:
        # V orthonormal, theta = L'V c, so ||theta||^2 = c'Ac and beta = L L'V c, A = V'LL'V = GG'
        M = basis
        if L is not None:
            M = L.pull(basis) if isinstance(L, StructuredFactor) else L.T @ basis
        self.rows, self.root = span, cholesky(M.T @ M, lower=True)
        lifted = solve_triangular(self.root, M.T, lower=True).T
        self.basis = lifted if L is None else L @ lifted

    def drop(self, theta: Array) -> Array:
        """Return the coordinates gamma of coefficients."""
        gamma: Array = solve_triangular(self.root, self.rows.drop(theta), lower=True)
        return gamma


def together(
    problems: list[Problem], reduce: bool = True, center: Array | None = None
) -> tuple[FactoredRows, list[Coordinates]]:
    """Return the rows and the coordinates of problems over the same X, each under its own cost.

    Wide rows are reduced to their span once, structured costs of others are written out; ``reduce``
    and ``center`` are as of ``Coordinates``.
    """
    first = problems[0]
    if first.fit_intercept and center is None:
        center = mean(first.X, first.weights)
    each = [Coordinates(problem, reduce=False, center=center) for problem in problems]
    factors = [at.factor for at in each]
    base = Design(first.X, None, each[0].center)
    if reduce and _is_wide(first.X, max(at.d for at in each)):
        base, span = row_space(base)
        basis = span.lift(np.eye(base.d))
        for p, at in enumerate(each):
            own = CostSpan(span, basis, at.factor)
            at.span, at.factor, factors[p] = own, None, own.root
    elif reduce:
        for p, at in enumerate(each):
            if isinstance(at.factor, StructuredFactor):
                at.factor = factors[p] = cholesky(at.factor.matrix.toarray(), lower=True)
    low = [
        base.X @ L.matrix.components if isinstance(L, StructuredFactor) else None for L in factors
    ]
    return FactoredRows(base, factors, low, np.arange(len(problems))), each
