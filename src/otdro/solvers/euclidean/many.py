"""Many small problems of order 1, each with its own rows, as one Newton iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import as_float, beside, full, namespace, require_one_place
from ...costs import Cost, Norm
from ...duality import require_lipschitz
from ...losses import Loss, resolve
from .batch import Batch, norms
from .order_one import minimise
from .stack import Stack

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Solutions:
    """The solutions of B problems: ``coef`` (B, d), the rest (B,), arrays as X was.

    ``gap`` is absolute, as in ``Solution``; ``converged`` where it is at most ``tol`` times the
    risk of the best constant model.
    """

    coef: Array
    intercept: Array
    multiplier: Array
    objective: Array
    gap: Array
    n_iter: Array
    converged: Array


def solve_many(
    X: Any,
    y: Any,
    deltas: Any,
    *,
    weights: Any = None,
    loss: str | Loss = "logistic",
    cost: Cost | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> Solutions:
    r"""Solve B problems :math:`\min E\,\ell + \delta\,\mathrm{Lip}\,\|\beta\|_*` (order 1) at once.

    Folds, deltas, costs and replications of a small sample are such problems. NumPy, torch and
    CuPy arrays; everything runs and stays where X is, in float64.

    Parameters
    ----------
    X : array of shape (B, n, d)
        The rows of each problem. Problems of fewer rows have rows of weight 0.
    y : array of shape (B, n)
        Labels -1 and +1.
    deltas : float or array of shape (B,)
        The radius of each problem.
    weights : array of shape (B, n), default=None
        Nonnegative, only the ratios within a problem matter; None: all rows weigh the same.
    loss : "logistic" or Loss
        A smooth Lipschitz loss of labels.
    cost : Cost, default=None
        A Euclidean or Mahalanobis cost, the same for all; None: Euclidean.
    fit_intercept : bool
        Whether each problem has an intercept, which is not penalised.
    tol : float
        The gap asked for, relative to the risk of the best constant model.
    max_iter : int
        Newton steps at most.

    Returns
    -------
    Solutions
        ``coef`` (B, d), ``intercept``, ``multiplier``, ``objective``, ``gap``, ``n_iter`` and
        ``converged`` (B,).

    Examples
    --------
    >>> import numpy as np
    >>> from otdro.solvers import solve_many
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((3, 40, 2))
    >>> y = np.where(X[:, :, 0] + 0.5 * rng.standard_normal((3, 40)) > 0, 1, -1)
    >>> solve_many(X, y, 0.1).converged
    array([ True,  True,  True])
    """
    loss = resolve(loss, "classification")
    X, y, weights = _checked(X, y, weights, loss)
    factor = (Norm(2) if cost is None else cost).factor()
    Z = X if factor is None else X @ beside(np.asarray(factor), X)
    center = None
    if fit_intercept:
        center = (weights[:, None, :] @ Z)[:, 0, :]
        Z = Z - center[:, None, :]
    rho = _radii(deltas, X) * loss.lipschitz
    batch = Batch(Stack(Z), y.T, weights.T, loss, rho, fit_intercept)
    risk = _constant_risks(batch)
    found = minimise(batch, tol * risk, max_iter)
    coef = found.theta.T if factor is None else found.theta.T @ beside(np.asarray(factor).T, X)
    # b on centred rows, c'theta of the rows as given
    intercept = found.b
    if center is not None:
        intercept = found.b - namespace(X).sum(center * found.theta.T, axis=1)
    return Solutions(
        coef=coef,
        intercept=intercept,
        multiplier=loss.lipschitz * norms(found.theta),
        objective=found.objective,
        gap=found.gap,
        n_iter=found.n_iter,
        converged=found.gap <= tol * risk,
    )


def _radii(deltas: Any, X: Any) -> Any:
    """Return one delta per problem beside the rows, or say what is wrong with them."""
    delta = beside(as_float(deltas), X)
    B = X.shape[0]
    if tuple(delta.shape) not in {(), (1,), (B,)} or not bool(
        ((delta >= 0) & (delta < np.inf)).all()
    ):
        raise ValueError(
            f"deltas must be one finite number >= 0, or one for each of the {B} problems, got "
            f"{deltas!r}."
        )
    return full(B, 0.0, X) + delta


def _constant_risks(batch: Batch) -> Array:
    """Return the risk of the best constant of each problem, the unit of ``tol``."""
    positive = batch.small((batch.weights * as_float(batch.y > 0)).sum(axis=0))
    b = batch.loss.constant_of_share(positive) if batch.fit_intercept else 0.0 * positive
    one = namespace(b).ones_like(b)
    return positive * batch.loss.value(b, one) + (1 - positive) * batch.loss.value(b, -one)


def _checked(X: Any, y: Any, weights: Any, loss: Loss) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights with sums 1 as float64, or say what is wrong with them."""
    require_one_place(X, {"y": y, "weights": weights})
    if loss.pieces is not None or not np.isfinite(loss.smoothness):
        raise ValueError(
            f"solve_many needs a smooth loss, {type(loss).__name__} has kinks: use the logistic "
            "loss, or Exact().solve on one problem at a time."
        )
    require_lipschitz(loss)
    X, y = as_float(X), as_float(y)
    if X.ndim != 3 or tuple(y.shape) != tuple(X.shape[:2]):
        raise ValueError(
            f"X must have shape (B, n, d) and y (B, n), got {tuple(X.shape)} and {tuple(y.shape)}."
        )
    xp = namespace(X)
    if not bool(xp.isfinite(X).all()):
        raise ValueError(
            "X holds entries that are not finite: replace them or leave out their rows."
        )
    weights = xp.ones_like(y) if weights is None else as_float(weights)
    if tuple(weights.shape) != tuple(y.shape) or not bool((weights >= 0).all()):
        raise ValueError(f"weights must be nonnegative, of the shape {tuple(y.shape)} of y.")
    total = weights.sum(axis=1)
    positive = (weights * as_float(y > 0)).sum(axis=1)
    lacking = ~((positive > 0) & (positive < total))
    if bool(lacking.any()) or not bool((abs(y) == 1).all()):
        raise ValueError(
            f"labels must be -1 and +1, both with weight in every problem; {int(lacking.sum())} of "
            f"{X.shape[0]} problems lack one."
        )
    return X, y, weights / total[:, None]
