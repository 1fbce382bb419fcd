"""Solvers: a Problem in, a Solution with its certificate out; one class per file."""

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ..costs import is_function
from ..first_use import at_first_use
from .base import Solver as Solver
from .exact import Exact

if TYPE_CHECKING:
    from .smoothing.quadrature import Quadrature, Sinkhorn
    from .smoothing.smoothed import Smoothed

__all__ = ["Exact", "Quadrature", "Sinkhorn", "Smoothed"]

__getattr__ = at_first_use(
    __name__,
    {
        "Quadrature": "smoothing.quadrature",
        "Sinkhorn": "smoothing.quadrature",
        "Smoothed": "smoothing.smoothed",
    },
    gone={"solve_many": "solve the problems one after another with Exact().solve."},
)

_KNOWN = ("auto", "exact", "smoothed", "quadrature", "sinkhorn")
#: The settings of a certificate that an estimator starts with; others were asked for.
_TOL = 1e-6
_MAX_ITER = 1000


def resolve(
    solver: Any,
    tol: float,
    max_iter: int,
    random_state: Any = None,
    verbose: bool = False,
    *,
    cost: Any = None,
) -> Solver:
    """Return the solver that a name or an object stands for; an object keeps its own settings.

    "auto" is exact, or the stochastic solver where the ``cost`` is a function.
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
        from .smoothing.quadrature import Sinkhorn

        return Sinkhorn(tol=tol, max_iter=max_iter)
    named = cost is None or isinstance(cost, str)
    if solver == "exact" or (solver == "auto" and (named or not is_function(cost))):
        return Exact(tol, max_iter)
    from .smoothing.smoothed import Smoothed

    smoothed = Smoothed(random_state=random_state, verbose=verbose)
    if tol != _TOL:
        smoothed.tol = tol
    if max_iter != _MAX_ITER:
        smoothed.max_iter = max_iter
    return smoothed
