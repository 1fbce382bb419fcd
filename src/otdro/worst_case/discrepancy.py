"""The transport discrepancy of two distributions, D_c."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import told_of_text
from ..costs import Cost
from ..design import as_dense
from ..problem import check_price
from .adversary import EQUAL, WorstCase

Array = NDArray[Any]

#: Steps of the network simplex at most: far more than samples that fit into memory take.
PIVOTS = 10_000_000

#: Points, targets, and weights or None.
Weighted = tuple[Any, Any, Any]


@told_of_text()
def discrepancy(
    P: Weighted | WorstCase,
    Q: Weighted | WorstCase,
    cost: Cost,
    order: int,
    *,
    label_cost: float = np.inf,
    target_cost: float = np.inf,
) -> float:
    r"""Return :math:`D_c(P, Q)`, the least mean cost of moving P onto Q, :math:`c = d^{order}`.

    The Kantorovich linear program, of each label where labels are fixed, is solved by POT if it is
    installed, else by HiGHS.

    Parameters
    ----------
    P, Q : tuple (points, targets, weights or None) or WorstCase
        The two distributions; None stands for equal weights.
    cost : Cost
        The distance d, of ``otdro.costs``.
    order : {1, 2}
        The power of the distance that is the cost.
    label_cost : float > 0, default=inf
        The price of changing a label, as in ``Ball``.
    target_cost : float > 0, default=inf
        The price of moving a target by t, times ``|t|**order``. Where both prices are inf, the
        value is inf if the masses of the labels differ.

    Returns
    -------
    float

    Examples
    --------
    >>> from otdro import discrepancy
    >>> from otdro.costs import Norm
    >>> here = ([[0.0, 0.0], [1.0, 0.0]], [1, 1], None)
    >>> there = ([[0.0, 2.0], [1.0, 2.0]], [1, 1], None)
    >>> discrepancy(here, there, Norm(2), order=1)
    2.0
    >>> discrepancy(here, there, Norm(2), order=2)
    4.0
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got order={order!r}.")
    p, q = _sample(P, "P"), _sample(Q, "Q")
    if p[0].shape[1] != q[0].shape[1]:
        raise ValueError(f"P has {p[0].shape[1]} columns and Q has {q[0].shape[1]}.")
    prices = (check_price(label_cost, "label_cost"), check_price(target_cost, "target_cost"))
    if np.isfinite(min(prices)):
        price = cost.distance(p[0], q[0]) ** order + _target_prices(p[1], q[1], *prices, order)
        return _transport(p[2], q[2], price)
    total = 0.0
    for label in np.union1d(p[1], q[1]):
        a, b = (s[2][s[1] == label] for s in (p, q))
        if abs(a.sum() - b.sum()) > EQUAL:
            return np.inf
        if a.sum() == 0:
            continue
        U, V = (s[0][s[1] == label] for s in (p, q))
        total += _transport(a, b * (a.sum() / b.sum()), cost.distance(U, V) ** order)
    return total


def _target_prices(a: Array, b: Array, label_cost: float, target_cost: float, order: int) -> Array:
    """Return what it costs to turn the targets a into b, by the cheaper price."""
    differ = a[:, None] != b[None, :]
    price = np.where(differ, label_cost, 0.0)
    if np.isfinite(target_cost):
        moved = target_cost * np.abs(a[:, None] - b[None, :]) ** order
        price = np.minimum(price, moved)
    return price


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
    return float(ot.emd2(a, b, C, numItermax=PIVOTS))


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
