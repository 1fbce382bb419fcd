"""What a fit tells its user: warnings, messages and the lines of a verbose run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..costs.mahalanobis import diagonal
from ..design import Design, column_scale, model_scores
from ..duality import zero_model
from ..problem import Problem, Solution
from ..progress import logger
from ..solvers import Solver
from ..solvers.base import constant_risk

#: A mean loss above this share of the constant model's is hardly better than it.
LEARNED = 0.99
#: The path reaches a thousandth of its largest delta: columns farther apart have none in common.
APART = 1e3
#: Columns that a warning names.
NAMED = 3


def empirical_risk(problem: Problem, solution: Solution) -> float:
    """Return the mean loss of the rows, by a pass over them where the method has not found it."""
    if solution.mean_loss is not None:
        return solution.mean_loss
    z = model_scores(problem.X, solution.coef, solution.intercept)
    return float(problem.weights @ problem.loss.value(z, problem.y))


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
        even = problem.loss.value(0.0 * z, problem.y) if one else np.log(2)
        if (problem.loss.value(z, problem.y) < even)[problem.weights > 0].all():
            _warn(
                "the classes are separable and delta=0: no minimiser exists, the coefficients are "
                f"those at which the risk fell below {solution.objective:.3g}. Use delta > 0."
            )


def report_nothing_learned(
    problem: Problem, solution: Solution, risk: float, name: str, columns: Any, *, given: bool
) -> None:
    """Warn of a model whose mean loss ``risk`` is hardly below a constant one, and say why.

    Either some columns are so much larger than others that no delta suits both, or a ``given``
    delta is so large that beta = 0 is optimal.
    """
    ball = problem.ball
    if not solution.converged or ball.delta == 0 or not ball.cost.is_norm or problem.finite:
        return
    # the threshold has a formula for one score, and for labels and targets that stay
    given = given and problem.loss.outputs == 1
    given = given and bool(np.isinf(min(ball.label_cost, ball.target_cost)))
    if risk < LEARNED * constant_risk(problem)[1]:
        return
    large, small = _scales(problem, columns)
    if large:
        _warn(
            f"the model{name} is hardly better than a constant one, and the columns are of very "
            f"different scale: {large} against {small}. A move has one price in all columns, so "
            "scale them first, as in make_pipeline(StandardScaler(), ...).",
            UserWarning,
        )
    elif given and not np.any(solution.coef) and 0 < (least := _threshold(problem)) <= ball.delta:
        _warn(
            f"every coefficient of the fit{name} is zero: delta={ball.delta:.4g} is at or above "
            f"{least:.4g}, from where on the constant model is the best answer. Use "
            "a smaller delta, or delta='cv'.",
            UserWarning,
        )


def _scales(problem: Problem, columns: Any) -> tuple[str, str]:
    """Return the columns of the largest and of the least scale in words, if they are far apart."""
    scale = column_scale(problem.X, problem.weights)
    matrix = problem.ball.cost.matrix
    if matrix is not None:
        scale = scale * np.sqrt(diagonal(matrix))
    varies = np.flatnonzero(scale > 0)
    if len(varies) < 2:
        return "", ""
    order = varies[np.argsort(scale[varies])]
    if scale[order[-1]] < APART * scale[order[0]]:
        return "", ""
    named = [f"column {j}" if columns is None else repr(str(columns[j])) for j in order]
    spread = [f"{n} (standard deviation {scale[j]:.2g})" for n, j in zip(named, order, strict=True)]
    middle = np.sqrt(scale[order[0]] * scale[order[-1]])
    large = [text for text, j in zip(spread, order, strict=True) if scale[j] > middle]
    small = [text for text, j in zip(spread, order, strict=True) if scale[j] <= middle]
    return ", ".join(large[::-1][:NAMED]), ", ".join(small[:NAMED])


def _threshold(problem: Problem) -> float:
    """Return the least delta at which beta = 0 is optimal."""
    design = Design(problem.X)
    zero = zero_model(design, problem.y, problem.weights, problem.loss, problem.fit_intercept)
    size = float(problem.ball.cost.norm(zero.pull))
    return zero.threshold(size, problem.loss.lipschitz, problem.ball.order)


def _warn(text: str, category: type[Warning] = ConvergenceWarning) -> None:
    # the caller of fit: _warn, report, _fit, fit
    warnings.warn(text, category, stacklevel=5)


def _now(name: str, solver: Any) -> str:
    """Return the name of a parameter with its value, where the solver has one."""
    return f"{name} (now {getattr(solver, name):g})" if hasattr(solver, name) else name


def message(solution: Solution, note: str) -> str:
    """Return how the solver ended, with the sentence ``note`` after it if there is one."""
    return f"{solution.message.rstrip('.')}. {note}" if note else solution.message


def names_of(classes: NDArray[Any] | None, problems: int) -> list[str]:
    """Return what sets the problems of a fit apart in a message."""
    if classes is None or problems == 1:
        return [""]
    return [f" of class {label!r} against the rest" for label in classes.tolist()]
