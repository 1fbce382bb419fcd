"""Newton matrices of the rows in memory, and how those of all rows differ from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from .newton import StreamedProblem
from .sums import second_sums

Array = NDArray[Any]

#: The share of its mean that the diagonal of a matrix is raised by: rows in memory may be few.
RAISED = 1e-6


class KeptCurvature(NamedTuple):
    """E[D tt'], t = (z, 1), and how many rows bear it: (sum D)^2/sum D^2."""

    second: Array
    rows: float


def of_kept(problem: StreamedProblem, at: Array, left_out: int) -> KeptCurvature:
    """Return that of the rows in memory outside a fold at a model (theta, b)."""
    stream, sample = problem.stream, problem.stream.kept
    z = stream.kept_design.scores(problem.lift(at[:-1])) + at[-1]
    share = sample.weights * (stream.kept_fold != left_out)
    D = share / share.sum() * sample.loss.curvature(z, sample.ys[0])
    # the rows in memory are noise only where there are others
    tiny = np.finfo(float).tiny
    rows = np.inf if stream.all_kept else float(D.sum()) ** 2 / max(float(D @ D), tiny)
    return KeptCurvature(second_sums(stream.kept_design, D), rows)


@dataclass(frozen=True, eq=False)
class Correction:
    """T with T K T' = A, K of the rows in memory and A of all rows, at the model number ``model``
    under the price ``rho``.

    Noise of the rows in memory is nearly the same at models nearby: T takes it off theirs too.
    """

    model: int
    rho: float
    T: Array

    def of(self, matrix: KeptCurvature) -> KeptCurvature:
        """Return a matrix of the rows in memory as that of all rows would be."""
        return matrix._replace(second=self.T @ _raised(matrix.second) @ self.T.T)


def correction(model: int, rho: float, kept: KeptCurvature, everywhere: Array) -> Correction:
    """Return the correction of a matrix of the rows in memory by E[D tt'] of all rows."""
    root = cholesky(_raised(everywhere), lower=True)
    known = cholesky(_raised(kept.second), lower=True)
    # T = root known^-1
    return Correction(model, rho, solve_triangular(known.T, root.T, lower=False).T)


def nearest(corrections: list[Correction], model: int, rho: float) -> Correction | None:
    """Return the one of the same model whose price is the nearest, None where there is none."""
    same = [each for each in corrections if each.model == model]

    def apart(each: Correction) -> float:
        # prices of a path are geometric
        low, high = sorted((rho, each.rho))
        return float(high / low) if low > 0 else np.inf

    return min(same, key=apart, default=None)


def _raised(A: Array) -> Array:
    # each entry by a share of its own: columns may be of very different units
    return A + np.diag(np.maximum(RAISED * np.diag(A), np.finfo(float).tiny))
