"""The worst-case distribution of a model, and the transport discrepancy that bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .costs import Cost
from .design import Design, as_dense
from .duality import worst_risk
from .losses import Loss, PiecewiseQuadratic
from .problem import Ball

Array = NDArray[Any]

#: Relative to the robust risk, what a distribution may fall short by where none attains it.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class WorstCase:
    r"""A distribution in the ball whose risk is the worst-case risk, to ``shortfall``.

    ``points`` of shape (k, d), ``targets`` and ``weights`` of shape (k,); ``origin`` is the row of
    X each point was moved from, and the masses of the points of a row sum to the row's weight.
    ``budget`` is the mean cost of the move, at most delta. Where the supremum is not attained
    (mass would escape to infinity) ``attained`` is False and ``shortfall`` the stated tolerance.
    """

    points: Array
    targets: Array
    weights: Array
    origin: Array
    budget: float
    risk: float
    attained: bool
    shortfall: float


@dataclass(frozen=True, eq=False)
class Moves:
    """Atoms: the ``origin`` row, its ``mass``, and the signed ``shift`` of its score."""

    origin: Array
    mass: Array
    shift: Array
    attained: bool


def worst_case(
    X: Any, y: Array, weights: Array, coef: Array, intercept: float, loss: Loss, ball: Ball
) -> WorstCase:
    """Return a worst-case distribution of the model (coef, intercept) over the ball."""
    z = Design(X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    dual = worst_risk(z, y, weights, loss, w, ball)
    moves = _moves(z, y, weights, loss, w, ball, dual.multiplier)
    t = np.abs(moves.shift) / w if w > 0 else np.zeros_like(moves.shift)
    budget = float(moves.mass @ t**ball.order)
    risk = float(moves.mass @ loss.value(z[moves.origin] + moves.shift, y[moves.origin]))
    rows = as_dense(X)
    direction = ball.cost.direction(coef)
    points = rows[moves.origin] + np.outer(np.sign(moves.shift) * t, direction)
    shortfall = max(0.0, dual.risk - risk)
    return WorstCase(
        points, y[moves.origin], moves.mass, moves.origin, budget, risk, moves.attained, shortfall
    )


def _moves(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, ball: Ball, lam: float
) -> Moves:
    """Return the atoms of a worst case."""
    if w == 0 or ball.delta == 0:
        return Moves(np.arange(len(y)), weights, np.zeros(len(y)), True)
    if ball.order == 1:
        return _order_one(z, y, weights, loss, w, ball.delta)
    if isinstance(loss, PiecewiseQuadratic) and loss.kappa > 0:
        if not np.any(weights * loss.value(z, y)):
            return _from_zero_risk(z, y, weights, loss, w, ball.delta)
        if np.isinf(loss.lipschitz):
            # every residual grows by the factor 1 + sqrt(delta) w/rms
            shift = loss.derivative(z, y)
            return _within(Moves(np.arange(len(y)), weights, shift, True), w, ball.delta)
    return _order_two(z, y, weights, loss, w, ball.delta, lam)


def _order_two(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, delta: float, lam: float
) -> Moves:
    """Move each row to its inner maximiser; rows with two share their mass: E t^2 = delta."""
    inner = loss.inner(z, y, w, lam)
    best = inner.value.argmax(axis=0)
    cost = (inner.shift / w) ** 2
    if len(inner.value) == 1:
        shift = inner.shift[0]
        return _within(Moves(np.arange(len(y)), weights, shift, True), w, delta)
    cheap, dear = cost.argmin(axis=0), cost.argmax(axis=0)
    each = np.arange(len(y))
    apart = np.abs(inner.value[0] - inner.value[1])
    tied = apart <= 1e-7 * (1 + np.abs(inner.value[best, each]))
    tied &= cost[dear, each] > cost[cheap, each]
    fixed = np.where(tied, 0.0, weights * cost[best, each]).sum()
    least, most = (float((weights * cost[k, each])[tied].sum()) for k in (cheap, dear))
    share = np.clip((delta - fixed - least) / (most - least), 0, 1) if most > least else 0.0
    origin = np.concatenate([each, each[tied]])
    branch = np.concatenate([np.where(tied, cheap, best), dear[tied]])
    mass = np.concatenate([np.where(tied, (1 - share) * weights, weights), share * weights[tied]])
    keep = (mass > 0) | (np.arange(len(mass)) < len(y)) & (weights[origin] == 0)
    moves = Moves(origin[keep], mass[keep], inner.shift[branch, origin][keep], True)
    return _within(moves, w, delta)


def _within(moves: Moves, w: float, delta: float) -> Moves:
    """Scale the shifts so that the budget is delta to rounding."""
    spent = float(moves.mass @ (moves.shift / w) ** 2)
    scale = np.sqrt(delta / spent) if spent > 0 else 1.0
    return Moves(moves.origin, moves.mass, moves.shift * scale, moves.attained)


def _from_zero_risk(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, delta: float
) -> Moves:
    """Return the worst case of a loss without risk that is quadratic there, from nowhere steep."""
    n = len(y)
    if loss.task == "regression":
        # e = 0: half of each row goes sqrt(delta) either way
        step = np.sqrt(delta) * w
        both = np.concatenate([np.full(n, step), np.full(n, -step)])
        return Moves(np.tile(np.arange(n), 2), np.tile(weights / 2, 2), both, True)
    # margins above 1: a mass eps of the nearest row at distance sqrt(delta/eps) has risk
    # (sqrt(delta) w - slack sqrt(eps))^2
    slack = np.where(weights > 0, y * z - 1, np.inf)
    i = int(slack.argmin())
    eps = float(weights[i])
    if slack[i] > 0:
        eps = min(eps, (TOLERANCE * np.sqrt(delta) * w / (2 * slack[i])) ** 2)
    shift = np.append(np.zeros(n), -y[i] * w * np.sqrt(delta / eps))
    mass = np.append(weights, eps)
    mass[i] -= eps
    return Moves(np.append(np.arange(n), i), mass, shift, bool(slack[i] <= 0))


def _order_one(z: Array, y: Array, weights: Array, loss: Loss, w: float, delta: float) -> Moves:
    """Spend the budget where the slope is the Lipschitz constant, or on a mass that goes far."""
    sign = steepest_sign(z, y, loss)
    gain = loss.value(z + sign, y) - loss.value(z, y)
    steep = (gain >= loss.lipschitz * (1 - 1e-12)) & (weights > 0)
    n = np.arange(len(y))
    if isinstance(loss, PiecewiseQuadratic) and steep.any():
        t = delta / weights[steep].sum()
        return Moves(n, weights, np.where(steep, sign * w * t, 0.0), True)
    # a share eps of every row moved by delta/eps falls short by O(eps): halve it until small
    eps, risk = 0.5, float(weights @ loss.value(z, y)) + delta * loss.lipschitz * w
    while eps > 1e-14:
        far = (1 - eps) * loss.value(z, y) + eps * loss.value(z + sign * w * delta / eps, y)
        if risk - weights @ far <= TOLERANCE * risk:
            break
        eps /= 4
    mass = np.concatenate([(1 - eps) * weights, eps * weights])
    shift = np.concatenate([np.zeros(len(y)), sign * w * delta / eps])
    return Moves(np.tile(n, 2), mass, shift, False)


def steepest_sign(z: Array, y: Array, loss: Loss) -> Array:
    """Return the sign of the score's move along which the loss is, in the end, steepest."""
    far = 1e6 * (1 + np.abs(y) + np.abs(z))
    up, down = loss.derivative(far, y), -loss.derivative(-far, y)
    even = np.where(loss.derivative(z, y) >= 0, 1.0, -1.0)
    return np.where(up > down, 1.0, np.where(up < down, -1.0, even))


Sample = tuple[Any, Any, Any]


def discrepancy(P: Sample | WorstCase, Q: Sample | WorstCase, cost: Cost, order: int) -> float:
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
        if abs(a.sum() - b.sum()) > 1e-9:
            return np.inf
        if a.sum() == 0:
            continue
        U, V = (s[0][s[1] == label] for s in (p, q))
        total += _transport(a, b * (a.sum() / b.sum()), cost.distance(U, V) ** order)
    return total


def _sample(sample: Sample | WorstCase, name: str) -> tuple[Array, Array, Array]:
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
