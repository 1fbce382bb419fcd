r"""Probabilities that fit given flows, where the Hessian of the loss is not at hand.

A step of a model whose matrix only resembles the Hessian leaves a residual
:math:`r = -\sum_p v_p(e_k - e_l)' - Z'(\pi(q - e_y))`, by whose size the dual bound is off.
Conjugate gradients find the scores s with Hessian s = r, by products with the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from ...duality.ties import factored
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Products with the Hessian at most, and the share of the residual that may be left.
PRODUCTS, LEFT = 12, 1e-2


def fitted(rows: SoftmaxRows, p: Array, q: Array, flows: Array, H: Array) -> Array:
    """Return q moved by (diag p - pp') s, one s per row, towards the flows; H preconditions.

    All have a first axis of length 1, that of the problems.
    """
    d, m = rows.design.d, rows.classes - 1
    residual = -rows.gradient(rows.slopes(q))[0]
    residual[: d * m] -= (flows[0].T @ rows.incidence @ rows.basis).ravel()
    factor = factored(H[0])

    def change(s: Array) -> Array:
        return rows.bent(p, rows.scores(*rows.split(s[None])))

    def operator(product: Callable[[Array], Array]) -> LinearOperator:
        return LinearOperator(H[0].shape, matvec=product)

    hessian = operator(lambda s: rows.gradient(change(s))[0])
    inverse = operator(lambda r: cho_solve(factor, r, check_finite=False))
    s, _ = cg(hessian, residual, rtol=LEFT, maxiter=PRODUCTS, M=inverse)
    return q + change(s)
