"""Whether a price of labels or targets goes with the rest of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..costs import Cost
from ..problem import check_price
from .multinomial import takes_several_scores


def fit_price(estimator: Any, name: str, support: Any) -> float | str:
    """Return the price of an estimator's parameter, or "cv"; refuse what it cannot go with."""
    price = getattr(estimator, name)
    if isinstance(price, float) and price == np.inf:
        return price
    if isinstance(price, str):
        if price != "cv":
            raise ValueError(f"{name} must be a number > 0, inf or 'cv', got {name}={price!r}.")
    else:
        check_price(price, name)
    missing = _missing(estimator, support)
    if missing is not None:
        raise ValueError(f"{name}={price!r} {missing}, or {name}=inf.")
    return price if isinstance(price, str) else float(price)


def _missing(estimator: Any, support: Any) -> str | None:
    """Return what a price cannot go with, and what to use instead."""
    cost, solver = estimator.cost, estimator.solver
    if support is not None:
        return "needs moves to anywhere, not to a given support: leave support out"
    if isinstance(cost, Cost) and not cost.is_norm:
        return f"needs a cost that is a norm, not {cost!r}: use cost='euclidean'"
    if callable(cost) and not hasattr(cost, "fit") and not isinstance(cost, Cost):
        return "needs a cost that is a norm, not a function: use cost='euclidean'"
    if isinstance(estimator.delta, str) and estimator.delta == "theory":
        return "has no profile theory: use delta='cv' or a number"
    if not takes_several_scores(solver):
        return f"is solved exactly only, not by solver={solver!r}: use solver='auto'"
    return None
