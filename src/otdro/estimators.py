"""scikit-learn estimators: validate, assemble, solve, store."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_X_y
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import adversary, losses, solvers
from .certificate import WorstCase, worst_case
from .design import Design
from .duality import worst_risk
from .losses import Logistic, Loss
from .problem import Ball, Problem, Solution
from .radius import ConfidenceRegion, Sample, Settings, choose, confidence_region

Array = NDArray[Any]


class _DRO(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, assembly, storage, certificate."""

    _task: str

    def _fit(
        self,
        X: Any,
        ys: list[Array],
        weights: Array,
        y: Array,
        classes: Array | None,
        groups: Any,
        support: Any,
    ) -> None:
        """Choose the ball, solve one problem for each target vector, and store."""
        loss = losses.resolve(self.loss, self._task)
        solver = solvers.resolve(
            self.solver, self.tol, self.max_iter, self.random_state, self.verbose
        )
        support = _check_support(support, X)
        sample = Sample(X, ys, weights, loss, bool(self.fit_intercept), support)
        chosen = choose(sample, solver, self._settings(y, classes, groups))
        problems = [sample.problem(target, chosen.ball) for target in ys]
        found = chosen.solutions or [solver.solve(problem) for problem in problems]
        for problem, solution in zip(problems, found, strict=True):
            _report(problem, solution, self.tol)
        self._store(problems, found)
        if chosen.path is not None:
            self.path_ = chosen.path

    def _settings(self, y: Array, classes: Array | None, groups: Any) -> Settings:
        names = ("cost", "order", "delta", "cv", "scoring", "rule", "deltas", "confidence")
        values = {name: getattr(self, name) for name in (*names, "n_jobs", "random_state")}
        return Settings(**values, estimator=self, y=y, classes=classes, groups=groups)

    def _store(self, problems: list[Problem], found: list[Solution]) -> None:
        ball, loss = problems[0].ball, problems[0].loss
        self.ball_, self.cost_, self.delta_ = ball, ball.cost, float(ball.delta)
        plain = [
            float(p.weights @ loss.value(Design(p.X).scores(s.coef) + s.intercept, p.y))
            for p, s in zip(problems, found, strict=True)
        ]
        self.coef_ = np.stack([s.coef for s in found])
        self.intercept_ = np.array([s.intercept for s in found])
        self.multiplier_ = _float_or_array([s.multiplier for s in found])
        self.empirical_risk_ = _float_or_array(plain)
        self.robust_risk_ = _float_or_array([s.objective for s in found])
        self.gap_ = _float_or_array([s.gap for s in found])
        self.n_iter_ = max(s.n_iter for s in found)
        self.message_ = found[0].message if len(found) == 1 else [s.message for s in found]
        self._problems = problems

    def __getstate__(self) -> dict[str, Any]:
        # the training rows stay behind: a saved model is the model, not the data
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_problems"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        scores: Array = Design(X).scores(np.atleast_2d(self.coef_).T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _problem(self, k: int) -> Problem:
        if not hasattr(self, "_problems"):
            raise ValueError(
                "this needs the training rows, which are not saved with a model. Ask before "
                "saving, or fit again."
            )
        return self._problems[k]

    def confidence_region(self, confidence: float | None = None) -> ConfidenceRegion:
        """Return the ellipsoid of plausible slopes at the profile theory's quantile.

        It does not depend on ``delta_``. Squared and logistic losses, Euclidean or Mahalanobis
        costs, two classes.
        """
        check_is_fitted(self)
        if len(np.atleast_2d(self.coef_)) > 1:
            raise ValueError("a confidence region is for two classes; fit one class at a time.")
        p = self._problem(0)
        sample = Sample(p.X, [p.y], p.weights, p.loss, p.fit_intercept)
        confidence = self.confidence if confidence is None else confidence
        names = getattr(self, "feature_names_in_", None)
        return confidence_region(sample, p.y, p.ball.cost, confidence, names)

    def _worst_case(self, k: int) -> WorstCase:
        p = self._problem(k)
        coef, intercept = np.atleast_2d(self.coef_)[k], float(np.atleast_1d(self.intercept_)[k])
        if p.ball.cost.is_norm and p.support is None:
            return worst_case(p.X, p.y, p.weights, coef, intercept, p.loss, p.ball)
        known = (float(np.ravel(v)[k]) for v in (self.multiplier_, self.robust_risk_))
        return adversary.worst_case(p, coef, intercept, *known)


def _float_or_array(values: list[float]) -> Any:
    return float(values[0]) if len(values) == 1 else np.array(values)


def _report(problem: Problem, solution: Solution, tol: float) -> None:
    """Warn of a fit that is not certified, or whose minimiser does not exist."""
    if not solution.converged:
        warnings.warn(
            f"the solver {solution.message} after {solution.n_iter} iterations. Raise max_iter, "
            f"raise tol (now {tol:g}), or scale the columns of X.",
            ConvergenceWarning,
            stacklevel=4,
        )
    smooth_label = problem.loss.task == "classification" and isinstance(problem.loss, Logistic)
    if problem.ball.delta == 0 and smooth_label:
        margin = problem.y * (Design(problem.X).scores(solution.coef) + solution.intercept)
        if margin[problem.weights > 0].min() > 0:
            warnings.warn(
                "the classes are separable and delta=0: no minimiser exists, the coefficients are "
                f"those at which the risk fell below {solution.objective:.3g}. Use delta > 0.",
                ConvergenceWarning,
                stacklevel=4,
            )


def _is_logistic(estimator: Any) -> bool:
    if estimator.loss == "logistic" or isinstance(estimator.loss, Logistic):
        return True
    raise AttributeError(
        f"predict_proba needs loss='logistic'; loss={estimator.loss!r} gives no probabilities."
    )


class DROClassifier(ClassifierMixin, _DRO):  # type: ignore[misc]
    r"""Linear classifier that does best against every distribution within transport cost delta.

    .. math:: \min_{\beta, b}\ \sup_{P:\,D_c(P, P_n)\le\delta} E_P\,\ell(x'\beta + b, y)

    with labels that cannot be moved. More than two classes are one-vs-rest, with one ball for all.

    Parameters
    ----------
    loss : {"logistic", "hinge", "squared_hinge"} or Loss
    cost : {"euclidean", "l1", "linf", "learned"}, Cost or metric learner
        What it costs the adversary to move a row; see ``otdro.costs``.
    order : {1, 2, "auto"}
        The power of the distance in the cost; "auto" is 1 for Lipschitz losses, else 2.
    delta : float >= 0, "cv" or "theory"
        The bound on the mean cost; 0 is plain empirical risk.
    solver : "auto", "exact" or a solver object
    fit_intercept : bool
    class_weight : dict, "balanced" or None
    cv, scoring, rule, deltas, confidence, n_jobs, random_state
        How ``delta="cv"`` and ``delta="theory"`` choose.
    tol : float
        The gap asked for, relative to the risk of the best constant model.
    max_iter : int
    verbose : bool

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (n_classes, d)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    ball_, cost_, delta_ : the ball, its cost and its radius
    multiplier_ : the derivative of the robust risk in delta
    empirical_risk_, robust_risk_, gap_ : float, or ndarray of shape (n_classes,)
        ``robust_risk_`` exceeds the least possible one by at most ``gap_``.
    n_iter_ : int
    message_ : str, or list of str for more than two classes
        How the solver ended; for a feature map also which cost it solved, and how far the
        linearised solution is from the polished one.
    """

    _task = "classification"

    def __init__(
        self,
        loss: Any = "logistic",
        *,
        cost: Any = "learned",
        order: Any = "auto",
        delta: Any = "cv",
        solver: Any = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "auto",
        deltas: Any = None,
        confidence: float = 0.95,
        n_jobs: int | None = None,
        random_state: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.cost = cost
        self.order = order
        self.delta = delta
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.deltas = deltas
        self.confidence = confidence
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, support: Any = None
    ) -> DROClassifier:
        """Fit to rows X of shape (n, d) and labels y of shape (n,)."""
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2
        )
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        weights = _weights(X, sample_weight)
        if self.class_weight is not None:
            factors = compute_class_weight(self.class_weight, classes=classes, y=y)
            weights = _normalise(weights * factors[codes], "class_weight")
        mass = np.bincount(codes, weights)
        if np.count_nonzero(mass) < 2:
            raise ValueError(
                f"the classifier needs two classes with positive weight, got one class: "
                f"{classes[mass > 0].tolist()}."
            )
        if not mass.all():
            raise ValueError(
                f"the classes {classes[mass == 0].tolist()} have no weight: leave their rows out."
            )
        if len(classes) == 2:
            ys = [np.where(codes == 1, 1.0, -1.0)]
        else:
            ys = [np.where(codes == k, 1.0, -1.0) for k in range(len(classes))]
        self._fit(X, ys, weights, y, classes, groups, support)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> Array:
        """Return scores x'beta + b, of shape (n,), or (n, n_classes) for more than two classes."""
        return self._scores(X)

    def predict(self, X: Any) -> Array:
        """Return the label of the largest score."""
        scores = self._scores(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: Array = self.classes_[index]
        return labels

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities; one-vs-rest ones are scaled to sum to 1."""
        scores = self._scores(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        # in logarithms, so that a row far from every class still has a sum
        log = -np.logaddexp(0, -scores)
        odds = np.exp(log - log.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the class probabilities."""
        return np.log(self.predict_proba(X))

    def worst_case(self, class_: Any = None) -> WorstCase:
        """Return a worst-case distribution; of ``class_`` against the rest if there are more."""
        check_is_fitted(self)
        if len(self.classes_) == 2:
            found = self._worst_case(0)
            return replace(found, targets=self.classes_[(found.targets > 0).astype(int)])
        if class_ is None or class_ not in self.classes_:
            raise ValueError(
                f"class_={class_!r} must be one of the classes {self.classes_.tolist()}: each of "
                "more than two classes has its own worst case."
            )
        return self._worst_case(int(np.flatnonzero(self.classes_ == class_)[0]))


class DRORegressor(RegressorMixin, _DRO):  # type: ignore[misc]
    r"""Linear regression that does best against every distribution within transport cost delta.

    .. math:: \min_{\beta, b}\ \sup_{P:\,D_c(P, P_n)\le\delta} E_P\,\ell(x'\beta + b, y)

    with targets that cannot be moved. ``loss`` is one of "squared" (e^2, no half), "absolute",
    "huber" (``Huber(M=1.35)``), "quantile" (``Quantile(tau=0.5)``), or a Loss; the other
    parameters and attributes are those of ``DROClassifier``, with ``coef_`` of shape (d,) and a
    float ``intercept_``.
    """

    _task = "regression"

    def __init__(
        self,
        loss: Any = "squared",
        *,
        cost: Any = "learned",
        order: Any = "auto",
        delta: Any = "cv",
        solver: Any = "auto",
        fit_intercept: bool = True,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "auto",
        deltas: Any = None,
        confidence: float = 0.95,
        n_jobs: int | None = None,
        random_state: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.cost = cost
        self.order = order
        self.delta = delta
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.deltas = deltas
        self.confidence = confidence
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, support: Any = None
    ) -> DRORegressor:
        """Fit to rows X of shape (n, d) and targets y of shape (n,)."""
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            y_numeric=True,
            ensure_min_samples=2,
        )
        weights = _weights(X, sample_weight)
        y = np.asarray(y, dtype=float)
        self._fit(X, [y], weights, y, None, groups, support)
        self.coef_ = self.coef_[0]
        self.intercept_: Any = float(self.intercept_[0])
        return self

    def predict(self, X: Any) -> Array:
        """Return x'beta + b."""
        return self._scores(X)

    def worst_case(self, class_: Any = None) -> WorstCase:
        """Return a worst-case distribution of the fitted model."""
        check_is_fitted(self)
        if class_ is not None:
            raise ValueError(f"a regressor has no classes, got class_={class_!r}.")
        return self._worst_case(0)


def _check_support(support: Any, X: Any) -> Any:
    """Return the unlabelled rows as an array with the columns of X, None if there are none."""
    if support is None:
        return None
    support = check_array(support, accept_sparse="csr", dtype=np.float64, input_name="support")
    if support.shape[1] != X.shape[1]:
        raise ValueError(f"support has {support.shape[1]} columns but X has {X.shape[1]}.")
    return support


def _weights(X: Any, sample_weight: Any) -> Array:
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if weights.min() < 0:
        raise ValueError(f"sample_weight must be nonnegative, got {weights.min():g}.")
    return _normalise(weights, "sample_weight")


def _normalise(weights: Array, name: str) -> Array:
    total = weights.sum()
    if not total > 0:
        raise ValueError(f"{name} leaves no row with positive weight.")
    return weights / total


def robust_risk(X: Any, y: Any, coef: Any, intercept: float, loss: str | Loss, ball: Ball) -> float:
    r"""Return :math:`\sup_{P \in ball} E_P\,\ell(x'\beta + b, y)` around the sample (X, y).

    ``y`` are labels -1/+1 for a loss of classification, targets for one of regression.
    """
    loss = losses.resolve(loss)
    X, y, coef = _sample(X, y, coef, loss)
    ball.cost.check(X.shape[1])
    weights = np.full(len(y), 1 / len(y))
    if not ball.cost.is_norm:
        return adversary.worst_risk(Problem(X, y, weights, loss, ball), coef, float(intercept))
    z = Design(X).scores(coef) + float(intercept)
    return worst_risk(z, y, weights, loss, float(ball.cost.dual_norm(coef)), ball).risk


def _sample(X: Any, y: Any, coef: Any, loss: Loss) -> tuple[Any, Array, Array]:
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
    coef = np.asarray(coef, dtype=float).ravel()
    if len(coef) != X.shape[1]:
        raise ValueError(f"coef has {len(coef)} entries but X has {X.shape[1]} features.")
    y = np.asarray(y, dtype=float)
    if loss.task == "classification" and not np.isin(y, (-1, 1)).all():
        raise ValueError(f"labels must be -1 or +1 here, got {np.unique(y)[:5].tolist()}.")
    return X, y, coef
