"""Whether three classes or more are one softmax model or one model each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..costs import Cost
from ..losses import Loss
from ..solvers import Solver

FORMS = ("auto", "multinomial", "ovr")
BINARY = "Two classes: the softmax model is the binary one, with B_1 = -B_0 = beta/2."


class Form(NamedTuple):
    """The loss of the softmax model, None for models of one score, and a sentence to note."""

    loss: Loss | None
    note: str = ""


def model_form(estimator: Any, loss: Loss, classes: int, support: Any) -> Form:
    """Return the form that ``multi_class`` asks for; refuse a softmax model that does not exist."""
    asked = estimator.multi_class
    if not (isinstance(asked, str) and asked in FORMS):
        raise ValueError(f"unknown multi_class={asked!r}; known: {', '.join(FORMS)}.")
    if asked == "ovr" or (asked == "auto" and classes == 2):
        return Form(None)
    missing = _missing(estimator, loss, support)
    if missing is None and classes == 2:
        return Form(None, BINARY)
    if missing is None:
        return Form(loss.multinomial(classes))
    if asked == "auto":
        return Form(None)
    raise ValueError(f"multi_class='multinomial' {missing}, or multi_class='ovr'.")


def _missing(estimator: Any, loss: Loss, support: Any) -> str | None:
    """Return what keeps the softmax model from being exact, and what to use instead."""
    cost, order = estimator.cost, estimator.order
    if loss.multinomial(3) is None:
        return f"needs the logistic loss, got loss={estimator.loss!r}: use loss='logistic'"
    if order == 2:
        return "at order 2 has no one-dimensional inner problem: use order=1"
    if estimator.label_cost != np.inf:
        return "has no method with a price of labels: use label_cost=inf"
    if support is not None:
        return "needs moves to anywhere, not to a given support: leave support out"
    if isinstance(cost, Cost) and not (cost.euclidean or cost.dual_p in (1.0, np.inf)):
        return f"needs a Euclidean cost, 'l1' or 'linf', not {cost!r}: use one of them"
    if callable(cost) and not hasattr(cost, "fit") and not isinstance(cost, Cost):
        return "needs a cost that is a norm, not a function: use cost='euclidean'"
    if isinstance(estimator.delta, str) and estimator.delta == "theory":
        return "has no profile theory: use delta='cv' or a number"
    if not takes_several_scores(estimator.solver):
        return f"is solved exactly only, not by solver={estimator.solver!r}: use solver='auto'"
    return None


def takes_several_scores(solver: Any) -> bool:
    """Whether a solver, by name or as an object, solves for several scores per row."""
    if isinstance(solver, str):
        return solver in ("auto", "exact")
    return isinstance(solver, Solver) and solver.several_scores
