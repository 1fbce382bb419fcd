"""Linear models: read the affine scores x'B + b out of any fitted scikit-learn model or pipeline.

``read`` finds the coefficients and the loss of the last step and checks that the predictions are
those of the scores. The steps in front of it prepare rows (``space="last"``), or are multiplied
into the coefficients where all of them are affine (``space="raw"``).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FactorAnalysis, IncrementalPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .. import losses
from ..arrays import formats, numpy, stays, told_of_text
from ..costs import Cost
from ..costs.table import named
from ..design import Design, as_dense
from ..estimators.columns import ColumnGroups, column_groups
from ..estimators.parameters import refuse_other_columns
from ..estimators.summary import front_and_last, training_scale
from ..losses import Huber, Loss, Quantile
from ..problem import Ball

Array = NDArray[Any]

#: Number of rows on which the scores are compared with the model's own predictions.
COMPARED_ROWS = 1_000
#: Largest difference between both, relative to the scores: a model may hold float32 numbers.
SCORE_TOLERANCE = 1e-4
#: The loss of models that have one only, by class name without "CV".
LOSS_BY_CLASS = {
    "LogisticRegression": "logistic",
    "SVC": "hinge",
    "LinearRegression": "squared",
    "Ridge": "squared",
    "Lasso": "squared",
    "LassoLars": "squared",
    "ElasticNet": "squared",
    "BayesianRidge": "squared",
    "ARDRegression": "squared",
    "Lars": "squared",
    "OrthogonalMatchingPursuit": "squared",
}
#: otdro's names of the losses that scikit-learn's parameter ``loss`` names.
LOSS_BY_NAME = {
    "hinge": "hinge",
    "squared_hinge": "squared_hinge",
    "log_loss": "logistic",
    "squared_error": "squared",
}
#: Transformers that are affine for all parameters; an imputer is where no value is missing.
AFFINE = (
    StandardScaler,
    MinMaxScaler,
    MaxAbsScaler,
    RobustScaler,
    PCA,
    IncrementalPCA,
    TruncatedSVD,
    FactorAnalysis,
    SelectorMixin,
    SimpleImputer,
    GaussianRandomProjection,
    SparseRandomProjection,
)


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Scores X B' + b: one row of B per class (two classes: 0 and beta), one row for regression.

    Attributes
    ----------
    coef, intercept : ndarray of shape (K, d) and (K,)
        B and b, in the columns ``names``.
    classes : ndarray of shape (K,) or None
        The labels; None for regression.
    names : list of str
        The columns.
    loss, joint
        The loss that the model was fitted by, and whether it is the softmax loss of all classes.
    ball : Ball or None
        The ball that the model was fitted for.
    space : str
        "last" or "raw": the columns in front of the last step, or those of the table.
    front : transformer or None
        The steps in front of the model.
    raw_columns : list of str
        Columns that a data frame must have; empty if any are accepted.
    notes : list of str
        Sentences for the reader.
    scale : ndarray of shape (d,) or None
        The standard deviations of the columns in the training rows; None where no fit saved them.
    """

    coef: Array
    intercept: Array
    classes: Array | None
    names: list[str]
    loss: Loss
    joint: bool
    ball: Ball | None
    space: str = "last"
    front: Any = None
    raw_columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scale: Array | None = None

    @property
    def deviations_of(self) -> str:
        """Whose standard deviations those of the columns are: which rows, after which steps."""
        rows = "these rows" if self.scale is None else "the training rows"
        made = [] if self.front is None or self.space == "raw" else list(_steps(self.front))
        plain = (str, type(None), SimpleImputer, OneHotEncoder)
        names = dict.fromkeys(type(step).__name__ for step in made if not isinstance(step, plain))
        return f"of {rows}" + (f", after {' and '.join(names)}" if names else "")

    @property
    def groups(self) -> ColumnGroups:
        """The columns of the table that the columns of the model stem from."""
        return column_groups(self.front if self.space == "last" else None, self.names)

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
        # labels are sorted in every scikit-learn model, but need not be in other models
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes[order], y)]

    def rows(self, X: Any, name: str = "X") -> Any:
        """Return rows of the table as the linear model sees them: float, finite, its columns."""
        if self.space == "last" and self.front is not None:
            try:
                X = self.front.transform(X)
            except (ValueError, TypeError, KeyError) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise ValueError(
                    f"the steps before the model refuse {name}: {reason}. Give the columns and "
                    "kinds of values that the pipeline was fitted to."
                ) from None
        else:
            own = "list(model.feature_names_in_)"
            require_columns(X, self.raw_columns, name, "the training rows", own)
        return finite_rows(X, len(self.names), self.names, name)


def read(model: Any, X: Any, space: str = "last") -> LinearModel:
    """Return the linear model inside ``model``, for rows like X."""
    if space not in ("last", "raw"):
        raise ValueError(f"space must be 'last' or 'raw', got space={space!r}.")
    front, last = front_and_last(model)
    coef, intercept, classes = _coefficients(last)
    raw_columns = [str(name) for name in getattr(model, "feature_names_in_", [])]
    loss, notes = _own_loss(last, classes)
    linear = LinearModel(
        coef=coef,
        intercept=intercept,
        classes=classes,
        names=_names(front, coef.shape[1], X, raw_columns),
        loss=loss,
        joint=not notes and _is_softmax(last, classes),
        ball=getattr(last, "ball_", None),
        front=front,
        raw_columns=raw_columns if front is None else [],
        notes=notes + _class_weight_note(last),
        scale=training_scale(last),
    )
    _require_agreement(last, linear, linear.rows(X))
    return _in_raw_columns(linear, X, raw_columns) if space == "raw" else linear


def _coefficients(last: Any) -> tuple[Array, Array, Array | None]:
    """Return B, b and the classes; refuse what is not linear or not fitted."""
    kind = type(last).__name__
    parts = [last] if hasattr(last, "coef_") else getattr(last, "estimators_", None)
    if not parts or not all(hasattr(part, "coef_") for part in parts):
        try:
            check_is_fitted(last)
        except NotFittedError:
            raise ValueError(f"this {kind} is not fitted: call fit(X, y) first.") from None
        except TypeError:
            raise ValueError(f"{kind} is not a scikit-learn model: pass a fitted one.") from None
        raise ValueError(
            f"{kind} is not a linear model: it has no coef_ and intercept_. Audit a linear one, "
            "e.g. LogisticRegression, LinearSVC, Ridge, or a Pipeline that ends in one."
        )
    coef = np.vstack([np.atleast_2d(numpy(as_dense(p.coef_)).astype(float)) for p in parts])
    intercept = np.concatenate([np.ravel(numpy(p.intercept_).astype(float)) for p in parts])
    if len(intercept) == 1:
        intercept = np.repeat(intercept, len(coef))
    if not is_classifier(last) and not hasattr(last, "classes_"):
        if len(coef) > 1:
            raise ValueError(f"{kind} predicts {len(coef)} targets; audit one target at a time.")
        return coef, intercept, None
    classes = np.asarray(last.classes_)
    if len(classes) == 2 and len(coef) == 1:
        coef = np.vstack([0 * coef, coef])
        intercept = np.array([0.0, intercept[0]])
    if len(coef) != len(classes):
        raise ValueError(
            f"{kind} has {len(coef)} rows of coefficients for {len(classes)} classes; an audit "
            "needs one per class (one-vs-rest or multinomial). Use LinearSVC, "
            "LogisticRegression or OneVsRestClassifier."
        )
    return coef, intercept, classes


def _own_loss(model: Any, classes: Array | None) -> tuple[Loss, list[str]]:
    """Return the loss that a model was fitted by; another one and a note where otdro lacks it."""
    task = "regression" if classes is None else "classification"
    inner: Any = getattr(model, "estimator", None) if hasattr(model, "estimators_") else model
    kind = type(inner).__name__
    name = LOSS_BY_CLASS.get(kind.removesuffix("CV"))
    if name is None and isinstance(getattr(inner, "loss", None), str):
        name = LOSS_BY_NAME.get(inner.loss)
    loss = None if name is None else losses.resolve(name)
    if isinstance(getattr(inner, "loss_", None), Loss):
        loss = inner.loss_
    elif kind == "HuberRegressor":
        loss = Huber(M=float(inner.epsilon * inner.scale_))
    elif kind == "QuantileRegressor":
        loss = Quantile(tau=float(inner.quantile))
    if loss is not None and loss.task == task:
        return loss, []
    substitute = "squared" if classes is None else "logistic"
    note = (
        f"the loss of {type(model).__name__} is none of otdro's; the worst-case loss is that of "
        f"the {substitute} loss."
    )
    return losses.resolve(substitute), [note]


def _is_softmax(model: Any, classes: Array | None) -> bool:
    """Whether more than two classes share one softmax loss, as in logistic models."""
    if classes is None or len(classes) == 2 or hasattr(model, "estimators_"):
        return False
    if hasattr(model, "robust_risk_"):
        return np.ndim(model.robust_risk_) == 0
    return "LogisticRegression" in type(model).__name__ and model.solver != "liblinear"


def _class_weight_note(last: Any) -> list[str]:
    """Return a note where the model was fitted with class weights, which an audit does not use."""
    inner = getattr(last, "estimator", last) if hasattr(last, "estimators_") else last
    weight = getattr(inner, "class_weight", None)
    if weight is None:
        return []
    return [
        f"the model was fitted with class_weight={weight!r}; accuracy and worst-case loss count "
        "every row once, or by the sample_weight given to the audit."
    ]


def _names(front: Any, d: int, X: Any, raw_columns: list[str]) -> list[str]:
    """Return the names of the d columns in front of the last step, x0, x1, ... if it has none."""
    names = raw_columns or [str(column) for column in getattr(X, "columns", [])]
    if front is not None:
        try:
            names = [str(name) for name in front.get_feature_names_out()]
            names = column_groups(front, names).names
        except (AttributeError, ValueError, NotFittedError):
            names = []
    return names if len(names) == d else named(None, None, d)


def _require_agreement(last: Any, model: LinearModel, rows: Any) -> None:
    """Refuse a model whose predictions are not those of its linear scores."""
    some = rows[: min(COMPARED_ROWS, rows.shape[0])]
    scores = model.scores(some)
    with warnings.catch_warnings():
        # the names of the columns were compared before
        warnings.simplefilter("ignore", UserWarning)
        predicted = numpy(last.predict(some))
    tolerance = SCORE_TOLERANCE * (1 + np.abs(scores).max(initial=0.0))
    if model.classes is None:
        agrees = np.abs(np.ravel(predicted) - scores[:, 0]) <= tolerance
    else:
        own = model.codes(predicted)
        agrees = scores[np.arange(len(own)), own] >= scores.max(axis=1) - tolerance
    if not agrees.all():
        raise ValueError(
            f"the predictions of {type(last).__name__} are not those of its coef_ and intercept_ "
            "(another link function, or one-vs-one coefficients), so that a linear audit would "
            "be wrong. Use a model whose prediction is x'coef_ + intercept_, or its largest entry."
        )


def _in_raw_columns(model: LinearModel, X: Any, raw_columns: list[str]) -> LinearModel:
    """Return the same model in the columns of X where the steps in front are affine."""
    if model.front is None:
        return replace(model, space="raw")
    step = next((step for step in _steps(model.front) if not _is_affine(step)), None)
    if step is not None:
        note = (
            f"the step {type(step).__name__} is not affine, so that the model is not linear in "
            "the raw columns. The audit is in the space in front of the last step, space='last'."
        )
        warnings.warn(note, UserWarning, stacklevel=4)
        return replace(model, notes=[*model.notes, note])
    A, shift = _affine_map(model.front, X)
    own_ball = (
        "the model's own ball is in front of its last step; in the raw columns the cost is "
        "Euclidean unless one is given."
    )
    return replace(
        model,
        coef=model.coef @ A.T,
        intercept=model.intercept + model.coef @ shift,
        names=raw_columns or named(getattr(X, "columns", None), None, len(A)),
        ball=None,
        space="raw",
        raw_columns=raw_columns,
        notes=model.notes if model.ball is None else [*model.notes, own_ball],
        scale=None,
    )


def _steps(step: Any) -> Iterator[Any]:
    """Yield the transformers inside pipelines, unions and column transformers, in their order."""
    if isinstance(step, Pipeline):
        parts = [part for _, part in step.steps]
    elif isinstance(step, ColumnTransformer):
        parts = [part for _, part, _ in step.transformers_]
    elif isinstance(step, FeatureUnion):
        parts = [part for _, part in step.transformer_list]
    elif isinstance(step, FrozenEstimator):
        parts = [step.estimator]
    else:
        yield step
        return
    for part in parts:
        yield from _steps(part)


def _is_affine(step: Any) -> bool:
    """Whether a transformer is known to be affine."""
    identity = isinstance(step, FunctionTransformer) and step.func is None
    known = isinstance(step, AFFINE) and not getattr(step, "clip", False)
    return identity or known or step is None or step in ("passthrough", "drop")


def _affine_map(front: Any, X: Any) -> tuple[Array, Array]:
    """Return A (d, k) and a (k,) with front.transform(x) = xA + a, for rows with X's columns.

    Row j of A is the change of the output for a step of one standard deviation of column j, over
    that step, taken at the mean row.
    """
    rows = np.asarray(as_dense(X), dtype=float)
    center, step = rows.mean(axis=0), rows.std(axis=0)
    step = np.where(step > 0, step, 1.0)
    probes = np.vstack([center, center + np.diag(step)])
    if hasattr(X, "columns"):
        probes = type(X)(probes, columns=X.columns)
    image = np.asarray(as_dense(front.transform(probes)), dtype=float)
    A = (image[1:] - image[0]) / step[:, None]
    return A, image[0] - center @ A


def require_columns(X: Any, wanted: list[str], name: str, whose: str, select: str) -> None:
    """Refuse a data frame with other columns than those wanted, or in another order."""
    columns = [str(column) for column in getattr(X, "columns", wanted)]
    refuse_other_columns(columns, wanted or columns, name, whose, select)


def finite_rows(X: Any, d: int, names: list[str], name: str, like: str = "the model") -> Any:
    """Return float rows, CSR or dense, with d columns and no NaN; say what is wrong else."""
    with told_of_text(name):
        X = check_array(X, **formats(X), ensure_all_finite=stays(X), input_name=name)
    if X.shape[1] != d:
        raise ValueError(
            f"{name} has shape {X.shape} but {like} has {d} columns: give the same columns."
        )
    if not stays(X) and not np.isfinite(X.data if hasattr(X, "tocsr") else X).all():
        where = int(np.argmin(np.isfinite(as_dense(X)).all(axis=0)))
        raise ValueError(
            f"{name} has NaN or infinite values, first in column {names[where]!r}: fill them "
            "in or leave those rows out."
        )
    return X
