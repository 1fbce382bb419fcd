"""The program of Xing, Ng, Jordan and Russell (2002)."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from ..pairs import MAX_PAIRS, Pairs
from .base import Array, MetricLearner, scatters

#: The distance that is added under the root, relative to the root mean square of the entries.
SMOOTHING = 1e-6


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
        P = self._climb(solve_triangular(C, D.T, lower=True).T)
        if self.gap_ > self.tol * self.objective_:
            warnings.warn(
                f"Xing stopped after {self.n_iter_} iterations at a relative gap of "
                f"{self.gap_ / self.objective_:.2g} > tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        half = solve_triangular(C, P, lower=True, trans="T")
        return solve_triangular(C, half.T, lower=True, trans="T")

    def _climb(self, Z: Array) -> Array:
        """Maximise f(P) = mean sqrt(z'Pz) over tr P <= 1, P >= 0, and store the certificate.

        On P = BB'/||B||^2 the objective is smooth but for z'Pz = 0, where sqrt(z'Pz + eps^2) stands
        in; a square B has no spurious local maxima.
        """
        d = Z.shape[1]
        if len(Z) == 0:
            # without a pair that differs, every P is optimal
            self.objective_, self.gap_, self.n_iter_ = 0.0, 0.0, 0
            return np.asarray(np.eye(d) / d)
        eps2 = (Z**2).mean() * SMOOTHING**2

        def at(b: Array) -> tuple[Array, Array, Array, Array]:
            """Return B of norm 1, the squares z'Pz, the smoothed distances and G = df/dP."""
            B = b.reshape(d, d) / np.linalg.norm(b)
            squared = ((Z @ B) ** 2).sum(axis=1)
            distance = np.sqrt(squared + eps2)
            # mean zz'/(2 distance)
            return B, squared, distance, (Z.T / (2 * len(Z) * distance)) @ Z

        point = at(np.eye(d).ravel())

        def fall(b: Array) -> tuple[float, Array]:
            """Return -log f and its gradient: log makes the step length free of the scale of X."""
            nonlocal point
            B, _, distance, G = point = at(b)
            slope = 2 * G @ B
            # B/||B||: only the tangent part counts
            slope -= (slope * B).sum() * B
            value = distance.mean()
            return -float(np.log(value)), -(slope / (value * np.linalg.norm(b))).ravel()

        def certify(_: Array) -> None:
            """Stop once the gap is below the tolerance; only this stops the climb."""
            B, squared, distance, G = point
            self.objective_ = float(np.sqrt(squared).mean())
            # f* <= f_eps(P) + max over tr Q <= 1 of <G, Q - P>, by concavity
            most = np.linalg.eigvalsh(G)[-1] - (G * (B @ B.T)).sum()
            self.gap_ = float(distance.mean() + most - self.objective_)
            if self.gap_ <= self.tol * self.objective_:
                raise StopIteration

        result = minimize(  # type: ignore[call-overload]
            fall,
            np.eye(d).ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=certify,
            options={"maxiter": self.max_iter, "maxfun": np.inf, "ftol": 0, "gtol": 0},
        )
        self.n_iter_ = int(result.nit)
        fall(result.x)
        with suppress(StopIteration):
            certify(result.x)
        return np.asarray(point[0] @ point[0].T)
