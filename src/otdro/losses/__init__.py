"""Losses, elementwise in the score; one class per file."""

import difflib
import re

from .absolute import Absolute
from .base import Inner as Inner
from .base import Loss as Loss
from .hinge import Hinge
from .huber import Huber
from .logistic import Logistic
from .piecewise import PiecewiseQuadratic as PiecewiseQuadratic
from .quantile import Quantile
from .softmax import Softmax as Softmax
from .squared import Squared
from .squared_hinge import SquaredHinge

__all__ = ["Absolute", "Hinge", "Huber", "Logistic", "Quantile", "Squared", "SquaredHinge"]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


#: The short name of every loss exported here, e.g. ``"squared_hinge"``.
KNOWN: dict[str, type[Loss]] = {_snake(name): globals()[name] for name in __all__}


def resolve(loss: object, task: str | None = None) -> Loss:
    """Return the loss that a name or an object stands for; refuse one of another task."""
    names = [name for name, kind in KNOWN.items() if task in (None, kind.task)]
    given = loss
    if isinstance(loss, str):
        if loss not in KNOWN:
            near = difflib.get_close_matches(loss, names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            where = f" for {task}" if task else ""
            raise ValueError(
                f"there is no loss={loss!r}; the losses{where} are {', '.join(names)}.{hint}"
            )
        loss = KNOWN[loss]()
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a name ({', '.join(names)}) or a Loss, got {loss!r}.")
    if task not in (None, loss.task):
        raise ValueError(
            f"loss={given!r} is for {loss.task}, not {task}; use one of {', '.join(names)}."
        )
    return loss
