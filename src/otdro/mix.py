r"""Averages of linear models: fits to the same rows, and published models.

Members (fits to the n rows) and sources (given slopes, intercept refitted) have coefficients
:math:`\beta_j`, intercepts :math:`b_j` and out-of-fold scores on the same folds. The average is
:math:`\beta = \sum_j w_j \beta_j,\ b = \sum_j w_j b_j` with the posterior mean of the weights,

.. math:: w = \int v\, p(v)\, dv \Big/ \int p(v)\, dv,\qquad p(v) = e^{-n L(v)} v_1^{\sqrt n/5}

over the simplex. L(v) is the mean out-of-fold loss of the model with weights v; for the squared
loss it is divided by twice its least value, the Gaussian likelihood at the variance of the best
model. The second factor is the prior for the first member: n L differs by chance in proportion to
the root of n, so that the others need as much proof.
The worst-case risk is convex in :math:`(\beta, b)`, so that of the average is at most the average
of those of the models.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import logit
from scipy.stats.qmc import Sobol
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter, validate_data

from .design import as_dense, model_scores
from .estimators import DROClassifier, DRORegressor
from .estimators.base import DROEstimator
from .estimators.classifier import LinearClassifier
from .estimators.parameters import class_codes, require_classes
from .estimators.regressor import LinearRegressor
from .inspection.linear import COMPARED_ROWS, read
from .losses import Logistic, Loss, Softmax, Squared
from .problem import Problem, Sample
from .radius.checks import check_groups, check_weights, normalise
from .radius.folds import REPEAT_UP_TO, REPEATS, Split, fold_seed, splits
from .radius.rules import design_effect
from .worst_case import robust_risk_of

Array = NDArray[Any]

#: The joint weight of all sources below which ``message_`` says that the rows speak against them.
LITTLE_WEIGHT = 0.05
#: What a member must do, for the sentence that refuses another.
NEEDED = {
    "classification": "gives probabilities, such as DROClassifier() or LogisticRegressionCV(), "
    "with more than two classes as a softmax model",
    "regression": "fits means by the squared loss, such as DRORegressor() or RidgeCV()",
}
#: Points of the simplex by which its integrals are taken, a power of 2.
POINTS = 128
#: The exponent of the prior for the first member at n = 1 (`experiments/reports/mix.md`).
PRIOR = 0.2


def scores_of(model: Array, X: Any) -> Array:
    """Return the scores (n, K) of a model (K, d + 1): coefficients, then the intercept."""
    return np.asarray(model_scores(X, model[:, :-1], model[:, -1]))


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows X, targets y (n,) as the loss takes them, weights of sum 1, and the shared folds.

    ``tested`` (E,) are the rows that folds test, one fold after another, and ``share`` (E,) their
    shares of 1: a row that several folds test shares its weight.
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    groups: Array | None
    folds: list[Split]
    tested: Array
    share: Array

    def losses(self, scores: Array) -> Array:
        """Return the losses (E,) of tested rows at their scores (E, K)."""
        z = scores if self.loss.outputs > 1 else scores[:, 0]
        return np.asarray(self.loss.value(z, self.y[self.tested]))

    def refitted(self, source: Array, some: Any = slice(None)) -> Array:
        """Return a source with the intercept of least mean loss on some rows."""
        weights = self.weights[some] / self.weights[some].sum()
        shift = best_shift(self.loss, scores_of(source, self.X[some]), self.y[some], weights)
        return np.column_stack([source[:, :-1], source[:, -1] + shift])

    def out_of_fold(self, models: list[Array]) -> Array:
        """Return the scores (E, K) of tested rows at the models of the folds that test them."""
        pairs = zip(models, self.folds, strict=True)
        return np.concatenate([scores_of(model, self.X[test]) for model, (_, test) in pairs])

    def effective_number(self, losses: Array) -> float:
        """Return the number of distinct rows, divided by the design effect of the groups."""
        n = float(Sample(self.X, [self.y], self.weights, self.loss, True).distinct)
        if self.groups is None:
            return n
        rows, place, times = np.unique(self.tested, return_inverse=True, return_counts=True)
        return n / design_effect(np.bincount(place, losses) / times, self.groups[rows])


def best_shift(loss: Loss, scores: Array, y: Array, weights: Array) -> Array:
    """Return the shift (K,) of the scores (n, K) with the least mean loss; weights sum to 1."""
    if loss.task == "regression":
        return np.array([weights @ (y - scores[:, 0])])
    if loss.outputs == 1:
        z, share = scores[:, 0], float(weights @ (y > 0))
        # at the ends every probability is below, or above, the share of positives
        low, high = logit(share) - z.max() - 1, logit(share) - z.min() + 1

        def excess(b: float) -> float:
            return float(weights @ loss.derivative(z + b, y))

        # bisection where the scores are steep: 2^-200 of any interval is below xtol
        return np.array([brentq(excess, low, high, xtol=1e-12, maxiter=1_000)])

    def risk(b: Array) -> tuple[float, Array]:
        z = scores + b
        return float(weights @ loss.value(z, y)), weights @ loss.derivative(z, y)

    start = loss.constant(y, weights) - weights @ scores
    solution = minimize(risk, start, jac=True, options={"gtol": 1e-9})
    return np.asarray(solution.x - solution.x.mean())


def mixing_weights(rows: TrainingRows, scores: Array, n: float) -> Array:
    """Return the posterior mean of the weights (J,) from the out-of-fold scores (J, E, K).

    The first model is the one that the prior is for; n is the effective number of rows.
    """
    cuts = np.sort(Sobol(len(scores) - 1, scramble=False).random(POINTS), axis=1)
    points = np.diff(cuts + 0.5 / POINTS, prepend=0.0, append=1.0)
    risks = np.array([rows.share @ rows.losses(np.tensordot(v, scores, axes=1)) for v in points])
    unit = 2 * risks.min() if rows.loss.task == "regression" else 1.0
    log_p = PRIOR * np.sqrt(n) * np.log(points[:, 0]) - n * risks / max(unit, np.finfo(float).tiny)
    p = np.exp(log_p - log_p.max())
    return np.asarray(p @ points / p.sum())


@dataclass(eq=False, repr=False, match_args=False)
class _Mix(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: read the models, weigh them, average them."""

    _task: ClassVar[str]

    members: Any = None
    sources: Any = ()
    _: KW_ONLY
    cv: Any = 5
    random_state: Any = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the members, weigh them and the sources by their out-of-fold loss, and average.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows, in the units of the sources.
        y : array-like of shape (n_samples,)
            Labels of any type (classifier) or numbers (regressor).
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative weights of the rows; only their ratios matter.
        groups : array-like of shape (n_samples,), default=None
            The environment of each row: folds leave whole groups out.

        Returns
        -------
        self
        """
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)
        members, sources = self._named_models()
        rows = self._training_rows(X, y, sample_weight, groups)
        slopes = [self._read_source(name, source, rows) for name, source in sources.items()]
        beside = {"sample_weight": sample_weight, "groups": groups}
        fitted = Parallel(n_jobs=self.n_jobs)(
            delayed(self._fitted)(name, member, X, y, rows, beside)
            for name, member in members.items()
        )
        self.members_ = dict(zip(members, (model for model, _, _ in fitted), strict=True))
        models = [linear for _, linear, _ in fitted] + [rows.refitted(each) for each in slopes]
        scores = [out_of_fold for _, _, out_of_fold in fitted]
        for each in slopes:
            scores.append(rows.out_of_fold([rows.refitted(each, a) for a, _ in rows.folds]))
        losses = [rows.losses(z) for z in scores]
        risks = [float(rows.share @ loss) for loss in losses]
        n = rows.effective_number(losses[int(np.argmin(risks))])
        weights = mixing_weights(rows, np.stack(scores), n).tolist()
        self.losses_ = dict(zip([*members, *sources], risks, strict=True))
        self.weights_ = dict(zip([*members, *sources], weights, strict=True))
        self._store(models, rows, set(sources))
        return self

    def _named_models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return members and sources by name; refuse a name that is taken and what is no model."""
        default = DROClassifier() if self._task == "classification" else DRORegressor()
        members = _named([default] if self.members is None else list(self.members), "")
        sources = _named(list(self.sources), "source")
        if not members and not sources:
            raise ValueError("members is empty and there are no sources: give at least one model.")
        for name in set(members) & set(sources):
            raise ValueError(f"{name!r} names a member and a source: give them other names.")
        for name, member in members.items():
            if isinstance(member, type) or not hasattr(member, "get_params"):
                raise ValueError(
                    f"the member {name!r} is not an estimator, got {member!r}: give one such as "
                    "DROClassifier(), or pass a fitted model as a source."
                )
        return members, sources

    def _training_rows(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> TrainingRows:
        """Return the checked rows with the folds that all models share."""
        numeric = self._task == "regression"
        kept = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 2}
        X, y = validate_data(self, X, y, y_numeric=numeric, **kept)
        weights = normalise(check_weights(X, sample_weight), "sample_weight")
        loss: Loss = Squared()
        classes = None
        if not numeric:
            self.classes_, codes = classes, _ = class_codes(y)
            K = len(classes)
            require_classes(classes, np.bincount(codes, weights, minlength=K))
            loss = Logistic() if K == 2 else Softmax(K)
            y = 2.0 * codes - 1 if K == 2 else codes
        groups = check_groups(groups, len(y))
        sample = Sample(X, [np.asarray(y, dtype=float)], weights, loss, True)
        repeats = REPEATS if len(y) <= REPEAT_UP_TO else 1
        folds = splits(sample, self.cv, groups, fold_seed(self.random_state), repeats, classes)
        if not folds:
            raise ValueError(
                f"the {len(y)} rows allow no folds by which models could be weighed: give at "
                "least two rows of every class."
            )
        tested = np.concatenate([test for _, test in folds])
        share = weights[tested] / np.bincount(tested)[tested]
        return TrainingRows(
            X, sample.ys[0], weights, loss, groups, folds, tested, share / share.sum()
        )

    def _fitted(
        self, name: str, member: Any, X: Any, y: Any, rows: TrainingRows, beside: dict[str, Any]
    ) -> tuple[Any, Array, Array]:
        """Return a member fitted to all rows, its coefficients, and its out-of-fold scores."""
        last = _last_step(member)
        prefix = f"{member.steps[-1][0]}__" if last is not member else ""
        arguments = {}
        for argument, values in beside.items():
            if values is not None and has_fit_parameter(last, argument):
                arguments[prefix + argument] = np.asarray(values)
            elif values is not None and argument == "sample_weight":
                raise ValueError(
                    f"the member {name!r} takes no sample_weight: leave the weights out, or use "
                    "another member."
                )
        # an estimator of otdro that chooses by folds takes the shared ones, and keeps its scores
        shared = isinstance(last, DROEstimator) and last.scoring is None
        model = clone(member)
        if shared:
            model.set_params(**{f"{prefix}cv": rows.folds})
        model.fit(X, y, **arguments)
        what = f"the member {name!r}"
        linear = self._read(what, model, X, rows, member=True)
        if shared:
            model.set_params(**{f"{prefix}cv": last.cv})
            if hasattr(_last_step(model), "path_"):
                return model, linear, _last_step(model).path_.out_of_fold.scores
        in_folds = []
        for train, _ in rows.folds:
            some = X.iloc[train] if hasattr(X, "iloc") else rows.X[train]
            part = {key: values[train] for key, values in arguments.items()}
            fold = clone(member).fit(some, np.asarray(y)[train], **part)
            in_folds.append(self._read(what, fold, some, rows))
        return model, linear, rows.out_of_fold(in_folds)

    def _read_source(self, name: str, source: Any, rows: TrainingRows) -> Array:
        """Return a published model in the columns of X; say what is wrong with it else."""
        own = getattr(self, "feature_names_in_", None)
        columns = getattr(source, "feature_names_in_", None)
        if isinstance(source, tuple):
            K, parts = rows.loss.outputs, [np.asarray(part, dtype=float) for part in source]
            if len(parts) != 2 or len(np.atleast_2d(parts[0])) != K or parts[1].size != K:
                pair = f"a pair of {K} row(s) of coefficients and as many intercepts"
                raise ValueError(f"the source {name!r} is not {pair}: give (coef, intercept).")
            model = np.column_stack([np.atleast_2d(parts[0]), parts[1].ravel()])
        else:
            some = as_dense(rows.X[:COMPARED_ROWS])
            if columns is not None:
                import pandas as pd

                known = pd.DataFrame(some, columns=columns if own is None else own)
                some = known.reindex(columns=list(columns), fill_value=0.0)
            model = self._read(f"the source {name!r}", source, some, rows)
        if not np.isfinite(model).all():
            raise ValueError(f"the source {name!r} has coefficients that are not finite numbers.")
        if columns is not None and own is not None:
            return _by_name(name, model, list(columns), list(own))
        if model.shape[1] != rows.X.shape[1] + 1:
            raise ValueError(
                f"the source {name!r} has {model.shape[1] - 1} columns and X has "
                f"{rows.X.shape[1]}: give it the columns of X, or fit both to data frames whose "
                "columns have names."
            )
        return model

    def _read(
        self, what: str, model: Any, X: Any, rows: TrainingRows, member: bool = False
    ) -> Array:
        """Return the linear model inside a fitted one as an array (K, d + 1).

        The loss of a ``member`` must be the one by which members are weighed.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                linear = read(model, X, "raw")
        except ValueError as error:
            raise ValueError(f"{what} cannot be averaged: {error}") from None
        if linear.space != "raw":
            raise ValueError(f"{what} cannot be averaged: {linear.notes[-1]}")
        if (linear.classes is None) != (self._task == "regression"):
            raise ValueError(f"{what} is not a model for {self._task}.")
        several = rows.loss.outputs > 1
        fits = linear.joint if several else isinstance(rows.loss, type(linear.loss))
        if member and not (fits and (linear.classes is None or hasattr(model, "predict_proba"))):
            raise ValueError(f"{what} cannot be averaged: give one that {NEEDED[self._task]}.")
        array = np.column_stack([linear.coef, linear.intercept])
        if linear.classes is None:
            return array
        known, given = self.classes_.tolist(), linear.classes.tolist()
        if set(known) != set(given):
            raise ValueError(
                f"{what} has the classes {given[:10]} and y has {known[:10]}: give one of the "
                "same classes."
            )
        array = array[[given.index(label) for label in known]]
        return array if several else array[1:] - array[:1]

    def _store(self, models: list[Array], rows: TrainingRows, sources: set[str]) -> None:
        """Store the average of the models, its worst case and the sentence on the weights."""
        shares = list(self.weights_.values())
        average = np.tensordot(shares, models, axes=1)
        self.loss_ = rows.loss
        lines = average if self._task == "classification" else average[0]
        self.coef_, self.intercept_ = lines[..., :-1], lines[..., -1]
        guarded = [name for name, member in self.members_.items() if hasattr(member, "ball_")]
        if guarded:
            heaviest = max(guarded, key=lambda name: self.weights_[name])
            self.ball_ = self.members_[heaviest].ball_
            self.cost_, self.delta_ = self.ball_.cost, float(self.ball_.delta)
            problem = Problem(rows.X, rows.y, rows.weights, rows.loss, self.ball_)

            def risk(model: Array) -> float:
                lines = model if rows.loss.outputs > 1 else model[0]
                return robust_risk_of(problem, lines[..., :-1], lines[..., -1])

            self.robust_risk_ = risk(average)
            self.robust_risk_bound_ = float(np.dot(shares, [risk(model) for model in models]))
        published = sum(share for name, share in self.weights_.items() if name in sources)
        parts = []
        for name, share in sorted(self.weights_.items(), key=lambda item: -item[1]):
            of = "is the published model" if name in sources else "is fitted to the rows,"
            parts.append(f"{share:.0%} {of} {name!r}")
        self.message_ = f"Of the average model {'; '.join(parts)}."
        if sources and published < LITTLE_WEIGHT:
            self.message_ += f" The rows speak against the sources, of weight {published:.2g}."

    def __str__(self) -> str:
        text = repr(self)
        return f"{text}\n{self.message_}" if hasattr(self, "message_") else text


class MixClassifier(LinearClassifier, _Mix):
    """One linear classifier, the weighted average of fits to the rows and published models.

    Parameters
    ----------
    members : list of estimators or (name, estimator) pairs, default=None
        Linear classifiers with probabilities, fitted to the same rows; with more than two classes
        softmax models. The first is the one that the others must beat. None: one
        ``DROClassifier()``.
    sources : list of fitted models or pairs, default=()
        Published models: fitted linear models or pipelines with affine steps, pairs
        ``(coef, intercept)`` of numbers, or pairs ``(name, model)``. They are in the units of X
        and have its classes; the intercept of each is refitted. Columns are matched by name where
        both have names: a column that the source lacks has the coefficient 0.
    cv : int, splitter or iterable of splits, default=5
        The folds by which the models are weighed, repeated where rows are few.
    random_state : int, RandomState or None, default=None
        The seed of the folds.
    n_jobs : int or None, default=None
        Members that are fitted at a time.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (1, n_features) and (1,), or (n_classes, ...)
        The average model.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    weights_ : dict
        The weight of every source and member, by name.
    losses_ : dict
        Their mean out-of-fold losses.
    members_ : dict
        The fitted members.
    loss_ : Loss
        The loss by which they were weighed.
    ball_, cost_, delta_ : Ball, Cost and float
        The ball of the heaviest member of otdro, where there is one.
    robust_risk_ : float
        The worst-case risk of the average model over this ball.
    robust_risk_bound_ : float
        The bound on it that convexity gives: the average of those of the models.
    message_ : str
        The weights in words.

    Examples
    --------
    >>> import numpy as np
    >>> from otdro import MixClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> y = X @ [2.0, -1.0, 0.0] + rng.logistic(size=20) > 0
    >>> model = MixClassifier(sources=[([2.0, -1.0, 0.0], 0.0)]).fit(X, y)
    >>> model.weights_["source"] > 0.5
    True
    """

    _task: ClassVar[str] = "classification"
    loss: ClassVar[str] = "logistic"


class MixRegressor(LinearRegressor, _Mix):
    """One linear regression, the weighted average of fits to the rows and published models.

    Parameters
    ----------
    members : list of estimators or (name, estimator) pairs, default=None
        Linear models of the squared loss, fitted to the same rows. The first is the one that the
        others must beat. None: one ``DRORegressor()``.
    sources : list of fitted models or pairs, default=()
        Published models: fitted linear models or pipelines with affine steps, pairs
        ``(coef, intercept)`` of numbers, or pairs ``(name, model)``, in the units of X and y; the
        intercept of each is refitted. Columns are matched by name where both have names.
    cv, random_state, n_jobs : as of ``MixClassifier``
        The folds, their seed, and the members that are fitted at a time.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,) and float
        The average model.
    weights_, losses_, members_, loss_, ball_, robust_risk_, robust_risk_bound_, message_
        As of ``MixClassifier``.

    Examples
    --------
    >>> import numpy as np
    >>> from otdro import MixRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> y = X @ [2.0, -1.0, 0.0] + rng.standard_normal(20)
    >>> model = MixRegressor(sources=[([2.0, -1.0, 0.0], 5.0)]).fit(X, y)
    >>> bool(abs(model.intercept_) < 1)
    True
    """

    _task: ClassVar[str] = "regression"


def _named(models: Sequence[Any], default: str) -> dict[str, Any]:
    """Return models by name; those without a name get one, numbered where it is not alone."""
    pairs = [
        (model[0], model[1])
        if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], str)
        else (default or type(_last_step(model)).__name__.lower(), model)
        for model in models
    ]
    names = [name for name, _ in pairs]
    result: dict[str, Any] = {}
    for i, (name, model) in enumerate(pairs):
        unique = name if names.count(name) == 1 else f"{name}-{names[: i + 1].count(name)}"
        result[unique] = model
    return result


def _last_step(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def _by_name(name: str, model: Array, columns: list[str], own: list[str]) -> Array:
    """Return a source (K, d + 1) with coefficients of the columns of X, matched by name."""
    missing = [column for column in columns if column not in own]
    if missing:
        warnings.warn(
            f"the source {name!r} has columns that X lacks, whose part of the score is left out: "
            f"{missing[:5]}{' and more' if len(missing) > 5 else ''}.",
            UserWarning,
            stacklevel=4,
        )
    import pandas as pd

    aligned = pd.DataFrame(model[:, :-1], columns=columns).reindex(columns=own, fill_value=0.0)
    return np.column_stack([aligned, model[:, -1]])
