r"""The dual of a risk with an l1 penalty, over all columns.

.. math:: \max_a\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \Big|\sum_i \pi_i a_i x_{ij}\Big| \le \rho\ \ \forall j,\quad \sum_i \pi_i a_i = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import balance
from ...problem import Problem

Array = NDArray[Any]


def penalty(problem: Problem) -> float:
    """Return rho, the price of a unit of the l1 norm at order 1."""
    return problem.ball.delta * float(problem.loss.lipschitz)


def balanced(problem: Problem, a: Any) -> Array:
    """Return slopes whose mean is zero where there is an intercept: the larger side shrinks."""
    if not problem.fit_intercept:
        return np.asarray(a)
    return np.asarray(a * balance(problem.weights * a))


@dataclass(frozen=True, eq=False)
class Bound:
    """Slopes ``a`` of mean zero, the ``pull`` of each column, the dual ``value`` they prove."""

    a: Array
    pull: Array
    value: float


def dual_bound(problem: Problem, slopes: Any, design: Design | None = None) -> Bound:
    """Return what slopes prove once they balance and shrink until no column pulls beyond rho.

    ``design`` are the rows of the problem, where they are at hand.
    """
    a = balanced(problem, slopes)
    pull = np.abs((design or Design(problem.X)).adjoint(problem.weights * a))
    return Bound(a, pull, dual_value(problem, a, float(pull.max())))


def dual_value(problem: Problem, a: Array, pull: float) -> float:
    """Return the dual value at kappa a, where no column pulls by more than ``pull``."""
    kappa = min(1.0, penalty(problem) / max(pull, np.finfo(float).tiny))
    conjugate = problem.loss.conjugate(kappa * a, problem.y)
    # a row without weight may have any slope
    return -float(problem.weights @ np.where(problem.weights > 0, conjugate, 0.0))
