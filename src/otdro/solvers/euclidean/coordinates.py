"""Centred coordinates, in which a Euclidean problem is round."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...costs.mahalanobis import shortest
from ...design import Design, mean
from ...problem import Problem, Solution
from ...row_space import REDUCE_UP_TO, Span, row_space
from ..base import Starts, verdict

Array = NDArray[Any]


class Minimisers(Protocol):
    """Minimisers of a batch of problems, the batch along the last axis."""

    theta: Array
    b: Array
    objective: Array
    gap: Array
    n_iter: Array


class Coordinates:
    r"""Whitened, centred coordinates: :math:`\beta = LV\theta`, :math:`\|\beta\|_* = \|\theta\|_2`.

    L is the factor of the cost, V spans the rows of a wide problem (else the identity), and the
    intercept is that of the centred rows, :math:`b + \bar x'\beta`. Methods that need products
    with the rows only, and these sparse, do without V (``reduce`` False). ``center`` stands in for
    the mean row: any point near it serves.
    """

    span: Span | None

    def __init__(self, problem: Problem, reduce: bool = True, center: Array | None = None) -> None:
        self.center = None
        if problem.fit_intercept:
            self.center = mean(problem.X, problem.weights) if center is None else center
        cost = problem.ball.cost
        self.factor = cost.factor() if cost.euclidean else None
        self.X, self.span = problem.X, None
        n = problem.X.shape[0]
        if reduce and cost.euclidean and self.d > n and n <= REDUCE_UP_TO:
            self.design, self.span = row_space(self.design, problem.ball.delta == 0)

    @property
    def d(self) -> int:
        """The columns of L."""
        return int(self.X.shape[1] if self.factor is None else self.factor.shape[1])

    @cached_property
    def design(self) -> Design:
        """The rows in these coordinates."""
        return Design(self.X, self.factor, self.center)

    def theta(self, coef: Array) -> Array:
        """Return the coordinates of coefficients beta."""
        theta = coef if self.factor is None else shortest(self.factor, coef)
        return theta if self.span is None else self.span.drop(theta)

    def coef(self, theta: Array) -> Array:
        """Return beta = L V theta."""
        theta = theta if self.span is None else self.span.lift(theta)
        return theta if self.factor is None else self.factor @ theta

    def intercept(self, b: float, coef: Array) -> float:
        """Return the intercept on the rows as given, from that on centred rows."""
        return float(self._shifted(b, -coef))

    def centred(self, intercept: float, coef: Array) -> float:
        """Return the intercept on centred rows, from that on the rows as given."""
        return float(self._shifted(intercept, coef))

    def _shifted(self, b: Any, coef: Array) -> Any:
        return b if self.center is None else b + self.center @ coef

    def places(self, starts: Starts) -> tuple[Array, Array]:
        """Return theta (d, B) and the intercepts on centred rows of solutions."""
        coef = np.stack([start.coef for start in starts], axis=1)
        return self.theta(coef), self._shifted(np.array([s.intercept for s in starts]), coef)

    def solutions(
        self,
        found: Minimisers,
        lam: Array,
        dual: Array,
        target: Array,
        mean_loss: list[float] | None = None,
    ) -> list[Solution]:
        """Return what a batch found on the rows as given, certified where a gap is on target."""
        coefs = self.coef(found.theta)
        intercepts = np.asarray(self._shifted(found.b, -coefs), dtype=float).tolist()
        gaps, goals, steps = found.gap.tolist(), target.tolist(), found.n_iter.tolist()
        objectives, multipliers = found.objective.tolist(), lam.tolist()
        return [
            Solution(
                coef=np.ascontiguousarray(coefs[:, j]),
                intercept=intercepts[j],
                multiplier=multipliers[j],
                objective=objectives[j],
                gap=gaps[j],
                n_iter=steps[j],
                converged=gaps[j] <= goals[j],
                message=verdict(gaps[j], goals[j], steps[j]),
                dual=dual[:, j],
                mean_loss=None if mean_loss is None else mean_loss[j],
            )
            for j in range(len(gaps))
        ]
