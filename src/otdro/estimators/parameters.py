"""What the estimators take: parameters and rows, checked and read.

Rows in chunks become a ``Stream``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import get_scorer_names
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names

from ..arrays import (
    check_places,
    fit_need,
    library,
    missing_entries,
    namespace,
    numpy,
    require_memory,
)
from ..chunks import open_rows
from ..costs import Cost, is_function
from ..design import WRITTEN_UP_TO
from ..losses import Loss
from ..problem import check_price
from ..radius.checks import LARGEST
from ..radius.rules import RULES
from ..radius.selection import require_method
from ..solvers import Solver
from ..wanted import (
    COUNT,
    SEED,
    TOLERANCE,
    TRUTH,
    Wanted,
    is_number,
    is_tolerance,
    is_truth,
    is_whole,
)

Array = NDArray[Any]


def _are_folds(cv: Any) -> bool:
    """Whether a value says how rows are split."""
    if is_truth(cv) or isinstance(cv, str | bytes | Mapping | type):
        return False
    if is_whole(cv):
        return bool(cv >= 2)
    if isinstance(cv, np.ndarray):
        return cv.ndim > 0
    return cv is None or hasattr(cv, "split") or isinstance(cv, Iterable)


def _weighs_classes(weights: Any) -> bool:
    """Whether a value says how classes are weighed."""
    if isinstance(weights, Mapping):
        return all(is_tolerance(weight) for weight in weights.values())
    return weights is None or (isinstance(weights, str) and weights == "balanced")


def _is_scoring(scoring: Any) -> bool:
    """Whether a value names a score, is a function that computes one, or None."""
    if isinstance(scoring, str):
        return scoring in get_scorer_names()
    return scoring is None or (callable(scoring) and not isinstance(scoring, type))


#: What the parameters take that are not checked where they are resolved, as are ``loss``, ``cost``,
#: ``order``, ``delta``, ``solver``, ``multi_class`` and the prices of labels and targets.
WANTED = {
    "fit_intercept": TRUTH,
    "random_state": SEED,
    "tol": TOLERANCE,
    "tolerance": TOLERANCE,
    "max_iter": COUNT,
    "class_weight": Wanted(
        _weighs_classes, "a dict from labels to weights >= 0, 'balanced' or None"
    ),
    "cv": Wanted(
        _are_folds,
        "a whole number (at least 2 folds), a splitter, an iterable of splits or None",
    ),
    "scoring": Wanted(
        _is_scoring,
        "a name of sklearn.metrics.get_scorer_names(), a function of (model, X, y) or None",
    ),
    "rule": Wanted(
        lambda rule: isinstance(rule, str) and rule in RULES, f"one of {', '.join(RULES)}"
    ),
    "confidence": Wanted(
        lambda share: is_number(share) and 0 < share < 1, "a number between 0 and 1"
    ),
    "n_jobs": Wanted(
        lambda jobs: jobs is None or (is_whole(jobs) and jobs != 0),
        "a whole number other than 0, or None",
    ),
    "verbose": Wanted(
        lambda level: is_truth(level) or (is_whole(level) and level >= 0),
        "True, False or a whole number >= 0",
    ),
}


FORMS = ("auto", "multinomial", "ovr")
#: Classes up to which "auto" is softmax: its Newton matrix has one block per pair of classes, and
#: 35 classes of 400 rows took more than 6 minutes where one-vs-rest takes about 4 seconds.
SOFTMAX_UP_TO = 20
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
    missing = _lacks_softmax(estimator, loss, support)
    if missing is None and classes == 2:
        return Form(None, BINARY)
    if missing is None and asked == "auto" and classes > SOFTMAX_UP_TO:
        return Form(
            None,
            f"One-vs-rest, since {classes} classes are more than {SOFTMAX_UP_TO}: "
            "multi_class='multinomial' fits the softmax model, which takes much longer.",
        )
    if missing is None:
        return Form(loss.multinomial(classes))
    if asked == "auto":
        return Form(None)
    raise ValueError(f"multi_class='multinomial' {missing}, or multi_class='ovr'.")


def _lacks_softmax(estimator: Any, loss: Loss, support: Any) -> str | None:
    """Return what keeps the softmax model from being exact, and what to use instead."""
    cost = estimator.cost
    if loss.multinomial(3) is None:
        return f"needs the logistic loss, got loss={estimator.loss!r}: use loss='logistic'"
    if estimator.order == 2:
        return "at order 2 has no one-dimensional inner problem: use order=1"
    if estimator.label_cost != np.inf:
        return "has no method with a price of labels: use label_cost=inf"
    if isinstance(cost, Cost) and not (cost.euclidean or cost.dual_p in (1.0, np.inf)):
        return f"needs a Euclidean cost, 'l1' or 'linf', not {cost!r}: use one of them"
    return _lacks_exact_norm(estimator, support)


def _lacks_exact_norm(estimator: Any, support: Any) -> str | None:
    """Return what keeps a fit from an exact solver and a norm, and what to use instead."""
    cost, solver = estimator.cost, estimator.solver
    if support is not None:
        return "needs moves to anywhere, not to a given support: leave support out"
    if is_function(cost):
        return "needs a cost that is a norm, not a function: use cost='euclidean'"
    if isinstance(cost, Cost) and not cost.is_norm:
        return f"needs a cost that is a norm, not {cost!r}: use cost='euclidean'"
    if isinstance(estimator.delta, str) and estimator.delta == "theory":
        return "has no profile theory: use delta='cv' or a number"
    # by its name, or as an object
    exact = isinstance(solver, str) and solver in ("auto", "exact")
    if not (exact or (isinstance(solver, Solver) and solver.several_scores)):
        return f"is solved exactly only, not by solver={solver!r}: use solver='auto'"
    return None


def fit_price(estimator: Any, name: str, support: Any) -> float:
    """Return the price of an estimator's parameter; refuse what it cannot go with."""
    price = getattr(estimator, name)
    if isinstance(price, str) and price == "cv":
        raise ValueError(
            f"{name}='cv' is not supported any more: choose the price by scikit-learn's "
            f"GridSearchCV over {name}, or give a number > 0."
        )
    if isinstance(price, float) and price == np.inf:
        return price
    price = check_price(price, name)
    missing = _lacks_exact_norm(estimator, support)
    if missing is not None:
        raise ValueError(f"{name}={price!r} {missing}, or {name}=inf.")
    return price


#: The rounding of an entry at most, as a share of how far rows are apart.
LARGEST_ROUNDING = 1e-4
#: Rows that are looked at for that.
OFFSET_ROWS = 256
#: Names of columns that an error quotes, at most.
SHOWN = 5


def check_rows(rows: Any, X: Any, name: str, names: Array | None, least: int = 1) -> Any:
    """Return further ``rows`` as an array with the columns of X, None if there are none.

    ``names`` are those of the columns of X, None if they have none.
    """
    if rows is None:
        return None
    check_places(X, **{name: rows})
    check_names(rows, name, names)
    rows = check_array(
        numpy(rows) if library(rows) is not None else rows,
        accept_sparse="csr",
        dtype=np.float64,
        input_name=name,
        ensure_min_samples=least,
        estimator=name,
    )
    if rows.shape[1] != X.shape[1]:
        raise ValueError(f"{name} has {rows.shape[1]} columns but X has {X.shape[1]}.")
    return rows


def check_names(rows: Any, name: str, names: Array | None) -> None:
    """Refuse rows whose columns have other names than those of X, or another order of them.

    Where only one of the two has names, columns are taken by position, with a warning.
    """
    own = _get_feature_names(rows)
    if own is not None and names is not None:
        refuse_other_columns(own.tolist(), names.tolist(), name, "X", "X.columns")
    elif own is not None or names is not None:
        with_names, without = ("X", name) if own is None else (name, "X")
        warnings.warn(
            f"{with_names} has feature names, but {without} has none: the columns of {name} are "
            "taken by position.",
            UserWarning,
            stacklevel=2,
        )


def refuse_other_columns(
    own: list[str], wanted: list[str], name: str, whose: str, select: str
) -> None:
    """Refuse columns other than those wanted, or in another order, with what selects them."""
    if own == wanted:
        return
    parts = [
        (verb, [one for one in some if one not in set(others)][:SHOWN])
        for verb, some, others in (("lacks", wanted, own), ("has", own, wanted))
    ]
    if not any(differ for _, differ in parts):
        raise ValueError(
            f"{name} has the columns of {whose} in another order: pass {name}[{select}] instead."
        )
    what = " and ".join(f"{verb} the columns {differ}" for verb, differ in parts if differ)
    raise ValueError(f"{name} {what}, unlike {whose}: give it the columns of {whose}.")


def check_magnitude(X: Any) -> None:
    """Refuse rows whose squares are beyond the largest number, or below the smallest."""
    if library(X) is not None:
        return
    largest = max(abs(float(X.max())), abs(float(X.min())))
    bounds = ""
    if 0 < largest < 1 / LARGEST:
        bounds = (
            f"below the smallest number: scale the columns so that some are above {1 / LARGEST:.0g}"
        )
    if largest > LARGEST:
        bounds = (
            f"beyond the largest number: scale the columns so that they are below {LARGEST:.0g}"
        )
    if bounds:
        raise ValueError(f"X has entries up to {largest:.3g}, whose squares are {bounds}.")


def check_offset(X: Any, names: Array | None) -> None:
    """Refuse columns so far from 0 that rounding their entries hides how rows differ."""
    if not isinstance(X, np.ndarray):
        return
    some = np.asarray(X[:: -(-len(X) // OFFSET_ROWS)], dtype=float)
    length = float(np.linalg.norm((some - some[0]).std(axis=0)))
    offset = np.abs(some).max(axis=0)
    far = np.flatnonzero(np.finfo(float).eps * offset > LARGEST_ROUNDING * length)
    if length > 0 and len(far):
        j = int(far[0])
        name = f"column {j}" if names is None else repr(str(names[j]))
        raise ValueError(
            f"the entries of {name} are near {some[0, j]:.3g} and rows {length:.2g} apart, which "
            "rounding hides: subtract a constant from the column first, as its mean."
        )


def is_numeric(labels: Any) -> bool:
    """Whether labels are numbers, which an array on a device can hold."""
    return library(labels) is not None or np.asarray(labels).dtype.kind in "biuf"


def check_labels(y: Any) -> None:
    """Refuse rows without a label, with their number and the place of the first."""
    if y is None or library(y) is not None:
        return
    missing = missing_entries(y)
    if missing.any():
        raise ValueError(
            f"labels are missing (None, NaN or NA) in {int(missing.sum())} of {len(missing)} rows "
            f"of y, the first in row {int(missing.argmax())}: leave such rows out of X and y, or "
            "give them labels."
        )


def class_codes(y: Any) -> tuple[Array, Any]:
    """Return the distinct labels, sorted, and the number of each row's label among them."""
    if library(y) is None:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes
    xp = namespace(y)
    # the standard leaves the order of distinct values open
    known = xp.sort(xp.unique_values(y))
    check_classification_targets(numpy(known))
    return numpy(known), xp.searchsorted(known, y)


def require_classes(classes: Array, mass: Array) -> None:
    """Refuse fewer than two classes of positive weight, and classes without weight."""
    if np.count_nonzero(mass) < 2:
        raise ValueError(
            f"the classifier needs two classes with positive weight, got one class: "
            f"{classes[mass > 0].tolist()}."
        )
    if not mass.all():
        raise ValueError(
            f"the classes {classes[mass == 0].tolist()} have no weight: leave their rows out."
        )


#: Arguments of ``fit`` that may come in chunks beside X, by their names there.
BESIDE = {"sample_weight": "w", "groups": "group"}
#: Parameters that rows in chunks do not take, with the values that stand for none.
FIXED: dict[str, tuple[Any, ...]] = {
    "solver": ("auto", "exact"),
    "label_cost": (np.inf,),
    "target_cost": (np.inf,),
}


def open_stream(model: Any, X: Any, y: Any, loss: Loss, extra: dict[str, Any]) -> Any:
    """Return the rows in chunks after the pass that counts them, None if they are read at once.

    That is what becomes of a mapped file that is not for chunks; it is refused where the memory is
    too small, with what keeps the fit from chunks.
    """
    from ..solvers.streamed import opened

    try:
        _require_plain(model, extra)
        if isinstance(X, np.ndarray):
            require_method(loss, model.cost, model.order, X)
    except ValueError as refused:
        if not isinstance(X, np.ndarray):
            raise
        why = f"it cannot read X in chunks. {refused}"
        require_memory(X.nbytes + fit_need(X, folds=True), "a fit in memory to all of X", why)
        return None
    chunks = open_rows(X, y, **{part: extra[name] for name, part in BESIDE.items()})
    if chunks.n < 2:
        raise ValueError(f"a fit needs at least 2 rows, got {chunks.n}.")
    if chunks.d > WRITTEN_UP_TO:
        raise ValueError(
            f"rows in chunks may have {WRITTEN_UP_TO} columns, got {chunks.d}: fit to a part of "
            "the columns, or to rows that fit into memory."
        )
    # a few matrices of d x d, rows kept in memory, and a chunk in float64
    need = 8.0 * (40 * chunks.d**2 + 2**25)
    require_memory(need, f"a fit with {chunks.d} columns", "leave out columns")
    stream = opened(chunks, loss, bool(model.fit_intercept))
    require_method(loss, model.cost, model.order, stream.rows.X)
    if stream.classes is None:
        return stream
    classes, counts = stream.classes, stream.counts
    require_classes(classes, stream.mass)
    factors = None
    if isinstance(model.class_weight, str):
        # "balanced"
        factors = counts.sum() / (len(classes) * counts)
    elif model.class_weight is not None:
        factors = compute_class_weight(model.class_weight, classes=classes, y=classes)
    if factors is not None:
        stream = replace(stream, factors=np.asarray(factors, dtype=float))
        require_classes(classes, stream.mass)
    return stream


def _require_plain(model: Any, extra: dict[str, Any]) -> None:
    """Refuse what is for rows in memory."""
    if extra["support"] is not None:
        raise ValueError("support is for rows in memory, and X comes in chunks: leave support out.")
    for name, known in FIXED.items():
        value = getattr(model, name, known[0])
        if not any(value is one or value == one for one in known):
            raise ValueError(
                f"{name}={value!r} is for rows in memory, and X comes in chunks: use "
                f"{name}={known[0]!r}."
            )
    cv = model.cv
    if not (cv is None or is_whole(cv) or hasattr(cv, "split")):
        raise ValueError(
            "folds of rows in chunks are made of rows kept in memory, whose numbers are not those "
            f"of all rows: give a number or a splitter as cv, got {type(cv).__name__}."
        )
    if model.rule == "worst" and extra["groups"] is None:
        raise ValueError("rule='worst' needs groups: fit(X, y, groups=...), or use rule='auto'.")


def require_softmax_memory(classes: int, d: int) -> None:
    """Refuse a softmax model of rows in chunks whose matrices would not fit into memory."""
    side = (d + 1) * (classes - 1)
    # the Newton matrix over the rows so far, that of a chunk, and a few to factorise it
    what = f"a softmax model of {classes} classes and {d} columns"
    require_memory(8.0 * 6 * side**2, what, "use multi_class='ovr', or leave out columns")
