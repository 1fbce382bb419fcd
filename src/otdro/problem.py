"""The frozen nouns: a ball of distributions, the problem over it, and its solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import class_masses, full, library, mass, namespace, pick
from .costs import Cost, Geometry
from .design import row_shares
from .losses import Loss
from .pairs import DIGITS, sketch

Array = NDArray[Any]

#: The least positive delta: the square of the multiplier, about w^2/(4 delta), must be finite.
LEAST_DELTA = 1e-200


@dataclass(frozen=True, eq=False)
class Ball:
    r"""All distributions P with :math:`D_c(P, P_n) \le \delta`, where :math:`c = d^{order}`.

    ``delta`` bounds the mean cost E[c] itself, never its root; ``d`` is the distance of ``cost``.
    A label may be changed for ``label_cost``, to any other one, and a target moved by t for
    ``target_cost`` times ``|t|**order``, both beside the price of the row's move; inf: never.

    Parameters
    ----------
    cost : Cost
        The distance d, of ``otdro.costs``.
    delta : float >= 0
        The radius: the largest mean cost of a move from the sample.
    order : {1, 2}, default=2
        The power of the distance that is the cost.
    label_cost : float > 0, default=inf
        The price of changing a label.
    target_cost : float > 0, default=inf
        The price of moving a target by one unit.

    Examples
    --------
    >>> from otdro import Ball
    >>> from otdro.costs import Norm
    >>> Ball(Norm(2), delta=0.1, order=1).delta
    0.1
    """

    cost: Cost
    delta: float
    order: int = 2
    label_cost: float = np.inf
    target_cost: float = np.inf

    def __post_init__(self) -> None:
        for name in ("label_cost", "target_cost"):
            check_price(getattr(self, name), name)
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got order={self.order!r}.")
        if not (np.isfinite(self.delta) and self.delta >= 0):
            raise ValueError(f"delta must be a finite number >= 0, got delta={self.delta!r}.")
        if 0 < self.delta < LEAST_DELTA:
            raise ValueError(
                f"delta={self.delta!r} is too small to be told from 0, since its square root and "
                f"multiplier overflow: use delta=0, or at least {LEAST_DELTA:.0e}; scale the "
                "columns of X up where they are as small."
            )

    def gain(self, w: Any) -> Any:
        """Return the largest change of a residual at unit price, from the dual norm w of beta.

        A target that moves at the price kappa adds 1/kappa to w^2 at order 2, and takes the place
        of w where that is less at order 1.
        """
        if not np.isfinite(self.target_cost):
            return w
        if self.order == 1:
            return np.maximum(w, 1 / self.target_cost)
        return np.sqrt(np.square(w) + 1 / self.target_cost)


def check_price(price: Any, name: str) -> float:
    """Return a price > 0, inf for what is never changed; refuse anything else."""
    if isinstance(price, bool) or not isinstance(price, Real) or not float(price) > 0:
        raise ValueError(
            f"{name} must be a number > 0, or inf for what cannot be changed, got {name}={price!r}."
        )
    return float(price)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, target vectors (one, or K for one-vs-rest), weights with sum 1, the model's form.

    The softmax model has one target vector, of labels 0 to K - 1. The prices of a label and of a
    target are those of ``Ball``.
    """

    X: Any
    ys: list[Array]
    weights: Array
    loss: Loss
    fit_intercept: bool
    support: Any = None
    label_cost: float = np.inf
    target_cost: float = np.inf

    def ball(self, cost: Cost, delta: float, order: int) -> Ball:
        """Return a ball with the prices of labels and targets of this sample."""
        return Ball(cost, float(delta), order, self.label_cost, self.target_cost)

    @cached_property
    def fence(self) -> tuple[Array, Array]:
        """The centre of the rows and how much of each deviation from it counts."""
        return row_shares(self.X, self.weights)

    @cached_property
    def distinct(self) -> int:
        """The number of distinct (x, y) of positive weight: repeated rows add no information."""
        y: Any = sum((k + 1) * y for k, y in enumerate(self.ys))
        seen = sketch(self.X, y)[self.weights > 0]
        if library(seen) is None:
            return len(np.unique(seen.round(DIGITS)))
        xp = namespace(seen)
        return int(xp.unique_values(xp.round(seen * 10.0**DIGITS)).shape[0])

    def rows(self, index: Array) -> Sample:
        """Return the sample of some rows, its weights scaled to sum 1 again."""
        weights = pick(self.weights, index)
        return replace(
            self,
            X=pick(self.X, index),
            ys=[pick(y, index) for y in self.ys],
            weights=weights / weights.sum(),
        )

    def problem(self, y: Array, ball: Ball) -> Problem:
        """Return the problem of one target vector."""
        return Problem(self.X, y, self.weights, self.loss, ball, self.fit_intercept, self.support)


@dataclass(frozen=True, eq=False)
class Problem:
    r"""Minimise over (beta, b) the largest :math:`E_P\,\ell(x'\beta + b, y)` over P in the ball.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        The rows of the sample P_n.
    y : ndarray of shape (n,)
        Labels -1/+1, or 0 to K - 1 of a loss of K scores, or targets.
    weights : ndarray of shape (n,)
        The masses of the rows, nonnegative with sum 1.
    loss : Loss
        The loss of a score and a target, of ``otdro.losses``.
    ball : Ball
        The distributions to guard against.
    fit_intercept : bool, default=True
        Whether b is free; else it is 0.
    support : array or CSR matrix of shape (m, d), default=None
        The adversary moves mass only to rows of X and of this; None is all of R^d.
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    ball: Ball
    fit_intercept: bool = True
    support: Any = None

    def __post_init__(self) -> None:
        ball, task = self.ball, self.loss.task
        if np.isfinite(ball.target_cost) and task != "regression":
            raise ValueError(
                f"target_cost={ball.target_cost:g} is for targets, and {type(self.loss).__name__} "
                "has labels: use label_cost."
            )
        if np.isfinite(ball.label_cost) and task != "classification":
            raise ValueError(
                f"label_cost={ball.label_cost:g} is for labels, and {type(self.loss).__name__} has "
                "targets: use target_cost."
            )
        if np.isfinite(ball.label_cost) and self.loss.outputs > 1:
            raise ValueError(
                f"label_cost={ball.label_cost:g} is for one score per row, and the softmax model "
                "has one for each class: use multi_class='ovr', or label_cost=inf."
            )
        priced = np.isfinite(min(ball.label_cost, ball.target_cost))
        if priced and (self.finite or not ball.cost.is_norm):
            raise ValueError(
                "a price of labels or targets needs a cost that is a norm, and no support; got "
                f"{ball.cost!r}. Leave label_cost and target_cost at inf."
            )

    def at(self, delta: float) -> Problem:
        """Return the problem over the ball of another radius."""
        return replace(self, ball=replace(self.ball, delta=float(delta)))

    def weighted(self, weights: Array) -> Problem:
        """Return the problem of the same rows with other weights."""
        return replace(self, weights=weights)

    @cached_property
    def constant(self) -> tuple[Any, float]:
        """The best constant score (0 without an intercept) and its risk.

        With several scores per row it is one for each.
        """
        y, weights, loss = self.y, self.weights, self.loss
        if loss.outputs > 1:
            scores: Any = (
                loss.constant(y, weights) if self.fit_intercept else np.zeros(loss.outputs)
            )
            each = np.arange(len(scores))
            values = loss.value(np.tile(scores, (len(each), 1)), each)
            return scores, float(class_masses(y, weights, len(each)) @ values)
        b = loss.constant(y, weights) if self.fit_intercept else 0.0
        if loss.task == "classification":
            positive = mass(weights, y > 0)
            y, weights = np.array([-1.0, 1.0]), np.array([1 - positive, positive])
        return b, float(weights @ loss.value(full(len(y), b, y), y))

    @property
    def geometry(self) -> Geometry:
        """What the adversary's moves are: those of the cost, or between given points only."""
        return "finite" if self.support is not None else self.ball.cost.geometry

    @property
    def finite(self) -> bool:
        """Whether the adversary moves mass between given points only."""
        return self.geometry == "finite"


@dataclass(frozen=True, eq=False)
class Solution:
    """A point and its certificate: ``objective`` exceeds the optimum by at most ``gap``.

    Parameters
    ----------
    coef : ndarray of shape (d,), or (K, d) for a loss of K scores
        The coefficients beta.
    intercept : float, or ndarray of shape (K,)
        The intercept b.
    multiplier : float
        The dual variable lam of the budget E[c] <= delta: d objective/d delta = lam.
    objective : float
        The worst-case risk of this point.
    gap : float
        At most by this much the objective exceeds the optimum; inf where nothing is proved.
    n_iter : int
        Iterations.
    converged : bool
        Whether the gap asked for was reached.
    message : str
        How the solver ended.
    dual : ndarray of shape (n,) or None, default=None
        d l/dz of each row at the worst case (its mean over the masses of a row), the point of the
        dual problem behind ``gap``; None if there is none.
    mean_loss : float or None, default=None
        The mean loss of the rows at this point, which takes a pass over them; None if the method
        has not found it.
    """

    coef: Array
    intercept: Any
    multiplier: float
    objective: float
    gap: float
    n_iter: int
    converged: bool
    message: str
    dual: Array | None = None
    mean_loss: float | None = None
