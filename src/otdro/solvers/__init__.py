"""Solvers: a Problem in, a Solution with its certificate out; methods by family."""

from typing import TYPE_CHECKING

from ..first_use import at_first_use
from .exact import Exact
from .exact import Solver as Solver
from .exact import resolve as resolve

if TYPE_CHECKING:
    from .smoothing import Quadrature, Sinkhorn, Smoothed

__all__ = ["Exact", "Quadrature", "Sinkhorn", "Smoothed"]

__getattr__ = at_first_use(
    __name__,
    dict.fromkeys(("Quadrature", "Sinkhorn", "Smoothed"), "smoothing"),
    gone={"solve_many": "solve the problems one after another with Exact().solve."},
)
