"""A linear model, read out of any fitted scikit-learn model or pipeline that ends in one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ..arrays import numpy
from ..costs import Cost
from ..costs.table import named
from ..design import Design, as_dense
from ..entry import formats, stays
from ..losses import Loss
from ..problem import Ball
from .affine import NotAffineError, affine_map
from .own_loss import own_loss

Array = NDArray[Any]

#: Rows on which the scores read out are compared with the model's own predictions.
COMPARED = 1_000
#: How far those may be apart, relative to their size: models may be float32.
CLOSE = 1e-4
#: How scikit-learn's encoder ends the name of the indicator that rare categories share.
RARE = "_infrequent_sklearn"
SPACES = ("last", "raw")


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Scores X B' + b: one row of B per class (two: 0 and beta), or one row for regression.

    ``classes`` are the labels, None for regression; ``loss`` the model's own, ``joint`` where it is
    the softmax loss of all classes; ``ball`` the one that it was fitted for, None if there is none.
    """

    coef: Array
    intercept: Array
    classes: Array | None
    names: list[str]
    loss: Loss
    joint: bool
    ball: Ball | None

    def scores(self, X: Any) -> Array:
        """Return the scores, of shape (n, K), or (n, 1) for regression."""
        return numpy(Design(X).scores(self.coef.T)) + self.intercept

    def fitted_delta(self, cost: Cost, order: int) -> float | None:
        """Return the delta that the model was fitted for under this cost, None if there is none."""
        if self.ball is None or self.ball.cost is not cost or self.ball.order != order:
            return None
        return float(self.ball.delta)

    def codes(self, y: Any) -> Array:
        """Return the number of the class of each label; refuse labels the model does not know."""
        assert self.classes is not None
        y = np.asarray(y)
        unknown = sorted(set(y.tolist()) - set(self.classes.tolist()), key=str)
        if unknown:
            raise ValueError(
                f"y has labels that the model does not know, {unknown[:5]}; it knows "
                f"{self.classes.tolist()[:20]}. Leave those rows out, or fit again."
            )
        # labels are sorted in every scikit-learn model, but need not be in a stranger's
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes[order], y)]


@dataclass(frozen=True, eq=False)
class ReadModel:
    """A linear model and how to bring rows before it: ``rows`` of raw data, ``space`` of both."""

    model: LinearModel
    front: Any
    space: str
    raw_columns: list[str]
    notes: list[str]

    def rows(self, X: Any, name: str = "X") -> Any:
        """Return the rows as the linear model sees them: float, finite, with its columns."""
        if self.space == "last" and self.front is not None:
            X = transformed(self.front, X, name)
        else:
            own = "list(model.feature_names_in_)"
            require_columns(X, self.raw_columns, name, "the model was fitted to", own)
        return finite_rows(X, len(self.model.names), self.model.names, name)


def require_columns(X: Any, wanted: list[str], name: str, whose: str, select: str) -> None:
    """Refuse a data frame with other columns than those wanted, or in another order."""
    found = [str(column) for column in getattr(X, "columns", wanted)]
    if not wanted or found == wanted:
        return
    missing = [column for column in wanted if column not in set(found)]
    what = f"lacks {missing[:5]}" if missing else "has them in another order, or others beside"
    raise ValueError(
        f"{name} has other columns than {whose}: it {what}. Select them in that order, "
        f"{name}[{select}]."
    )


def read(model: Any, X: Any, space: str = "last") -> ReadModel:
    """Return the linear model inside ``model`` and the way of rows like X to it."""
    if space not in SPACES:
        raise ValueError(f"space must be 'last' or 'raw', got space={space!r}.")
    model = getattr(model, "best_estimator_", model)
    front, last = _split(model)
    coef, intercept, classes = _coefficients(last)
    raw = [str(name) for name in getattr(model, "feature_names_in_", [])]
    loss, joint, notes = own_loss(last, classes)
    notes += _weighting(last)
    names = _names(front, coef.shape[1], X, raw)
    found = LinearModel(coef, intercept, classes, names, loss, joint, getattr(last, "ball_", None))
    reading = ReadModel(found, front, "last", raw if front is None else [], notes)
    _agree(last, found, reading.rows(X))
    if space == "raw":
        return _raw(reading, X, raw)
    return reading


def _weighting(last: Any) -> list[str]:
    """Return a note where the model was fitted with class weights, which an audit does not use."""
    inner = getattr(last, "estimator", last) if hasattr(last, "estimators_") else last
    weight = getattr(inner, "class_weight", None)
    if weight is None:
        return []
    return [
        f"the model was fitted with class_weight={weight!r}; accuracy and worst-case loss count "
        "every row once, or by the sample_weight given to the audit."
    ]


def _split(model: Any) -> tuple[Any, Any]:
    """Return the steps in front (None if there are none) and the last step."""
    if not isinstance(model, Pipeline):
        return None, model
    last = model.steps[-1][1]
    return (model[:-1] if len(model.steps) > 1 else None), last


def _coefficients(last: Any) -> tuple[Array, Array, Array | None]:
    """Return B, b and the classes; refuse what is not linear or not fitted."""
    kind = type(last).__name__
    parts = getattr(last, "estimators_", None) if not hasattr(last, "coef_") else [last]
    if not parts or not all(hasattr(part, "coef_") for part in parts):
        _require_fitted(last, kind)
        raise ValueError(
            f"{kind} is not a linear model: it has no coef_ and intercept_. Audit a linear one, "
            "e.g. LogisticRegression, LinearSVC, Ridge, or a Pipeline that ends in one."
        )
    coefs, intercepts = ([numpy(as_dense(p.coef_)) for p in parts], [p.intercept_ for p in parts])
    coef = np.vstack([np.atleast_2d(part.astype(float)) for part in coefs])
    intercept = np.concatenate([np.ravel(numpy(part).astype(float)) for part in intercepts])
    intercept = np.broadcast_to(intercept, (len(coef),)) if len(intercept) == 1 else intercept
    if not is_classifier(last) and not hasattr(last, "classes_"):
        if len(coef) > 1:
            raise ValueError(f"{kind} predicts {len(coef)} targets; audit one target at a time.")
        return coef, np.asarray(intercept), None
    classes = np.asarray(last.classes_)
    if len(classes) == 2 and len(coef) == 1:
        coef, intercept = np.vstack([0 * coef, coef]), np.array([0.0, intercept[0]])
    if len(coef) != len(classes):
        raise ValueError(
            f"{kind} has {len(coef)} rows of coefficients for {len(classes)} classes; an audit "
            "needs one per class (one-vs-rest or multinomial). Use LinearSVC, "
            "LogisticRegression or OneVsRestClassifier."
        )
    return coef, np.asarray(intercept), classes


def _require_fitted(last: Any, kind: str) -> None:
    try:
        check_is_fitted(last)
    except NotFittedError:
        raise ValueError(f"this {kind} is not fitted: call fit(X, y) first.") from None
    except TypeError:
        raise ValueError(f"{kind} is not a scikit-learn model: pass a fitted one.") from None


def feature_names(front: Any) -> list[str]:
    """Return the names of the features that a fitted preparation makes, for a reader.

    An encoder calls the categories that share an indicator ``column_infrequent_sklearn``.
    """
    names = [str(name) for name in front.get_feature_names_out()]
    return [
        f"other values of {name.removesuffix(RARE)}" if name.endswith(RARE) else name
        for name in names
    ]


def _names(front: Any, d: int, X: Any, raw: list[str]) -> list[str]:
    """Return the names of the columns in front of the last step."""
    if front is not None:
        try:
            found = feature_names(front)
        except (AttributeError, ValueError, NotFittedError):
            found = []
        return found if len(found) == d else named(None, None, d)
    if len(raw) == d:
        return raw
    columns = getattr(X, "columns", None)
    return named(columns if columns is not None and len(columns) == d else None, None, d)


def _agree(last: Any, model: LinearModel, rows: Any) -> None:
    """Refuse a model whose predictions are not those of its linear scores."""
    some = rows[: min(COMPARED, rows.shape[0])]
    scores = model.scores(some)
    with warnings.catch_warnings():
        # the names of the columns were compared before
        warnings.simplefilter("ignore", UserWarning)
        predicted = numpy(last.predict(some))
    size = CLOSE * (1 + np.abs(scores).max(initial=0.0))
    if model.classes is None:
        agrees = bool(np.abs(np.ravel(predicted) - scores[:, 0]).max(initial=0.0) <= size)
    else:
        own = model.codes(predicted)
        agrees = bool((scores[np.arange(len(own)), own] >= scores.max(axis=1) - size).all())
    if not agrees:
        raise ValueError(
            f"the predictions of {type(last).__name__} are not those of its coef_ and intercept_ "
            "(another link function, or one-vs-one coefficients), so that a linear audit would "
            "be wrong. Use a model whose prediction is x'coef_ + intercept_, or its largest entry."
        )


def _raw(reading: ReadModel, X: Any, raw: list[str]) -> ReadModel:
    """Return the same model in the raw columns where the steps in front are affine."""
    if reading.front is None:
        return replace(reading, space="raw")
    try:
        A, shift = affine_map(reading.front, X)
    except NotAffineError as error:
        note = f"{error} The audit is in the space in front of the last step, space='last'."
        warnings.warn(note, UserWarning, stacklevel=4)
        return replace(reading, notes=[*reading.notes, note])
    model = reading.model
    names = raw or named(getattr(X, "columns", None), None, len(A))
    inner = replace(
        model,
        coef=model.coef @ A.T,
        intercept=model.intercept + model.coef @ shift,
        names=names,
        ball=None,
    )
    notes = list(reading.notes)
    if model.ball is not None:
        notes.append(
            "the model's own ball is in front of its last step; in the raw columns the cost is "
            "Euclidean unless one is given."
        )
    return ReadModel(inner, reading.front, "raw", raw, notes)


def transformed(front: Any, X: Any, name: str) -> Any:
    """Return the rows behind the steps in front; say which rows they refuse."""
    try:
        return front.transform(X)
    except (ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"the steps before the model refuse {name}: {reason}. Give the columns and kinds of "
            "values that the pipeline was fitted to."
        ) from None


def finite_rows(X: Any, d: int, names: list[str], name: str, like: str = "the model") -> Any:
    """Return float rows, CSR or dense, with d columns and no NaN; say what is wrong else."""
    values: Any
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        values = X.data
    elif stays(X):
        X = check_array(X, **formats(X), input_name=name)
        values = np.zeros(0)
    else:
        try:
            X = np.asarray(X)
            X = X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)
        except (ValueError, TypeError):
            raise ValueError(
                f"{name} has entries that are not numbers: encode them as the model's training "
                "data, or pass the whole Pipeline."
            ) from None
        values = X
    if X.ndim != 2:
        raise ValueError(f"{name} must be a table of rows and columns, got shape {X.shape}.")
    if X.shape[1] != d:
        raise ValueError(
            f"{name} has shape {X.shape} but {like} has {d} columns: give the same columns."
        )
    if X.shape[0] == 0:
        raise ValueError(f"{name} has no rows.")
    if not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(as_dense(X)).all(axis=0)))
        raise ValueError(
            f"{name} has NaN or infinite values, first in column {names[where]!r}: fill them "
            "in or leave those rows out."
        )
    return X
