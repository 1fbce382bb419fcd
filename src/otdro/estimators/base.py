"""What both estimators share: parameters, assembly, storage, worst case."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import losses, solvers
from ..arrays import beside, full, library, numpy, place, told_of_memory
from ..chunks import in_chunks
from ..design import model_scores
from ..entry import check_places, formats
from ..losses import Loss
from ..pairs import unlabelled_rows
from ..problem import Problem, Solution
from ..progress import shown
from ..radius import ConfidenceRegion, Sample, Settings, choose, confidence_region
from ..radius.checks import check_groups, check_targets
from ..radius.selection import Choice
from ..solvers import Solver
from .checking import check_parameters
from .notebook import fitted_figures
from .report import empirical_risk, message, names_of, report, report_nothing_learned
from .rows import Targets, check_magnitude, check_pair, check_rows

if TYPE_CHECKING:
    from ..worst_case import WorstCase

Array = NDArray[Any]

#: The defaults of ``tol`` and ``max_iter``, which tell what the user set from what he did not.
TOL = 1e-6
MAX_ITER = 1000
#: What stays behind when a model is saved: the training rows, and numbers of theirs.
ROWS = ("_problems", "_duals")


@dataclass(eq=False, repr=False, match_args=False)
class DROEstimator(BaseEstimator):  # type: ignore[misc]
    """Choose the ball, solve one problem for each target vector, store; parameters named once."""

    _task: ClassVar[str]

    loss: Any = None
    _: KW_ONLY
    cost: Any = "learned"
    order: Any = "auto"
    delta: Any = "cv"
    solver: Any = "auto"
    fit_intercept: bool = True
    # a parameter of the classifier alone
    class_weight: Any = field(default=None, init=False)
    cv: Any = 5
    scoring: Any = None
    rule: str = "auto"
    deltas: Any = None
    confidence: float = 0.95
    n_jobs: int | None = None
    random_state: Any = None
    tol: float = TOL
    max_iter: int = MAX_ITER
    verbose: bool = False

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        support: Any = None,
        unlabelled: Any = None,
    ) -> Self:
        """Fit the model; a fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows, at least two. float32 and CSR are used as they are; columns are never scaled
            here, and the unit of a column is the unit of its moves. A memmap above 256 MB, a Dask
            array or data frame, and a folder of Parquet files (y, sample_weight and groups are
            then names of columns) are read in chunks.
        y : array-like of shape (n_samples,)
            Labels of any type (classifier) or numbers (regressor).
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative weights, only their ratios matter; None: all rows weigh the same. They
            weigh the sample that the ball is around, and the rows of a fold in its score.
        groups : array-like of shape (n_samples,), default=None
            The environment of each row: the hospital, the subject, the month. Folds made from an
            int ``cv`` leave whole groups out, and a splitter as ``cv`` gets them; ``path_`` holds
            the loss of each. A group of one row or one class is scored by its mean loss as others.
        support : array-like or sparse matrix of shape (n_places, n_features), default=None
            Places: the adversary then moves mass only to rows of X and of ``support``. None: to
            anywhere.
        unlabelled : array-like or sparse matrix of shape (n_rows, n_features), default=None
            At least two rows without labels. They sharpen the covariance of a learned cost and,
            where a model has probabilities, the rule "auto"; the ball is not around them.

        Returns
        -------
        self
        """
        check_parameters(self)
        fitted = self._unfitted()
        with shown(self.verbose), told_of_memory(X):
            fitted._fit(X, y, sample_weight, groups, support, unlabelled)
        self._adopt(fitted)
        return self

    def _unfitted(self) -> Self:
        """Return an estimator with the same parameters (the same objects) and nothing fitted."""
        blank = type(self).__new__(type(self))
        for name, value in vars(self).items():
            if not _is_fitted(name):
                setattr(blank, name, value)
        return blank

    def _adopt(self, fitted: Self) -> None:
        """Take over what another fit found, all of it, and forget the own one."""
        for name in [name for name in vars(self) if _is_fitted(name)]:
            delattr(self, name)
        for name, value in vars(fitted).items():
            if _is_fitted(name):
                setattr(self, name, value)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, support: Any, unlabelled: Any
    ) -> None:
        """Validate, choose the ball, solve, store."""
        loss = losses.resolve(self.loss, self._task)
        extra = {"sample_weight": sample_weight, "groups": groups, "support": support}
        extra["unlabelled"] = unlabelled
        if in_chunks(X):
            from .streamed import fit_in_chunks

            if fit_in_chunks(self, X, y, loss, extra):
                return
        X, targets = self._validated(X, y, sample_weight, loss, support)
        check_magnitude(X)
        if loss.task == "regression":
            check_targets(targets.y, loss)
        groups = check_groups(groups, X.shape[0])
        names = getattr(self, "feature_names_in_", None)
        support = check_rows(support, X, "support", names)
        unlabelled = check_rows(unlabelled, X, "unlabelled", names, least=2)
        solver = self._solver()
        if library(X) is not None and not solver.on_device:
            raise ValueError(
                f"solver={self.solver!r} is for NumPy arrays, and X is an array of {place(X)}: use "
                "solver='exact', or copy X and y to NumPy."
            )
        loss = loss if targets.loss is None else targets.loss
        sample = Sample(
            X,
            targets.ys,
            targets.weights,
            loss,
            bool(self.fit_intercept),
            support,
            **targets.prices,
        )
        settings = self._settings(targets, groups, unlabelled)
        chosen = choose(sample, solver, settings).noting(targets.note)
        problems = [sample.problem(y, chosen.ball) for y in targets.ys]
        found = chosen.solutions or [solver.solve(problem) for problem in problems]
        given = isinstance(self.delta, Real)
        plain = [empirical_risk(p, s) for p, s in zip(problems, found, strict=True)]
        told = zip(problems, found, plain, names_of(targets.classes, len(targets.ys)), strict=True)
        for problem, solution, risk, name in told:
            report(problem, solution, solver, name)
            report_nothing_learned(problem, solution, risk, name, names, given=given)
        self._store(problems, found, plain, chosen)
        self._finish(targets)

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, loss: Loss, support: Any
    ) -> tuple[Any, Targets]:
        """Return the rows and the targets of a fit, or say what is wrong with them."""
        raise NotImplementedError

    def _finish(self, targets: Targets) -> None:
        """Store what depends on the task."""
        raise NotImplementedError

    def _solver(self) -> Solver:
        """Return the solver; refuse a ``tol`` or ``max_iter`` that it would not see."""
        # None is a fixed seed, whatever numpy's global generator holds
        seed = 0 if self.random_state is None else self.random_state
        solver = solvers.resolve(self.solver, self.tol, self.max_iter, seed, self.verbose)
        changed = {
            name: getattr(self, name)
            for name, default in (("tol", TOL), ("max_iter", MAX_ITER))
            if getattr(self, name) != default
        }
        if changed and solver is self.solver:
            given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            raise ValueError(
                f"{given} would not reach the solver object that was given: set it there, as in "
                f"solver={type(solver).__name__}({given})."
            )
        if changed and self.solver == "smoothed":
            # its own defaults are looser: only what the user set is passed on
            solver.set_params(**changed)
        return solver

    def _settings(self, targets: Targets, groups: Array | None, unlabelled: Any) -> Settings:
        return Settings(
            cost=self.cost,
            order=self.order,
            delta=self.delta,
            cv=self.cv,
            scoring=self.scoring,
            rule=self.rule,
            deltas=self.deltas,
            confidence=self.confidence,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
            estimator=self,
            y=targets.y,
            classes=targets.classes,
            groups=groups,
            unlabelled=None if unlabelled is None else unlabelled_rows(unlabelled),
            sample_weight=targets.sample_weight,
        )

    def _store(
        self, problems: list[Problem], found: list[Solution], plain: list[float], chosen: Choice
    ) -> None:
        self.loss_ = problems[0].loss
        self.ball_ = chosen.ball
        self.cost_ = chosen.ball.cost
        self.delta_ = float(chosen.ball.delta)
        X = problems[0].X
        self.coef_: Array = beside(np.concatenate([np.atleast_2d(s.coef) for s in found]), X)
        intercepts = np.concatenate([np.atleast_1d(s.intercept) for s in found])
        self.intercept_: Any = beside(intercepts, X)
        self.multiplier_ = _float_or_array([s.multiplier for s in found])
        self.empirical_risk_ = _float_or_array(plain)
        self.robust_risk_ = _float_or_array([s.objective for s in found])
        self.gap_ = _float_or_array([s.gap for s in found])
        self.n_iter_ = max(s.n_iter for s in found)
        messages = [message(s, chosen.note) for s in found]
        self.message_ = messages[0] if len(messages) == 1 else messages
        if chosen.path is not None:
            self.path_ = chosen.path
        self._support_given = problems[0].support is not None
        self._problems = problems
        self._duals = [s.dual for s in found]

    def __getstate__(self) -> dict[str, Any]:
        # a saved model is the model, not the data
        state: dict[str, Any] = super().__getstate__()
        # and of no device: a machine without it can read the model
        kept = {name: value for name, value in state.items() if name not in ROWS}
        return {n: numpy(value) if library(value) else value for n, value in kept.items()}

    def _repr_html_inner(self) -> str:
        return str(estimator_html_repr(self)) + fitted_figures(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        return bundle | ({"text/html": self._repr_html_inner()} if "text/html" in bundle else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        if in_chunks(X):
            from .streamed import scores_in_chunks

            scores = scores_in_chunks(self, X)
        else:
            X = validate_data(self, X, **formats(X), reset=False)
            coef = np.atleast_2d(numpy(self.coef_))
            with told_of_memory(X):
                scores = model_scores(X, coef, np.atleast_1d(numpy(self.intercept_)))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _trained(self, asked: str, instead: str) -> list[Problem]:
        """Return the problems of the fit; say what to do where the rows are gone."""
        if not hasattr(self, "_problems"):
            raise ValueError(
                f"{asked} needs the training rows, which are not saved with a model, and this "
                "model was restored from disk, copied, or fitted to rows in chunks: "
                f"{instead}, or fit again to rows in memory."
            )
        return self._problems

    def confidence_region(self, confidence: float | None = None) -> ConfidenceRegion:
        """Return the ellipsoid of plausible slopes at the profile theory's quantile.

        It does not depend on ``delta_``. Squared and logistic losses, Euclidean or Mahalanobis
        costs, two classes. It is asymptotic: below 30 rows per slope, for labels 10 of the rarer
        class, a warning says so. A region of 95% for targets held the true slopes of a linear model
        in 0.90 of samples with 10 rows per slope, in 0.93 with 15, 0.92 with 20 and 0.94 with 30.

        Parameters
        ----------
        confidence : float in (0, 1), default=None
            The share of samples whose region holds the true slopes; None: the estimator's.
        """
        check_is_fitted(self)
        if len(np.atleast_2d(numpy(self.coef_))) > 1:
            raise ValueError("a confidence region is for two classes; fit one class at a time.")
        p = self._trained("confidence_region()", "ask before saving")[0]
        sample = Sample(p.X, [p.y], p.weights, p.loss, p.fit_intercept)
        confidence = self.confidence if confidence is None else confidence
        names = getattr(self, "feature_names_in_", None)
        return confidence_region(sample, p.y, p.ball.cost, confidence, names)

    def worst_case(self, class_: Any = None, *, rows: Any = None, reach: Any = None) -> WorstCase:
        """Return a worst-case distribution of the fitted model.

        Parameters
        ----------
        class_ : label, default=None
            Of more than two classes, the one whose model against the rest is asked about; None for
            a softmax model.
        rows : pair (X, y), default=None
            Labelled rows, of equal weights, to put the ball around; None: the training rows, which
            a model restored from disk has not got.
        reach : float > 0, default=None
            The longest move, in the cost's distance; order 1. Where no distribution attains the
            supremum (logistic loss: ever less mass ever farther away) None is the largest
            distance of a row from the mean, and ``shortfall`` says what that costs; ``np.inf``
            sets no bound and comes as near as rounding allows.

        Returns
        -------
        WorstCase
            ``origin`` counts the rows of X, or of ``rows``.
        """
        from ..worst_case import worst_case

        check_is_fitted(self)
        k = self._number(class_)
        coef, intercept = self._part(k)
        if rows is not None:
            problem = self._problem_around(rows, k)
            return self._named(worst_case(problem, coef, intercept, reach=reach))
        problem = self._trained("worst_case()", "give labelled rows as rows=(X, y)")[k]
        found = worst_case(
            problem,
            coef,
            intercept,
            dual=self._duals[k],
            gap=float(np.ravel(self.gap_)[k]),
            reach=reach,
        )
        return self._named(found)

    def _problem_around(self, rows: Any, k: int) -> Problem:
        """Return the k-th problem with other labelled rows, all of the same weight."""
        X, y = check_pair(rows)
        check_places(X, y=y)
        X = validate_data(self, X, **formats(X), reset=False)
        y = beside(self._targets_of(numpy(y) if library(y) else y, k), X)
        if len(y) != X.shape[0]:
            raise ValueError(f"rows has {X.shape[0]} rows in X but {len(y)} entries in y.")
        support = None
        if self._support_given:
            support = self._trained("a worst case over the support", "ask before saving")[0].support
        weights = full(len(y), 1 / len(y), X)
        fit_intercept = bool(self.fit_intercept)
        return Problem(X, y, weights, self.loss_, self.ball_, fit_intercept, support)

    def _part(self, k: int) -> tuple[Array, Any]:
        """Return coefficients and intercept of the k-th problem."""
        return np.atleast_2d(numpy(self.coef_))[k], float(np.ravel(numpy(self.intercept_))[k])

    def _number(self, class_: Any) -> int:
        """Return the number of the problem that belongs to a class."""
        raise NotImplementedError

    def _targets_of(self, y: Any, k: int) -> Array:
        """Return labels or targets as the k-th problem has them."""
        raise NotImplementedError

    def _named(self, found: WorstCase) -> WorstCase:
        """Return a worst case with targets as the user gave them."""
        raise NotImplementedError


def _is_fitted(name: str) -> bool:
    """Whether an attribute belongs to a fit: ``name_``, and what is kept for questions later."""
    kept = ("_problems", "_duals", "_support_given")
    return name in kept or (name.endswith("_") and not name.startswith("_"))


def _float_or_array(values: list[float]) -> Any:
    return float(values[0]) if len(values) == 1 else np.array(values)
