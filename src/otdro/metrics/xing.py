"""The program of Xing, Ng, Jordan and Russell (2002)."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from ..pairs import MAX_PAIRS, Pairs
from .base import Array, MetricLearner, scatters

#: Evaluations per iteration of L-BFGS, at most.
EVALUATIONS = 4
#: Steps that L-BFGS remembers.
MEMORY = 20


@dataclass(eq=False, repr=False)
class Xing(MetricLearner):
    r"""Maximise the mean distance of cannot-link pairs while must-link pairs stay near.

    That is :math:`\mathrm{mean}_N \|x_i-x_j\|_\Lambda` subject to
    :math:`\mathrm{mean}_M \|x_i-x_j\|_\Lambda^2 \le 1`.
    With :math:`S_M = CC'`, :math:`\Lambda = C^{-T}PC^{-1}` and :math:`z = C^{-1}(x_i - x_j)` the
    constraint is :math:`\mathrm{tr} P \le 1` and the concave objective
    :math:`f(P) = \mathrm{mean}_N \sqrt{z'Pz}`. L-BFGS on a square factor of P climbs; it stops on
    the certificate :math:`f^* - f(P) \le \lambda_{\max}(G) - \langle G, P\rangle`, G the gradient.

    Parameters
    ----------
    tol : float
        Stop when the certified gap is at most ``tol`` times the objective.
    max_iter : int
        The most iterations.
    max_pairs : int
        Cannot-link pairs above this number are subsampled.

    Other parameters as in ``MetricLearner``.

    Attributes
    ----------
    objective_, gap_ : float
        The mean distance reached over the cannot-link pairs and how far it can be from the best.
    n_iter_ : int
        Iterations.
    """

    _: KW_ONLY
    tol: float = 5e-5
    max_iter: int = 500
    max_pairs: int = MAX_PAIRS
    shrinkage: float = 0.3

    def solve(self, X: Array, pairs: Pairs) -> Array:
        """Whiten by S_M, climb, and undo the whitening."""
        S_M, _ = scatters(X, pairs)
        D = self._differences(X, pairs, self.max_pairs)[1]
        D = D[(D != 0).any(axis=1)]
        C = np.linalg.cholesky(S_M)
        climb = Climb(solve_triangular(C, D.T, lower=True).T, self.tol)
        P = climb.run(self.max_iter)
        self.objective_, self.gap_, self.n_iter_ = climb.objective, climb.gap, climb.n_iter
        self._warn()
        half = solve_triangular(C, P, lower=True, trans="T")
        return solve_triangular(C, half.T, lower=True, trans="T")

    def _warn(self) -> None:
        if self.gap_ > self.tol * self.objective_:
            warnings.warn(
                f"Xing stopped after {self.n_iter_} iterations at a relative gap of "
                f"{self.gap_ / self.objective_:.2g} > tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )


class Climb:
    """Maximise f(P) = mean sqrt(z'Pz) over tr P <= 1, P >= 0.

    On P = BB'/||B||^2 the objective is smooth but for z'Pz = 0, where sqrt(z'Pz + eps^2) stands in;
    a square B has no spurious local maxima.
    """

    smoothing = 1e-6

    def __init__(self, Z: Array, tol: float) -> None:
        self.Z = Z
        self.tol = tol
        self.eps2 = (Z**2).mean() * self.smoothing**2 if len(Z) else 0.0
        self.objective, self.gap, self.n_iter = 0.0, 0.0, 0

    def run(self, max_iter: int) -> Array:
        """Return the best P; without a pair that differs, every P is optimal: take I/d."""
        d = self.Z.shape[1]
        if len(self.Z) == 0:
            return np.asarray(np.eye(d) / d)
        # only the certificate stops it
        steps = {"maxiter": max_iter, "maxfun": EVALUATIONS * max_iter, "maxcor": MEMORY}
        result = minimize(  # type: ignore[call-overload]
            self.fall,
            np.eye(d).ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=self.certify,
            options={**steps, "ftol": 0, "gtol": 0},
        )
        self.n_iter = int(result.nit)
        self.fall(result.x)
        self._measure()
        return self.P

    def fall(self, b: Array) -> tuple[float, Array]:
        """Return -log f and its gradient in B; log makes the step length free of the scale of X."""
        B = b.reshape(self.Z.shape[1], -1)
        size = np.linalg.norm(B)
        B = B / size
        self.P = B @ B.T
        squared = ((self.Z @ B) ** 2).sum(axis=1)
        distance = np.sqrt(squared + self.eps2)
        # G = df/dP = mean zz'/(2 distance)
        weight = 1 / (2 * len(distance) * distance)
        self.G = (self.Z.T * weight) @ self.Z
        self.value, self.exact = distance.mean(), np.sqrt(squared).mean()
        slope = 2 * self.G @ B
        slope -= (slope * B).sum() * B  # B/||B||: only the tangent part counts
        return -float(np.log(self.value)), -(slope / (self.value * size)).ravel()

    def certify(self, _: Array) -> None:
        """Stop once the gap is below the tolerance."""
        self._measure()
        if self.gap <= self.tol * self.objective:
            raise StopIteration

    def _measure(self) -> None:
        """f* <= f_eps(P) + max over tr Q <= 1 of <G, Q - P>, by concavity."""
        top = np.linalg.eigvalsh(self.G)[-1]
        self.objective = float(self.exact)
        self.gap = float(self.value + top - (self.G * self.P).sum() - self.exact)
