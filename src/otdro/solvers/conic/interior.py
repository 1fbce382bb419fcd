r"""Own primal-dual interior-point method for the convex problems that are not smooth.

With alpha the slope of each row's loss, every problem is a saddle problem with quadratic terms
(``rows``), solved along its central path (``central_path``) and certified by its dual (``bounds``).
A norm that is known by ``dual_norm`` and ``direction`` alone is met by cuts (``cuts``).
"""

from __future__ import annotations

import logging

import numpy as np

from ...problem import Problem, Solution
from ..base import Method, constant_risk
from .bounds import DualPoint
from .central_path import Outcome, iterate
from .certified import certified, expanded, worst_constant
from .cuts import iterate_cuts
from .formulation import formulate, lacking
from .merging import merged
from .model import Model
from .scaling import scaled

log = logging.getLogger("otdro")

#: A score beyond which a constant model of one class has no loss to speak of.
CERTAIN = 40.0


class InteriorPoint(Method):
    """Piecewise quadratic losses, and at order 1 smooth ones, under any norm."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    accepts_zero = True
    moves_targets = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse other losses, and at order 2 curved Lipschitz losses under other norms."""
        return lacking(problem)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve(problem, tol, max_iter, start)


def solve(
    problem: Problem, tol: float = 1e-9, max_iter: int = 100, start: Solution | None = None
) -> Solution:
    """Minimise the worst-case risk to a certified gap of ``tol`` times the best constant's risk."""
    small, place = merged(problem)
    model = formulate(small)
    with np.errstate(divide="ignore"):
        b, base = constant_risk(small)
    b = float(np.clip(b, -CERTAIN, CERTAIN)) if small.loss.minimum_at_infinity else b
    if base == 0:
        # targets that move cost even the constant model that meets all of them
        base = float(worst_constant(small, b).risk)
    run = _run(model, b, base, tol * base, max_iter, _unit(small, model, b, base))
    solution = expanded(problem, place, certified(small, model, run, b, tol * base, start))
    log.info("interior point: %d iterations, gap %.2g", solution.n_iter, solution.gap)
    return solution


def _unit(problem: Problem, model: Model, b: float, base: float) -> float:
    """Return the size of residuals about the constant score b.

    A smooth loss has no residual: its risk over its largest slope is as good a unit.
    """
    if model.form.curve.conjugate is not None:
        return base
    found = float(model.pi @ np.abs(model.c - model.o * b))
    return found or float(problem.ball.gain(0.0) * np.sqrt(problem.ball.delta))


def _run(model: Model, b: float, base: float, goal: float, max_iter: int, unit: float) -> Outcome:
    """Solve a model whose best constant b has the risk ``base``, with residuals near ``unit``."""
    if base == 0:
        zero = np.zeros(model.design.d)
        return Outcome(zero, b, np.inf, DualPoint(0.0, 0.0 * model.c), 1)
    task = scaled(model, b, unit)
    goal = goal / task.risk_unit
    oracle = task.inner.norm.oracle
    if oracle is not None:
        return task.restored(iterate_cuts(task.inner, oracle, goal, max_iter))
    return task.restored(iterate(task.inner, goal, max_iter))
