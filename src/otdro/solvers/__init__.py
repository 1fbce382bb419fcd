"""Solvers: a Problem in, a Solution with its certificate out; one class per file."""

from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ..first_use import at_first_use
from .auto import Auto
from .base import Solver as Solver
from .exact import Exact

if TYPE_CHECKING:
    from .smoothing.quadrature import Quadrature
    from .smoothing.sinkhorn import Sinkhorn
    from .smoothing.smoothed import Smoothed

__all__ = ["Exact", "Quadrature", "Sinkhorn", "Smoothed"]

__getattr__ = at_first_use(
    __name__,
    {
        "Quadrature": "smoothing.quadrature",
        "Sinkhorn": "smoothing.sinkhorn",
        "Smoothed": "smoothing.smoothed",
    },
    gone={"solve_many": "solve the problems one after another with Exact().solve."},
)

_KNOWN = ("auto", "exact", "smoothed", "quadrature", "sinkhorn")
#: The settings of a certificate that an estimator starts with; others were asked for.
_TOL = 1e-6
_MAX_ITER = 1000


def resolve(
    solver: Any, tol: float, max_iter: int, random_state: Any = None, verbose: bool = False
) -> Solver:
    """Return the solver that a name or an object stands for; an object keeps its own settings.

    The stochastic solver has defaults of its own: ``tol`` and ``max_iter`` are passed on to it
    where they are not those of a certificate.
    """
    if isinstance(solver, Solver):
        return solver
    if not (isinstance(solver, str) and solver in _KNOWN):
        known = ", ".join(_KNOWN)
        raise ValueError(f"unknown solver={solver!r}; known: {known}, or a solver object.")
    if not (isinstance(tol, Real) and tol >= 0):
        raise ValueError(f"tol must be a number >= 0, got tol={tol!r}.")
    if not (isinstance(max_iter, Integral) and max_iter >= 1):
        raise ValueError(f"max_iter must be an integer >= 1, got max_iter={max_iter!r}.")
    if solver == "quadrature":
        from .smoothing.quadrature import Quadrature

        return Quadrature(tol=tol, max_iter=max_iter)
    if solver == "sinkhorn":
        from .smoothing.sinkhorn import Sinkhorn

        return Sinkhorn(tol=tol, max_iter=max_iter)
    if solver == "smoothed":
        return _smoothed(tol, max_iter, random_state, verbose)
    exact = Exact(tol, max_iter)
    if solver == "exact":
        return exact
    return Auto(exact, partial(_smoothed, tol, max_iter, random_state, verbose))


def _smoothed(tol: float, max_iter: int, random_state: Any, verbose: bool) -> Solver:
    """Return the stochastic solver with the settings that were asked for."""
    from .smoothing.smoothed import Smoothed

    found = Smoothed(random_state=random_state, verbose=verbose)
    if tol != _TOL:
        found.tol = tol
    if max_iter != _MAX_ITER:
        found.max_iter = max_iter
    return found
