"""What the smoothed solvers ask of a problem and of their parameters."""

from __future__ import annotations

import numpy as np

from ...problem import Problem

#: Targets, and the largest score, at which a loss is tried out.
TRIED, LARGEST = 50, 3.0


def require(lacks: str | None) -> None:
    """Refuse a problem that lacks something."""
    if lacks is not None:
        raise ValueError(lacks)


def require_positive(**parameters: float) -> None:
    """Refuse parameters that are not finite numbers above zero."""
    for name, value in parameters.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a number > 0, got {name}={value!r}.")


def lacks_linear(problem: Problem, solver: str) -> str | None:
    """Return why a problem has no one-dimensional form, None if it has one."""
    ball = problem.ball
    if not ball.cost.euclidean or ball.order != 2 or problem.finite:
        nodes = " and a finite support" if problem.support is not None else ""
        other = "exact" if problem.finite else "smoothed"
        return (
            f"{solver} needs a Euclidean or Mahalanobis cost of order 2 on all of R^d; got "
            f"{ball.cost!r} with order={ball.order}{nodes}. Use order=2, solver='{other}' here."
        )
    if ball.delta == 0:
        return f"{solver} needs delta > 0; delta=0 is plain empirical risk: solver='exact'."
    return None


def lacks_smooth(problem: Problem) -> str | None:
    """Return why a loss with a kink is refused: no node sees its second derivative."""
    if np.isfinite(problem.loss.smoothness):
        return None
    return (
        f"the smoothed dual needs a differentiable loss; {type(problem.loss).__name__} has a kink "
        "(smoothness=inf). Use solver='exact' or 'sinkhorn'."
    )


def lacks_sampled(problem: Problem) -> str | None:
    """Return why draws in R^d do not serve a problem, None if they do."""
    ball = problem.ball
    if ball.delta == 0:
        return "the smoothed dual needs delta > 0; delta=0 is solver='exact'."
    if problem.finite:
        return "the smoothed dual moves mass in R^d; a finite support is solver='exact'."
    if ball.cost.linearised:
        return (
            "FeatureMap(linearised=True) is a cost that only solver='exact' has. Use "
            "linearised=False here."
        )
    if ball.order == 1 and problem.geometry != "function":
        return (
            "order=1 has a kink at the row that the smoothed dual resolves badly. Use "
            "solver='exact', or order=2."
        )
    return None


def require_numbers(problem: Problem) -> None:
    """Refuse a loss that returns NaN or another shape, naming it."""
    y = problem.y[:TRIED]
    z = np.linspace(-LARGEST, LARGEST, len(y))
    name = type(problem.loss).__name__
    for method in ("value", "derivative", "curvature"):
        found = np.asarray(getattr(problem.loss, method)(z, y))
        if found.shape != z.shape:
            raise ValueError(
                f"{name}.{method} returned shape {found.shape} for scores of shape {z.shape}."
            )
        if not np.isfinite(found).all():
            raise ValueError(f"{name}.{method} returned NaN or infinite values.")
