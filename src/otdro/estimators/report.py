"""What a fit tells its user: warnings, messages and the lines of a verbose run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..design import model_scores
from ..problem import Problem, Solution
from ..progress import logger
from ..solvers import Solver


def report(problem: Problem, solution: Solution, solver: Solver, name: str) -> None:
    """Log the solution; warn of one that is not certified, or whose minimiser does not exist."""
    logger.info(
        "fit%s: delta %.4g, %d iterations, robust risk %.6g, gap %.3g",
        name,
        problem.ball.delta,
        solution.n_iter,
        solution.objective,
        solution.gap,
    )
    if not solution.converged:
        _warn(
            f"the fit{name} did not reach the gap asked for: {solution.message.rstrip('.')}. "
            f"Raise {_now('max_iter', solver)}, raise {_now('tol', solver)}, or scale the columns "
            "of X."
        )
    if problem.ball.delta == 0 and problem.loss.minimum_at_infinity:
        z = model_scores(problem.X, solution.coef, solution.intercept)
        # a margin above 0, or of several scores a label that is more likely than not
        one = problem.loss.outputs == 1
        even = problem.loss.value(np.zeros_like(z), problem.y) if one else np.log(2)
        if np.all((problem.loss.value(z, problem.y) < even)[problem.weights > 0]):
            _warn(
                "the classes are separable and delta=0: no minimiser exists, the coefficients are "
                f"those at which the risk fell below {solution.objective:.3g}. Use delta > 0."
            )


def _warn(text: str) -> None:
    # the caller of fit: _warn, report, _fit, fit
    warnings.warn(text, ConvergenceWarning, stacklevel=5)


def _now(name: str, solver: Any) -> str:
    """Return the name of a parameter with its value, where the solver has one."""
    return f"{name} (now {getattr(solver, name):g})" if hasattr(solver, name) else name


def message(solution: Solution, note: str) -> str:
    """Return how the solver ended, with the sentence ``note`` after it if there is one."""
    return f"{solution.message.rstrip('.')}. {note}" if note else solution.message
