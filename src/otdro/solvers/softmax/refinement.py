r"""Probabilities that fit given flows, where the Hessian of the loss is not at hand.

A step of a model whose matrix only resembles the Hessian leaves a residual
:math:`r = -\sum_p v_p(e_k - e_l)' - Z'(\pi(q - e_y))`, by whose size the dual bound is off.
Conjugate gradients find the scores s with Hessian s = r, by products with the rows alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Products with the Hessian at most, and the share of the residual that may be left.
PRODUCTS, LEFT = 12, 1e-4


def fitted(rows: SoftmaxRows, p: Array, q: Array, flows: Array, H: Array) -> Array:
    """Return q moved by (diag p - pp') s, one s per row, towards the flows; H preconditions."""
    d, m = rows.design.d, rows.classes - 1
    a = rows.slopes(q)
    r = -flows.T @ rows.incidence - rows.adjoint(a)
    residual = (r @ rows.basis).ravel()
    if rows.fit_intercept:
        residual = np.append(residual, -(rows.weights @ a) @ rows.basis)
    factor = factored(H)
    enough = LEFT * np.linalg.norm(residual)
    direction = np.zeros_like(residual)
    before = 1.0
    for _ in range(PRODUCTS):
        if np.linalg.norm(residual) <= enough:
            break
        pushed = cho_solve(factor, residual, check_finite=False)
        now = float(residual @ pushed)
        direction = pushed + now / before * direction if direction.any() else pushed
        before = now
        parts = direction.reshape(-1, m)
        c = parts[d] if rows.fit_intercept else np.zeros(m)
        change = rows.bent(p, rows.scores(parts[:d], c))
        product = (rows.adjoint(change) @ rows.basis).ravel()
        if rows.fit_intercept:
            product = np.append(product, (rows.weights @ change) @ rows.basis)
        length = now / float(direction @ product)
        q = q + length * change
        residual = residual - length * product
    return q
