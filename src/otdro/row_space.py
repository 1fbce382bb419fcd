"""The span of the rows, in which a minimiser lies: few rows need no more coordinates than rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from .arrays import beside, namespace, numpy
from .design import Design

Array = NDArray[Any]

#: Rows up to which wide ones are reduced to their span.
REDUCE_UP_TO = 5_000
#: Entries of Z up to which a wide one is decomposed itself, without its kernel.
DECOMPOSE_UP_TO = 500_000
#: The same for a problem without a penalty.
PLAIN_UP_TO = 50_000_000
#: Rows up to which singular values tell the directions that no row has: problems of more do not
#: start from solutions over other rows, which may go there, and take a triangular factor.
SINGULAR_UP_TO = 150


class Span:
    """The span of the rows of Z as theta = V eta with orthonormal columns of V (d, rank)."""

    def __init__(self, basis: Array) -> None:
        self.basis = basis

    def lift(self, eta: Array) -> Array:
        """Return V eta."""
        return self.basis @ eta

    def drop(self, theta: Array) -> Array:
        """Return V'theta."""
        return self.basis.T @ theta


class KernelSpan(Span):
    """The same with V = Z'W, never formed: W = U/s from the kernel ZZ' = U s^2 U'."""

    def __init__(self, design: Design, W: Array) -> None:
        self.design, self.W = design, W

    def lift(self, eta: Array) -> Array:
        """Return Z'(W eta)."""
        return self.design.adjoint(self.W @ beside(eta, self.W))

    def drop(self, theta: Array) -> Array:
        """Return W'(Z theta)."""
        return numpy(self.W.T @ self.design.scores(theta))


def triangular_rows(Z: Array) -> tuple[Array, Array]:
    """Return B (n, n), lower triangular, and V (d, n), V'V = I, with Z = BV' for n <= d rows."""
    # the transpose of a copy in the order of its rows is decomposed in place
    V, R = qr(np.array(Z, order="C").T, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(R.T), V


def row_space(design: Design, plain: bool = False) -> tuple[Design, Span]:
    """Return the design with rows Z V and the span V of the rows of Z.

    A minimiser of any function of Z theta and ||theta||_2 lies in that span: theta = V eta, with
    equal norms. Small rows are decomposed themselves, others through their kernel, which leaves
    out directions below the root of the rounding of the longest. A ``plain`` problem, without a
    penalty, may need those and takes the kernel only where the rows would be too many numbers.
    """
    if design.n * design.d > (PLAIN_UP_TO if plain else DECOMPOSE_UP_TO):
        return _kernel_space(design)
    Z = design.dense()
    if design.n > SINGULAR_UP_TO and not plain and isinstance(Z, np.ndarray):
        rows, basis = triangular_rows(Z)
        return Design(rows), Span(basis)
    U, s, Vt = namespace(Z).linalg.svd(Z, full_matrices=False)
    s, Vt = numpy(s), numpy(Vt)
    keep = s > 1e-14 * max(s[0], np.finfo(float).tiny) if len(s) else np.zeros(0, dtype=bool)
    keep[:1] = True
    return Design(U[:, keep] * beside(s[keep], U)), Span(Vt[keep].T)


def _kernel_space(design: Design) -> tuple[Design, Span]:
    K = design.kernel()
    square, U = namespace(K).linalg.eigh(K)
    square = numpy(square)
    noise = design.n * np.finfo(float).eps * max(square[-1], np.finfo(float).tiny)
    keep = square > noise
    keep[-1:] = True
    s = beside(np.sqrt(np.maximum(square[keep], noise)), U)
    Z = U[:, keep] * s
    # eigenvectors come column by column, products read rows
    rows = np.ascontiguousarray(Z) if isinstance(Z, np.ndarray) else Z
    return Design(rows), KernelSpan(design, U[:, keep] / s)
