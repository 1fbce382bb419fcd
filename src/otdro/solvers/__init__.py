"""Solvers: a Problem in, a Solution with its certificate out; one class a file."""

from numbers import Integral, Real
from typing import Any

from .auto import Auto
from .base import Solver as Solver
from .exact import Exact
from .smoothing.quadrature import Quadrature
from .smoothing.sinkhorn import Sinkhorn
from .smoothing.smoothed import Smoothed

__all__ = ["Exact", "Quadrature", "Sinkhorn", "Smoothed"]

_NAMES = {
    "auto": Auto,
    "exact": Exact,
    "smoothed": Smoothed,
    "quadrature": Quadrature,
    "sinkhorn": Sinkhorn,
}


def resolve(
    solver: Any, tol: float, max_iter: int, random_state: Any = None, verbose: bool = False
) -> Solver:
    """Return the solver that a name or an object stands for; an object keeps its own settings.

    The stochastic solver by its name has its own tolerance: ``tol`` is that of a certificate.
    """
    if isinstance(solver, Solver):
        return solver
    if not (isinstance(solver, str) and solver in _NAMES):
        known = ", ".join(_NAMES)
        raise ValueError(f"unknown solver={solver!r}; known: {known}, or a solver object.")
    if not (isinstance(tol, Real) and tol >= 0):
        raise ValueError(f"tol must be a number >= 0, got tol={tol!r}.")
    if not (isinstance(max_iter, Integral) and max_iter >= 1):
        raise ValueError(f"max_iter must be an integer >= 1, got max_iter={max_iter!r}.")
    if solver == "smoothed":
        return Smoothed(random_state=random_state, verbose=verbose)
    if solver == "auto":
        return Auto(tol, max_iter, random_state, verbose)
    found: Solver = _NAMES[solver](tol=tol, max_iter=max_iter)
    return found
