"""The transport discrepancy of two distributions, D_c."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costs import Cost
from ..design import as_dense
from .distribution import WorstCase

Array = NDArray[Any]

#: Masses of a label that differ by less are equal.
EQUAL_MASS = 1e-9

#: Points, targets, and weights or None.
Weighted = tuple[Any, Any, Any]


def discrepancy(P: Weighted | WorstCase, Q: Weighted | WorstCase, cost: Cost, order: int) -> float:
    r"""Return :math:`D_c(P, Q)`, the least mean cost of moving P onto Q, :math:`c = d^{order}`.

    P and Q are (points, targets, weights or None) or a ``WorstCase``. Labels cannot be moved: the
    value is inf where their masses differ. The Kantorovich linear program of each label is solved
    by POT if it is installed, else by HiGHS.
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got order={order!r}.")
    p, q = _sample(P, "P"), _sample(Q, "Q")
    if p[0].shape[1] != q[0].shape[1]:
        raise ValueError(f"P has {p[0].shape[1]} columns and Q has {q[0].shape[1]}.")
    total = 0.0
    for label in np.union1d(p[1], q[1]):
        a, b = (s[2][s[1] == label] for s in (p, q))
        if abs(a.sum() - b.sum()) > EQUAL_MASS:
            return np.inf
        if a.sum() == 0:
            continue
        U, V = (s[0][s[1] == label] for s in (p, q))
        total += _transport(a, b * (a.sum() / b.sum()), cost.distance(U, V) ** order)
    return total


def _sample(sample: Weighted | WorstCase, name: str) -> tuple[Array, Array, Array]:
    if isinstance(sample, WorstCase):
        sample = (sample.points, sample.targets, sample.weights)
    points, targets, weights = sample
    points = np.asarray(as_dense(points), dtype=float)
    targets = np.asarray(targets)
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    if points.ndim != 2 or len(points) != len(targets) or len(points) != len(weights):
        raise ValueError(
            f"{name} must be (points, targets, weights) of equal lengths, got shapes "
            f"{points.shape}, {targets.shape} and {weights.shape}."
        )
    if not np.isfinite(points).all() or not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError(f"{name} has a point or weight that is negative or not finite.")
    if weights.sum() <= 0:
        raise ValueError(f"the weights of {name} sum to {weights.sum()}; they must be positive.")
    return points, targets, weights / weights.sum()


def _transport(a: Array, b: Array, C: Array) -> float:
    """Return min <C, T> over T >= 0 with row sums a and column sums b."""
    if len(a) == 1 or len(b) == 1:
        return float(np.sum(C * np.outer(a, b)) / a.sum())
    try:
        import ot
    except ImportError:
        return _transport_highs(a, b, C)
    return float(ot.emd2(a, b, C, numItermax=10_000_000))


def _transport_highs(a: Array, b: Array, C: Array) -> float:
    from scipy.optimize import linprog

    m, k = C.shape
    rows = sparse.kron(sparse.eye(m), np.ones((1, k)))
    columns = sparse.kron(np.ones((1, m)), sparse.eye(k))
    found: Any = linprog(  # type: ignore[call-overload]
        C.ravel(), A_eq=sparse.vstack([rows, columns]), b_eq=np.concatenate([a, b]), method="highs"
    )
    if found.status != 0:
        raise RuntimeError(f"the transport program was not solved: {found.message}")
    return float(found.fun)
