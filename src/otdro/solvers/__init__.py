"""Solvers: a Problem in, a Solution with its certificate out; one class a file."""

from typing import Any

from .base import Solver
from .exact import Exact

__all__ = ["Exact"]

_NAMES = {"auto": Exact, "exact": Exact}


def resolve(solver: Any, tol: float, max_iter: int) -> Solver:
    """Return the solver that a name or an object stands for; an object keeps its own settings."""
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str) and solver in _NAMES:
        return _NAMES[solver](tol=tol, max_iter=max_iter)
    raise ValueError(f"unknown solver={solver!r}; known: {', '.join(_NAMES)}, or a solver object.")
