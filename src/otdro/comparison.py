"""Comparison of our model with unpenalised, L1 and L2 ones on repeated splits of one table.

``compare`` fits every model on the training rows of every split, behind the same preparation of the
columns and with the same inner folds, and measures it on the test rows; ``summarise`` returns means
with standard errors, and the paired differences to our model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import (
    LassoCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    RidgeCV,
)
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.validation import has_fit_parameter

from .estimators import DROClassifier, DRORegressor

Array = NDArray[Any]
Splits = list[tuple[Array, Array]]

#: Inverse strengths C of the l1 and l2 penalties of a classifier that folds choose among.
STRENGTHS = np.logspace(-3, 2, 10)
#: Strengths of the squared l2 penalty of a regression that folds choose among.
RIDGE = np.logspace(-3, 4, 30)
#: Number of strengths of the l1 penalty of a regression; LassoCV finds their range.
LASSO = 50
#: Inner folds at most.
INNER_FOLDS = 5
#: Groups up to which each is left out in turn; folds of more groups hold several.
LEFT_OUT_ONE_BY_ONE = 20
#: Paired differences of at least this many standard errors count in a verdict.
ERRORS = 2.0
#: Measures that differ by this share at most are equal.
ROUNDING = 1e-9
#: The models of a comparison, by the names that readers and documents have for them.
OWN = "otdro"
NO_PENALTY = "no penalty"
L1 = "L1"
L2 = "L2"
EUCLIDEAN = "Euclidean cost"
CONSTANT = "a constant"
METHODS = [OWN, NO_PENALTY, L1, L2, EUCLIDEAN, CONSTANT]
#: Models that are not linear, by their names in ``otdro compare --against``.
AGAINST = {"forest": "random forest", "boosting": "gradient boosting", "splines": "splines"}
#: An average of our model with a published one.
MIX = "mix"
#: A published model with its intercept refitted.
RECALIBRATED = "source, recalibrated"
#: The models that a verdict names, in its order, and what to do where one is better.
REMEDIES = {
    L2: "try --cost euclidean",
    L1: "try --cost linf",
    NO_PENALTY: "try a smaller --delta",
    EUCLIDEAN: "try --cost euclidean",
    **dict.fromkeys(AGAINST.values(), "use it, or add columns of powers and products"),
    MIX: "use it, by otdro fit --source",
    OWN: "leave --source out",
    RECALIBRATED: "use the published model with its intercept refitted to your rows",
}
#: Trees of a random forest.
TREES = 200
#: Rows of a leaf of its trees at least: whole trees give probabilities of 0.
LEAF = 5


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of a data frame with their targets.

    ``groups`` are the environments of the rows, ``unlabelled`` further rows without a target; None
    if there are none.
    """

    X: Any
    y: Array
    task: str
    groups: Array | None = None
    unlabelled: Any = None

    def part(self, rows: Array) -> Self:
        """Return some of the rows, with all that have no target."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, X=self.X.iloc[rows], y=self.y[rows], groups=groups)


@dataclass(frozen=True)
class Score:
    """The measures of one method on one split."""

    method: str
    split: int
    values: dict[str, float]


@dataclass(frozen=True)
class Summary:
    """The mean of a measure with its standard error, and the paired difference to this model."""

    method: str
    measure: str
    mean: float
    se: float
    difference: float
    difference_se: float

    @property
    def value(self) -> str:
        """The mean with its standard error, for a reader."""
        return f"{self.mean:.4g} ± {self.se:.2g}"

    @property
    def minus(self) -> str:
        """The difference to this model with its standard error, for a reader."""
        return f"{self.difference:+.3g} ± {self.difference_se:.2g}"


@dataclass(frozen=True)
class Setting:
    """The parameters that every model of a comparison shares."""

    cv: Any = 5
    intercept: bool = True
    seed: int | None = None


# The models.


def default_model(task: str, setting: Setting) -> Any:
    """Return our estimator of the task with its defaults."""
    model = DROClassifier if task == "classification" else DRORegressor
    return model(cv=setting.cv, fit_intercept=setting.intercept, random_state=setting.seed)


def plain(task: str, setting: Setting) -> Any:
    """Return the model without a penalty."""
    if task == "regression":
        return LinearRegression(fit_intercept=setting.intercept)
    return LogisticRegression(C=np.inf, fit_intercept=setting.intercept, max_iter=10_000)


def tuned_l1(task: str, setting: Setting) -> Any:
    """Return the model with an l1 penalty chosen by folds."""
    if task == "regression":
        # scikit-learn 1.6 has another name for the number of penalties
        count = "n_alphas" if LassoCV().alphas is None else "alphas"
        settings = {count: LASSO, "fit_intercept": setting.intercept}
        return LassoCV(**settings, cv=setting.cv, max_iter=10_000)
    model = logistic_cv(1, **_tuning(setting), solver="liblinear", random_state=setting.seed)
    # liblinear takes two classes only
    return OneVsRestClassifier(model) if task == "multiclass" else model


def tuned_l2(task: str, setting: Setting) -> Any:
    """Return the model with a squared l2 penalty chosen by folds."""
    if task == "regression":
        return RidgeCV(alphas=RIDGE, cv=setting.cv, fit_intercept=setting.intercept)
    return logistic_cv(0, **_tuning(setting), max_iter=1000)


def _tuning(setting: Setting) -> dict[str, Any]:
    own = {"cv": setting.cv, "fit_intercept": setting.intercept}
    return own | {"Cs": STRENGTHS, "scoring": "neg_log_loss"}


def logistic_cv(l1_ratio: int, **settings: Any) -> Any:
    """Return LogisticRegressionCV with the l2 penalty (0) or l1 (1), in every version we take."""
    if "use_legacy_attributes" in signature(LogisticRegressionCV).parameters:
        penalty = {"l1_ratios": (l1_ratio,), "use_legacy_attributes": False}
    else:
        penalty = {"penalty": ("l2", "l1")[l1_ratio]}
    return LogisticRegressionCV(**penalty, **settings)


def contender(
    name: str, task: str, n_classes: int, setting: Setting, ours: Mapping[str, Any]
) -> Any:
    """Return a model to compare by its name; ``ours`` are parameters of our model."""
    from sklearn import ensemble

    kind = "multiclass" if task == "classification" and n_classes > 2 else task
    ending = "Regressor" if task == "regression" else "Classifier"
    linear = {NO_PENALTY: plain, L1: tuned_l1, L2: tuned_l2}
    if name in linear:
        return linear[name](kind, setting)
    if name == CONSTANT:
        return DummyRegressor() if task == "regression" else DummyClassifier(strategy="prior")
    if name == AGAINST["forest"]:
        forest = getattr(ensemble, f"RandomForest{ending}")
        return forest(TREES, min_samples_leaf=LEAF, random_state=setting.seed)
    if name == AGAINST["boosting"]:
        return getattr(ensemble, f"HistGradientBoosting{ending}")(random_state=setting.seed)
    if name == AGAINST["splines"]:
        curves = SplineTransformer(extrapolation="linear")
        return make_pipeline(VarianceThreshold(), curves, tuned_l2(kind, setting))
    if name == EUCLIDEAN:
        ours = {"cost": "euclidean", "delta": "cv"}
    return default_model(task, setting).set_params(**ours)


# The splits.


def folds(y: Array, seed: int | None) -> StratifiedKFold:
    """Return five folds, or as many as the smallest class has rows, but at least two."""
    least = int(np.unique(y, return_counts=True)[1].min())
    return StratifiedKFold(max(2, min(INNER_FOLDS, least)), shuffle=True, random_state=seed)


def inner_folds(y: Array, task: str, seed: int, groups: Array | None = None) -> Any:
    """Return the folds that choose penalties and delta, the same for all models.

    With ``groups`` they leave environments out, if there is more than one.
    """
    if groups is not None and len(np.unique(groups)) > 1:
        splits = leave_out(y, task, groups, most=INNER_FOLDS)
        if splits:
            return splits
    if task == "classification":
        return folds(y, seed)
    return KFold(max(2, min(INNER_FOLDS, len(y) // 2)), shuffle=True, random_state=seed)


def rounds(
    y: Array,
    task: str,
    repeats: int | None,
    seed: int,
    groups: Array | None = None,
    in_order: bool = False,
) -> Splits:
    """Return the splits of a comparison.

    Without ``groups`` they are random: five folds if ``repeats`` is None, else as many splits into
    four and one fifths. With groups whole environments are left out; ``in_order`` trains on the
    environments so far and tests on the next.
    """
    if groups is None:
        if repeats is None:
            return list(inner_folds(y, task, seed).split(y, y))
        splitter = StratifiedShuffleSplit if task == "classification" else ShuffleSplit
        return list(splitter(repeats, test_size=0.2, random_state=seed).split(y, y))
    one_by_one = LEFT_OUT_ONE_BY_ONE
    splits = forward(y, task, groups) if in_order else leave_out(y, task, groups, one_by_one)
    if not splits:
        raise ValueError(
            "no split into environments has training rows of every class; compare without groups."
        )
    return splits


def leave_out(y: Array, task: str, groups: Array, most: int) -> Splits:
    """Return at most ``most`` splits that leave whole environments out.

    A split whose training rows lack a class is dropped; the list may be empty.
    """
    count = min(most, len(np.unique(groups)))
    if count < 2:
        raise ValueError(
            f"splits that leave environments out need two of them, got {str(groups[0])!r} only."
        )
    pairs = GroupKFold(count).split(y, y, groups)
    return [pair for pair in pairs if _has_all_classes(y, task, *pair)]


def forward(y: Array, task: str, groups: Array) -> Splits:
    """Return splits that train on the environments so far and test on the next one.

    Their order is that of the first row of each.
    """
    names = list(dict.fromkeys(groups.tolist()))
    code = np.array([names.index(group) for group in groups.tolist()])
    pairs = [(np.flatnonzero(code < k), np.flatnonzero(code == k)) for k in range(1, len(names))]
    return [pair for pair in pairs if _has_all_classes(y, task, *pair)]


def _has_all_classes(y: Array, task: str, train: Array, test: Array) -> bool:
    """Whether the training rows hold two classes, and every class of the test rows."""
    if task != "classification":
        return True
    classes = np.unique(y[train])
    return len(classes) > 1 and bool(np.isin(y[test], classes).all())


# Fits and their measures.


def compare(
    data: Labelled,
    preprocessing: Any,
    splits: Splits,
    *,
    methods: Sequence[str] = METHODS,
    seed: int = 0,
    ours: Mapping[str, Any] = MappingProxyType({}),
    published: Callable[[Any, Any], Mapping[str, Any]] | None = None,
) -> Iterator[Score]:
    """Yield the scores of every method on every split; preprocessing is fitted inside each.

    ``ours`` are parameters of our model that differ from the defaults. ``published`` returns
    further models by name, given the fitted preprocessing and our model.
    """
    for k, (train_rows, test_rows) in enumerate(splits):
        columns = clone(preprocessing)
        train, test = data.part(train_rows), data.part(test_rows)
        train = prepare(columns, train)
        test = replace(test, X=columns.transform(test.X))
        setting = Setting(cv=inner_folds(train.y, data.task, seed, train.groups), seed=seed)
        classes = len(np.unique(train.y))
        models = {name: contender(name, data.task, classes, setting, ours) for name in methods}
        if published is not None:
            models |= published(columns, models[OWN])
        for name, model in models.items():
            # a baseline that does not converge is scored as it is
            with warnings.catch_warnings(record=True, action="always"):
                fit_model(model, train)
            yield Score(name, k, measures(model, test))


def prepare(columns: Any, data: Labelled) -> Any:
    """Fit a preparation of columns to all rows; return the data as it prepares them."""
    if data.unlabelled is None:
        return replace(data, X=columns.fit_transform(data.X, data.y))
    columns.fit(_stacked(data.X, data.unlabelled))
    return replace(data, X=columns.transform(data.X), unlabelled=columns.transform(data.unlabelled))


def fit_model(model: Any, data: Labelled) -> None:
    """Fit a model, with the environments and the rows without labels if its fit takes them."""
    options: dict[str, Any] = {}
    groups = data.groups
    if groups is not None and len(np.unique(groups)) > 1 and has_fit_parameter(model, "groups"):
        options["groups"] = groups
    if data.unlabelled is not None and has_fit_parameter(model, "unlabelled"):
        options["unlabelled"] = data.unlabelled
    model.fit(data.X, data.y, **options)


def _stacked(X: Any, more: Any) -> Any:
    """Return the rows of two arrays, or of two tables of the same columns, as one."""
    if hasattr(X, "iloc"):
        import pandas as pd

        return pd.concat([X, more], ignore_index=True)
    return np.vstack([X, more])


def measures(model: Any, data: Labelled) -> dict[str, float]:
    """Return the test measures of a fitted model."""
    X, y = data.X, data.y
    if data.task == "regression":
        error = model.predict(X) - y
        return {"RMSE": float(np.sqrt(np.mean(error**2))), "MAE": float(np.abs(error).mean())}
    loss, scored = float("nan"), hasattr(model, "decision_function")
    if scored and len(model.classes_) == 2:
        sign = np.where(y == model.classes_[1], 1.0, -1.0)
        loss = float(np.logaddexp(0, -sign * model.decision_function(X)).mean())
    elif hasattr(model, "predict_proba"):
        column = np.searchsorted(model.classes_, y)
        chances = model.predict_proba(X)[np.arange(len(y)), column]
        if hasattr(model, "estimators_") and not scored:
            # the share of a forest's trees may be 0: count one more tree that knows nothing
            trees = len(model.estimators_)
            chances = (trees * chances + 1 / len(model.classes_)) / (trees + 1)
        loss = float(-np.log(np.maximum(chances, 1e-300)).mean())
    return {"log-loss": loss, "accuracy": float((model.predict(X) == y).mean())}


# Summaries.


def summarise(scores: list[Score]) -> list[Summary]:
    """Return means and standard errors over the splits, and paired ones against the first method.

    The first is this model: ours, or its average with a published one.
    """
    methods = list(dict.fromkeys(score.method for score in scores))
    summaries = []
    for measure in scores[0].values:
        values = {
            method: np.array([s.values[measure] for s in scores if s.method == method])
            for method in methods
        }
        for method, own in values.items():
            difference = own - values[methods[0]]
            figures = standard_error(own), float(difference.mean()), standard_error(difference)
            settled = [_settled(figure, own) for figure in figures]
            summaries.append(Summary(method, measure, float(own.mean()), *settled))
    return summaries


def _settled(value: float, measured: Array) -> float:
    """Return a difference of measures, 0 for what rounding leaves of none."""
    return 0.0 if abs(value) <= ROUNDING * np.abs(measured).mean() else value


def standard_error(values: Array) -> float:
    """Return sd/sqrt(n), nan for one value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def verdict(scores: Sequence[Summary], cost: str | None = None) -> str:
    """Return in words: is this model, the first, worth having here, and if not, what to try.

    Differences are of the first measure, a loss, paired by split. Less than two standard errors
    better than a constant is no proof of anything, so that it is printed with its numbers.
    """
    measure = scores[0].measure
    of_method = {s.method: s for s in scores if s.measure == measure}
    gains = {method: gain(s) for method, s in of_method.items()}
    doubtful = CONSTANT in gains and gains[CONSTANT] < ERRORS
    opening = _beside_a_constant(of_method[CONSTANT]) if doubtful else ""
    others = [name for name in REMEDIES if name in gains and name != scores[0].method]
    better = sorted((n for n in others if gains[n] <= -ERRORS), key=gains.__getitem__)
    beaten = [n for n in others if gains[n] >= ERRORS]
    even = [n for n in others if n not in beaten and n not in better]
    parts = []
    if beaten:
        parts.append(f"better than {_and(beaten)} here")
    if even:
        parts.append(f"no better and no worse than {_and(even)}")
    if better:
        remedy = REMEDIES[better[0]]
        advice = "" if remedy == f"try --cost {cost}" else f": {remedy}"
        verb = "is" if len(better) == 1 else "are"
        parts.append(f"{_and(better)} {verb} better{advice}")
    text = "; ".join(parts)
    text = text[:1].upper() + text[1:] + f" ({measure}, {ERRORS:g} standard errors)."
    return f"{opening} {text if parts else ''}".strip()


def _beside_a_constant(constant: Summary) -> str:
    """Return what was measured where ours is not surely better than a constant."""
    told = f"{constant.difference:.2g} ± {constant.difference_se:.2g} over these splits"
    if constant.difference <= 0:
        return (
            f"No better than a model that sees no column (its {constant.measure} minus ours: "
            f"{told})."
        )
    return (
        f"Not shown to be better than a model that sees no column ({constant.measure} lower by "
        f"{told}): that may be chance either way; more rows would tell, and otdro compare "
        "repeats it over more splits."
    )


def gain(other: Summary) -> float:
    """Return by how many standard errors of the paired difference ours is better than a method."""
    difference = -other.difference if other.measure == "accuracy" else other.difference
    if other.difference_se > 0:
        return difference / other.difference_se
    return float("inf") * difference if difference else 0.0


def _and(methods: list[str]) -> str:
    return methods[0] if len(methods) == 1 else ", ".join(methods[:-1]) + " and " + methods[-1]
