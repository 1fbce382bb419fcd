"""What both estimators share: parameters, assembly, storage, worst case, and what a fit reports."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from inspect import cleandoc
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import losses, solvers
from ..arrays import (
    beside,
    check_places,
    check_vector,
    formats,
    full,
    library,
    numpy,
    place,
    stays,
    told_of_memory,
    told_of_text,
)
from ..chunks import Chunk, Sums, column_names, in_chunks, map_rows, open_rows
from ..costs.mahalanobis import diagonal
from ..design import Design, column_scale, model_scores
from ..duality import zero_model
from ..losses import Loss
from ..pairs import unlabelled_rows
from ..problem import Ball, Problem, Sample, Solution
from ..progress import logger, shown, watched
from ..radius import (
    Choice,
    ConfidenceRegion,
    Settings,
    choose,
    choose_in_chunks,
    confidence_region,
)
from ..radius.checks import (
    check_deltas,
    check_groups,
    check_targets,
    check_weights,
    checked_pair,
    normalise,
)
from ..solvers import Solver
from ..wanted import check_settings
from .columns import PARTS
from .parameters import (
    WANTED,
    check_labels,
    check_magnitude,
    check_offset,
    check_rows,
    is_numeric,
    open_stream,
    require_softmax_memory,
)

if TYPE_CHECKING:
    from ..worst_case import WorstCase
    from .summary import Summary

Array = NDArray[Any]
T = TypeVar("T")

#: Mean losses above the risk by this much, relative to 1 and the risk, are more than rounding.
LOST = 1e-9
#: A mean loss above this share of the constant model's is hardly better than it.
LEARNED = 0.99
#: The path reaches a thousandth of its largest delta: columns farther apart have none in common.
APART = 1e3


class Targets(NamedTuple):
    """The sample of a fit, the labels or targets ``y`` as given, and the distinct labels.

    ``classes`` is None for regression; ``note`` is a sentence about the model for ``message_``.
    """

    sample: Sample
    y: Array
    classes: Array | None = None
    note: str = ""


class Fitted(NamedTuple):
    """What a fit found: a choice with its solutions, their mean losses, the problems in memory.

    ``passes`` says how often rows in chunks were read; it is empty for rows in memory.
    """

    targets: Targets
    choice: Choice
    risks: list[float]
    problems: list[Problem]
    passes: str = ""


class LinearScores(BaseEstimator):  # type: ignore[misc]
    """The scores of a fitted model, of rows in memory, in chunks, and of Dask collections."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @told_of_text()
    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        coef, intercept = np.atleast_2d(numpy(self.coef_)), np.atleast_1d(numpy(self.intercept_))
        if in_chunks(X):
            names = getattr(self, "feature_names_in_", None)
            rows = open_rows(X, columns=None if names is None else list(names))
            if rows.d != self.n_features_in_:
                raise ValueError(
                    f"X has {rows.d} columns, but the model has {self.n_features_in_}."
                )
            [sums] = rows.total(ScoreRows(coef, intercept))
            scores = np.concatenate(sums["z"])
        else:
            X = validate_data(self, X, **formats(X), reset=False)
            with told_of_memory(X):
                scores = model_scores(X, coef, intercept)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _of_dask(self, X: Any, method: str) -> Any:
        """Return what a method returns for a Dask collection, as a Dask array to be computed."""
        check_is_fitted(self)
        validate_data(self, column_names(X), reset=False, skip_check_array=True)
        # a copy has no training rows, and a later fit does not change it
        model = copy(self)
        # the names are checked above; the chunks are arrays, which have none
        if hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
        return map_rows(getattr(model, method), X)


@dataclass(eq=False, repr=False, match_args=False)
class DROEstimator(BaseEstimator):  # type: ignore[misc]
    """Choose the ball, solve one problem for each target vector, store.

    What both estimators share is documented once, here, and shown in full by both (``documented``):

    <model>
    cost : str, Cost, array, metric learner or callable, default="learned"
        What a move costs the adversary: a distance, taken to the power ``order``.

        - "euclidean", "l1" or "linf": a norm of the move in the units of the columns. The penalty
          is its dual norm, so "linf" gives the lasso-type one.
        - "learned": a blend of the Euclidean cost, ``Spectral``, ``GeometricMean`` and
          ``Association``, weighted by what the folds say of each; ``cost_.weights_`` tells.
          ``Learned`` has other candidates, and ``how="choose"``. Where X has more than 2,000
          columns, or more than 256 and more than rows, ``GeometricMean`` is left out, and where the
          rows hold nothing to learn from it is the Euclidean cost; ``message_`` says so.
        - a Cost of ``otdro.costs``, e.g. ``Mahalanobis(matrix)``, ``FeatureMap()`` or ``Graph``;
          the matrix of ``Mahalanobis`` is used as given.
        - a symmetric positive definite array: the same as ``Mahalanobis`` of it.
        - a metric learner of ``otdro.metrics``, or any object whose ``fit(X, y)`` leaves
          ``components_`` or ``get_mahalanobis_matrix()``; it is fitted to the rows, and again
          inside every fold.
        - a function c(u, x) of two arrays of rows that returns the costs: the cost itself.
    order : {1, 2, "auto"}, default="auto"
        The power of the distance that is the cost. 1 needs a Lipschitz loss. "auto" is 1 for
        Lipschitz losses with a norm as cost, else 2.
    delta : float >= 0, "cv" or "theory", default="cv"
        The bound on the mean cost of the move from the sample to any distribution of the ball, in
        the units of the cost (squared units of the columns at order 2); 0 is plain empirical risk.
        "cv" chooses it by folds and ``rule``, "theory" by the robust Wasserstein profile at
        ``confidence``; of rows in chunks on those kept in memory, and then rescaled to all rows by
        the rate of the profile (the root of the ratio of rows at order 1, the ratio at order 2).
        A number with ``cost="learned"`` leaves only the cost to the folds.
    solver : {"auto", "exact", "smoothed", "quadrature", "sinkhorn"} or Solver, default="auto"
        Who solves. "auto" is exact, or stochastic where the cost is a function. An object of
        ``otdro.solvers`` keeps its own settings, and ``tol`` and ``max_iter`` must be set in it.
    fit_intercept : bool, default=True
        Whether the score has an intercept b; without one b = 0.

    <choice>
    cv : int, splitter, iterable of splits or None, default=5
        The folds that choose ``delta`` and the cost. An int makes that many shuffled folds,
        stratified by label, of whole groups where ``fit`` gets ``groups``, and repeated three times
        for up to 120 rows under the rule "auto"; fewer where rows, members of a class or groups are
        fewer. None is scikit-learn's default of five.
    scoring : str, callable or None, default=None
        The score of a model on the test rows of a fold, more is better; None is minus the mean of
        the own loss, by the weights of the fit. A scorer gets the ``sample_weight`` of the test
        rows if ``fit`` was given one and the scorer takes it; ``class_weight`` is for training
        only, as in scikit-learn.
    rule : {"auto", "smoothed", "min", "1se", "tolerance", "profile", "worst"}, default="auto"
        How fold scores become a delta: "min" takes the best mean score, "1se" the largest delta
        within one standard error of it, "tolerance" the largest within ``tolerance`` of it,
        "profile" a multiple of the noise in the coefficients, "smoothed" (which "auto" stands for)
        the least smoothed out-of-fold loss with the profile as prior. The last two are not moved
        far by one bad row. "worst" takes the delta nearest to that of "auto" with nearly the least
        loss in the worst environment, and needs ``groups``.
    tolerance : float >= 0, default=0.05
        For the rule "tolerance": the share by which the mean out-of-fold loss (with ``scoring``:
        the mean score) may be worse than the best one on the grid. The model is then as robust as
        it can be at this price; 0 is the rule "min".
    deltas : array-like of shape (m,) or None, default=None
        The grid of deltas that "cv" tries, sorted; None: 20 deltas from the least one at which the
        coefficients are zero, geometrically down.
    confidence : float in (0, 1), default=0.95
        The probability with which the ball of ``delta="theory"``, and the confidence region, cover
        the true coefficients.
    n_jobs : int or None, default=None
        Costs and classes, and folds under norms that are not Euclidean, that are solved at the
        same time, as in joblib; None is 1. The results do not depend on it.
    random_state : int, RandomState or None, default=None
        Shuffles the folds, and seeds a stochastic solver. None is a fixed seed: fits repeat bit for
        bit whatever numpy's global generator holds.
    tol : float >= 0, default=1e-6
        The gap at which a solver stops, relative to the risk of the best constant model.
    max_iter : int >= 1, default=1000
        Iterations after which a solver stops with a ConvergenceWarning.
    verbose : bool, default=False
        Whether to show the progress of folds and solver on standard error: the INFO lines of the
        logger "otdro".

    <attributes>
    loss_ : Loss
        The loss that was fitted.
    ball_ : Ball
        The ball of distributions: cost, delta and order.
    cost_ : Cost
        The cost of the ball. A learned one has ``comparison_``, what was tried, and a blend
        ``weights_``, a dict from each candidate to its share.
    delta_ : float
        The bound on the mean cost, as given or chosen; one for all classes.
    path_ : Path
        Only where folds chose: ``deltas`` (m,) descending, and along them, the deltas always the
        first axis, ``coef`` (m, d), ``intercept``, ``empirical_risk``, ``robust_risk`` and ``gap``
        (m,); of more than two classes ``coef`` is (m, K, d), ``intercept`` (m, K), and for
        one-vs-rest so are the others. Then the fold scores ``score_mean`` and ``score_se`` (m,)
        (larger is better; None if no folds could be made), ``candidates``, one entry for each cost
        tried, and ``environments``, where ``fit`` got groups: their ``names`` (G,), ``counts`` (G,)
        and mean out-of-fold ``losses`` (G, m). Of rows in chunks that do not all stay in memory it
        is the path of those that do, with its deltas rescaled to all rows.
    n_iter_ : int
        Iterations of the solver, at least 1; the most of any class.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features,)
        The names of the columns, where X had names that are all strings.
    """

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
    tolerance: float = 0.05
    deltas: Any = None
    confidence: float = 0.95
    n_jobs: int | None = None
    random_state: Any = None
    tol: float = 1e-6
    max_iter: int = 1000
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
            the loss of each. With the rules "auto" and "worst" folds of rows choose first, and
            folds of groups move delta where the loss in left-out groups falls clearly. A group of
            one row or one class is scored by its mean loss as others.
        support : array-like or sparse matrix of shape (n_places, n_features), default=None
            Places: the adversary then moves mass only to rows of X and of ``support``. None: to
            anywhere.
        unlabelled : array-like or sparse matrix of shape (n_rows, n_features), default=None
            At least two rows without labels. They sharpen the covariance of a learned cost; the
            ball is not around them.

        Returns
        -------
        self
        """
        # whether or not this fit uses them
        check_settings(self, WANTED)
        if self.deltas is not None:
            check_deltas(self.deltas)
        # a fit that fails leaves this estimator as it was
        fitted = type(self).__new__(type(self))
        fitted.__dict__ = {name: v for name, v in vars(self).items() if not _is_fitted(name)}
        extra = {"sample_weight": sample_weight, "groups": groups}
        extra |= {"support": support, "unlabelled": unlabelled}
        with shown(self.verbose), told_of_memory(X), told_of_text(), watched():
            fitted._fit(X, y, extra)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, y: Any, extra: dict[str, Any]) -> None:
        """Validate, choose the ball, solve, report, store; ``extra`` is what comes beside X, y."""
        loss = losses.resolve(self.loss, self._task)
        stream = open_stream(self, X, y, loss, extra) if in_chunks(X) else None
        if stream is None:
            fitted = self._fit_rows(*self._checked(X, y, loss, extra))
        else:
            fitted = self._fit_chunks(stream, loss, extra)
        solutions, classes = fitted.choice.solutions, fitted.targets.classes
        for k, solution in enumerate(solutions):
            name = ""
            if classes is not None and len(solutions) > 1:
                name = f" of class {classes.tolist()[k]!r} against the rest"
            text = "fit%s: delta %.4g, %d iterations, robust risk %.6g, gap %.3g"
            figures = (solution.n_iter, solution.objective, solution.gap)
            logger.info(text, name, fitted.choice.ball.delta, *figures)
            for text, category in self._warnings(fitted, k, name):
                # the caller of fit: _fit, fit
                warnings.warn(text, category, stacklevel=3)
        self._store(fitted)

    def _checked(
        self, X: Any, y: Any, loss: Loss, extra: dict[str, Any], columns: Any = None
    ) -> tuple[Targets, Settings]:
        """Return the sample of a fit and how its ball is chosen, or say what is wrong with them.

        ``columns`` are the names of the columns of rows in chunks.
        """
        sample_weight, is_number = extra["sample_weight"], self._task == "regression"
        check_places(X, y=y, sample_weight=sample_weight)
        if not is_number:
            check_labels(y)
        if stays(X):
            X = validate_data(self, X, **formats(X), ensure_min_samples=2)
            y = check_vector(y, X, "y") if is_number or is_numeric(y) else column_or_1d(y)
        else:
            options = {"y_numeric": is_number, "ensure_min_samples": 2}
            X, y = validate_data(self, X, y, **formats(X), **options)
        if columns is not None:
            self.feature_names_in_ = np.array(columns, dtype=object)
        names = getattr(self, "feature_names_in_", None)
        weights = check_weights(X, sample_weight)
        support = check_rows(extra["support"], X, "support", names)
        share = normalise(weights, "sample_weight")
        targets = self._targets(y, Sample(X, [], share, loss, bool(self.fit_intercept), support))
        check_magnitude(X)
        groups = check_groups(extra["groups"], X.shape[0])
        check_offset(X, names)
        unlabelled = check_rows(extra["unlabelled"], X, "unlabelled", names, least=2)
        settings = Settings(
            estimator=self,
            rule=self.rule,
            deltas=self.deltas,
            y=targets.y,
            classes=targets.classes,
            groups=groups,
            unlabelled=None if unlabelled is None else unlabelled_rows(unlabelled),
            sample_weight=None if sample_weight is None else weights,
        )
        return targets, settings

    def _targets(self, y: Array, sample: Sample) -> Targets:
        """Return the sample with its target vectors and prices, or say what is wrong with y."""
        raise NotImplementedError

    def _fit_rows(self, targets: Targets, settings: Settings) -> Fitted:
        """Return the fit to rows in memory."""
        sample, solver = targets.sample, self._solver()
        if library(sample.X) is not None and not solver.on_device:
            raise ValueError(
                f"solver={self.solver!r} is for NumPy arrays, and X is an array of "
                f"{place(sample.X)}: use solver='exact', or copy X and y to NumPy."
            )
        choice = choose(sample, solver, settings)
        problems = [sample.problem(y, choice.ball) for y in sample.ys]
        risks, solutions = [], []
        for problem, solution in zip(problems, choice.solutions, strict=True):
            risk = solution.mean_loss
            if risk is None:
                z = model_scores(sample.X, solution.coef, solution.intercept)
                risk = float(problem.weights @ problem.loss.value(z, problem.y))
            risks.append(risk)
            solutions.append(_at_least(solution, risk))
        return Fitted(targets, replace(choice, solutions=solutions), risks, problems)

    def _fit_chunks(self, stream: Any, loss: Loss, extra: dict[str, Any]) -> Fitted:
        """Return the fit to rows in chunks: in memory where all rows are kept there."""
        rows, kept = stream.chunks, stream.rows
        extra = extra | {"sample_weight": kept.w, "groups": kept.group}
        targets, settings = self._checked(kept.X, kept.y, loss, extra, rows.columns)
        sample = targets.sample
        if stream.all_kept:
            fitted = self._fit_rows(targets, settings)
        else:
            if stream.classes is not None:
                # every class has its share of all rows
                codes = np.searchsorted(stream.classes, kept.y)
                share = stream.mass / stream.total / np.bincount(codes, sample.weights)
                sample = replace(sample, weights=sample.weights * share[codes])
            if sample.loss.outputs > 1:
                require_softmax_memory(sample.loss.outputs, rows.d)
            stream = replace(stream, loss=sample.loss)
            choice = choose_in_chunks(stream, sample, self._solver(), settings)
            risks = [float(s.mean_loss) for s in choice.solutions if s.mean_loss is not None]
            fitted = Fitted(targets._replace(classes=stream.classes), choice, risks, [])
        passes = f"{rows.passes} pass{'' if rows.passes == 1 else 'es'} over {rows.n} rows"
        return fitted._replace(passes=passes)

    def _solver(self) -> Solver:
        """Return the solver; refuse a ``tol`` or ``max_iter`` that it would not see."""
        # None is a fixed seed, whatever numpy's global generator holds
        seed = 0 if self.random_state is None else self.random_state
        # at delta = 0 nothing moves, whatever the cost
        cost = None if self.delta == 0 else self.cost
        given: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        others: dict[str, Any] = {"random_state": seed, "verbose": self.verbose, "cost": cost}
        solver = solvers.resolve(self.solver, **given, **others)
        # the class holds the defaults
        changed = {name: v for name, v in given.items() if v != getattr(DROEstimator, name)}
        if changed and solver is self.solver:
            told = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            raise ValueError(
                f"{told} would not reach the solver object that was given: set it there, as in "
                f"solver={type(solver).__name__}({told})."
            )
        if changed and self.solver == "smoothed":
            # its own defaults are looser: only what the user set is passed on
            solver.set_params(**changed)
        return solver

    def _warnings(self, fitted: Fitted, k: int, name: str) -> Iterator[tuple[str, type[Warning]]]:
        """Yield the texts of the warnings about the k-th problem of a fit, and their categories.

        A gap that was not reached; a minimiser that does not exist; a model whose mean loss is
        hardly below a constant one, either because some columns are so much larger than others that
        no delta suits both, or because a given delta is so large that beta = 0 is optimal.
        """
        solution, ball = fitted.choice.solutions[k], fitted.choice.ball
        if not solution.converged:
            solver = self._solver()
            limits = {part: getattr(solver, part, None) for part in ("max_iter", "tol")}
            iterations, tol = (
                part if value is None else f"{part} (now {value:g})"
                for part, value in limits.items()
            )
            yield (
                f"the fit{name} did not reach the gap asked for: {solution.message.rstrip('.')}. "
                f"Raise {iterations}, raise {tol}, or scale the columns of X.",
                ConvergenceWarning,
            )
        zero = f"every coefficient of the fit{name} is zero: "
        constant = "on the constant model is the best answer. Use a smaller delta, or delta='cv'."
        if not fitted.problems:
            asked = solution.converged and fitted.choice.path is None and ball.delta > 0
            if asked and not solution.coef.any():
                where = f"from a smaller delta than {ball.delta:.4g}"
                yield f"{zero}{where} {constant}", UserWarning
            return
        problem = fitted.problems[k]
        if ball.delta == 0:
            if problem.loss.minimum_at_infinity:
                z = model_scores(problem.X, solution.coef, solution.intercept)
                # a margin above 0, or of several scores a label that is more likely than not
                one = problem.loss.outputs == 1
                even = problem.loss.value(0.0 * z, problem.y) if one else np.log(2)
                if (problem.loss.value(z, problem.y) < even)[problem.weights > 0].all():
                    yield (
                        "the classes are separable and delta=0: no minimiser exists, the "
                        "coefficients are those at which the risk fell below "
                        f"{solution.objective:.3g}. Use delta > 0.",
                        ConvergenceWarning,
                    )
            return
        hardly = fitted.risks[k] >= LEARNED * problem.constant[1]
        if problem.finite or not (solution.converged and ball.cost.is_norm and hardly):
            return
        large, small = _scales(problem, getattr(self, "feature_names_in_", None))
        # the threshold has a formula for one score, and for labels and targets that stay
        stays = bool(np.isinf(min(ball.label_cost, ball.target_cost)))
        given = isinstance(self.delta, Real)
        if large:
            yield (
                f"the model{name} is hardly better than a constant one, and the columns are of "
                f"very different scale: {large} against {small}. A move has one price in all "
                "columns, so scale them first, as in make_pipeline(StandardScaler(), ...).",
                UserWarning,
            )
        elif given and stays and problem.loss.outputs == 1 and not np.any(solution.coef):
            design = Design(problem.X)
            at = zero_model(design, problem.y, problem.weights, problem.loss, problem.fit_intercept)
            least = at.threshold(float(ball.cost.norm(at.pull)), problem.loss.lipschitz, ball.order)
            if 0 < least <= ball.delta:
                where = f"delta={ball.delta:.4g} is at or above {least:.4g}, from where"
                yield f"{zero}{where} {constant}", UserWarning

    def _store(self, fitted: Fitted) -> None:
        targets, choice, problems = fitted.targets, fitted.choice, fitted.problems
        solutions = choice.solutions
        self.loss_ = targets.sample.loss
        self.ball_ = choice.ball
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            # a copy: the cost may be the parameter, which stays as it is
            cost = copy(choice.ball.cost)
            # its table shows them
            cost.feature_names_in_ = names
            self.ball_ = replace(choice.ball, cost=cost)
        self.cost_ = self.ball_.cost
        self.delta_ = float(choice.ball.delta)
        coef = np.vstack([s.coef for s in solutions])
        intercept = np.hstack([s.intercept for s in solutions])
        self.coef_: Array = beside(coef, targets.sample.X)
        self.intercept_: Any = beside(intercept, targets.sample.X)
        self.multiplier_ = _float_or_array([s.multiplier for s in solutions])
        self.empirical_risk_ = _float_or_array(fitted.risks)
        self.robust_risk_ = _float_or_array([s.objective for s in solutions])
        self.gap_ = _float_or_array([s.gap for s in solutions])
        self.n_iter_ = max(s.n_iter for s in solutions)
        notes = f"{targets.note} {choice.note}".strip()
        ends = [f"{s.message.rstrip('.')}, {fitted.passes}." for s in solutions]
        if not fitted.passes:
            ends = [f"{s.message.rstrip('.')}." if notes else s.message for s in solutions]
        messages = [f"{end} {notes}".strip() for end in ends]
        self.message_ = messages[0] if len(messages) == 1 else messages
        if choice.path is not None:
            self.path_ = choice.path
        self._support_given = targets.sample.support is not None
        if problems:
            self._result = fitted
        if targets.classes is not None:
            self.classes_: Any = targets.classes

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # a saved model is the model, not the data
        fitted = state.pop("_result", None)
        if fitted is not None:
            sample = fitted.targets.sample
            state["_column_scale"] = column_scale(sample.X, sample.weights)
        # and of no device: a machine without it can read the model
        return {name: numpy(value) if library(value) else value for name, value in state.items()}

    def _trained(self, asked: str, instead: str) -> Fitted:
        """Return what the fit found; say what to do where the rows are gone."""
        if not hasattr(self, "_result"):
            raise ValueError(
                f"{asked} needs the training rows, which are not saved with a model, and this "
                "model was restored from disk, copied, or fitted to rows in chunks: "
                f"{instead}, or fit again to rows in memory."
            )
        return self._result

    def summary(
        self, *, refits: int = 200, random_state: Any = None, n_jobs: int | None = None
    ) -> Summary:
        """Return the fit in figures: rows, ball, coefficients, held-out rows; ``print`` it.

        Parameters
        ----------
        refits : int, default=200
            Refits to bootstrap samples, at the fitted cost and delta, behind the intervals of the
            coefficients; 0: no intervals.
        random_state : int, default=None
            Seeds the samples; None is a fixed seed.
        n_jobs : int, default=None
            Refits at the same time, as in joblib; None: as the estimator's.

        Returns
        -------
        Summary
            Without intervals and held-out rows where the model was restored from disk or fitted to
            rows in chunks, and so has no training rows.
        """
        from .summary import summarise

        jobs = self.n_jobs if n_jobs is None else n_jobs
        return summarise(self, refits, random_state, jobs)

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
        sample = self._trained("confidence_region()", "ask before saving").targets.sample
        confidence = self.confidence if confidence is None else confidence
        names = getattr(self, "feature_names_in_", None)
        return confidence_region(sample, sample.ys[0], self.cost_, confidence, names)

    @told_of_text()
    @np.errstate(all="ignore")
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
            ``origin`` counts the rows of X, or of ``rows``; ``equilibrium`` says whether the fit is
            proved to be the best plain model for it.
        """
        from ..worst_case import worst_case

        check_is_fitted(self)
        k = self._number(class_)
        coef, intercept = self._part(k)
        if rows is not None:
            problem = self._problem_around(rows, k)
            return self._named(worst_case(problem, coef, intercept, reach=reach))
        fitted = self._trained("worst_case()", "give labelled rows as rows=(X, y)")
        problem, solution = fitted.problems[k], fitted.choice.solutions[k]
        return self._named(worst_case(problem, coef, intercept, fit=solution, reach=reach))

    def _problem_around(self, rows: Any, k: int) -> Problem:
        """Return the k-th problem with other labelled rows, all of the same weight."""
        if not (isinstance(rows, tuple | list) and len(rows) == 2):
            raise ValueError(f"rows must be a pair (X, y), got {type(rows).__name__}.")
        X, y = rows
        check_places(X, y=y)
        X = validate_data(self, X, **formats(X), reset=False)
        y = beside(self._targets_of(numpy(y) if library(y) else y, k), X)
        if len(y) != X.shape[0]:
            raise ValueError(f"rows has {X.shape[0]} rows in X but {len(y)} entries in y.")
        support = None
        if self._support_given:
            fitted = self._trained("a worst case over the support", "ask before saving")
            support = fitted.targets.sample.support
        weights = full(len(y), 1 / len(y), X)
        fit_intercept = bool(self.fit_intercept)
        return Problem(X, y, weights, self.loss_, self.ball_, fit_intercept, support)

    def _part(self, k: int) -> tuple[Array, Any]:
        """Return coefficients and intercept of the k-th problem."""
        return np.atleast_2d(numpy(self.coef_))[k], float(np.ravel(numpy(self.intercept_))[k])

    def _number(self, class_: Any) -> int:
        """Return the number of the problem that belongs to a class."""
        if class_ is not None:
            raise ValueError(f"a regressor has no classes, got class_={class_!r}.")
        return 0

    def _targets_of(self, y: Any, k: int) -> Array:
        """Return labels or targets as the k-th problem has them."""
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        check_targets(y, self.loss_)
        return np.asarray(y)

    def _named(self, found: WorstCase) -> WorstCase:
        """Return a worst case with targets as the user gave them."""
        return found


def documented(estimator: type[T]) -> type[T]:
    """Put the parts of the base class in the place of their markers in the docstring of a class."""
    _, *shared = re.split("(<[a-z]+>)\n", cleandoc(DROEstimator.__doc__ or ""))
    text = cleandoc(estimator.__doc__ or "")
    for marker, part in zip(shared[::2], shared[1::2], strict=True):
        text = text.replace(marker, part.strip())
    estimator.__doc__ = text
    return estimator


def _is_fitted(name: str) -> bool:
    """Whether an attribute belongs to a fit: ``name_``, and what is kept for questions later."""
    kept = ("_result", "_column_scale", "_support_given")
    return name in kept or (name.endswith("_") and not name.startswith("_"))


def _float_or_array(values: list[float]) -> Any:
    return float(values[0]) if len(values) == 1 else np.array(values)


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """The job that collects the scores x'beta + b of every row for coefficients (d,) or (K, d).

    With ``targets`` it collects the labels or targets too.
    """

    coef: Array
    intercept: Any
    targets: bool = False

    def __call__(self, chunk: Chunk) -> Sums:
        """Return what is collected of a chunk."""
        chunk.require_finite()
        sums = {"z": [model_scores(chunk.X, self.coef, self.intercept)]}
        return sums | {"y": [np.asarray(chunk.targets(), dtype=float)]} if self.targets else sums


def _scales(problem: Problem, columns: Any) -> tuple[str, str]:
    """Return the columns of the largest and of the least scale in words, if they are far apart."""
    scale = column_scale(problem.X, problem.weights)
    matrix = problem.ball.cost.matrix
    if matrix is not None:
        scale = scale * np.sqrt(diagonal(matrix))
    varies = np.flatnonzero(scale > 0)
    if len(varies) < 2:
        return "", ""
    order = varies[np.argsort(scale[varies])]
    least, most = scale[order[[0, -1]]]
    if most < APART * least:
        return "", ""
    named = [f"column {j}" if columns is None else repr(str(columns[j])) for j in order]
    words = [f"{n} (standard deviation {scale[j]:.2g})" for n, j in zip(named, order, strict=True)]
    small = int(np.count_nonzero(scale[order] <= np.sqrt(least * most)))
    return ", ".join(words[small:][::-1][:PARTS]), ", ".join(words[:small][:PARTS])


@told_of_text()
def robust_risk(X: Any, y: Any, coef: Any, intercept: Any, loss: str | Loss, ball: Ball) -> float:
    r"""Return :math:`\sup_{P \in ball} E_P\,\ell(x'\beta + b, y)` around the sample (X, y).

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Labels -1/+1 for a loss of classification, targets for one of regression.
    coef : array-like of shape (d,) or (K, d)
        The coefficients. With K > 1 lines it is the risk of the softmax model at order 1, and
        ``y`` are labels 0 to K - 1.
    intercept : float or array-like of shape (K,)
        The intercept.
    loss : str or Loss
        A short name, or an object of ``otdro.losses``.
    ball : Ball
        Cost, delta and order.

    Returns
    -------
    float

    Examples
    --------
    The worst case of a hinge loss at order 1 is its mean plus delta times the dual norm:

    >>> from otdro import Ball, robust_risk
    >>> from otdro.costs import Norm
    >>> X, y = [[1.0, 0.0], [-1.0, 0.0]], [1, -1]
    >>> robust_risk(X, y, [3.0, 4.0], 0.0, "hinge", Ball(Norm(2), 0.1, order=1))
    0.5
    """
    from ..worst_case import risk_of_scores, robust_risk_of

    B, b = np.asarray(numpy(coef), dtype=float), np.ravel(numpy(intercept)).astype(float)
    if not (np.isfinite(B).all() and np.isfinite(b).all()):
        raise ValueError(
            "coef or intercept has NaN or infinite entries: give those of a fitted model."
        )
    loss, reads, several = losses.resolve(loss), in_chunks(X), B.ndim == 2 and len(B) > 1
    if reads and not ball.cost.is_norm:
        raise ValueError(
            f"the worst-case risk of rows in chunks is that under a norm, got {ball.cost!r}: use a "
            "norm, or rows that fit into memory."
        )
    if reads:
        X = open_rows(X, y)
    else:
        X, y = checked_pair(X, y)
    if several:
        softmax = loss if loss.outputs == len(B) else loss.multinomial(len(B))
        if softmax is None or ball.order != 1 or not ball.cost.is_norm:
            raise ValueError(
                f"coefficients of {len(B)} classes are those of a softmax model, which needs the "
                f"logistic loss, order 1 and a norm; got {loss!r}, order={ball.order} and "
                f"{ball.cost!r}. Give one line of coefficients at a time."
            )
        loss = softmax
    else:
        B, b = B.ravel(), b[0]
    d = X.d if reads else X.shape[1]
    if B.shape[-1] != d:
        raise ValueError(f"coef has {B.shape[-1]} entries but X has {d} features.")
    if several and len(b) != len(B):
        raise ValueError(f"coef has {len(B)} lines, but intercept has shape {np.shape(intercept)}.")
    ball.cost.check(d)
    if reads:
        [sums] = X.total(ScoreRows(B, b, targets=True))
        z, y = np.concatenate(sums["z"]), np.concatenate(sums["y"])
    labels = numpy(y)
    known = (-1, 1) if loss.outputs == 1 else tuple(range(loss.outputs))
    if loss.task == "regression":
        check_targets(labels, loss)
    elif not np.isin(labels, known).all():
        words = "-1 or +1" if loss.outputs == 1 else f"0 to {known[-1]}"
        raise ValueError(f"labels must be {words} here, got {np.unique(labels)[:5].tolist()}.")
    problem = Problem(X, y, full(len(y), 1 / len(y), y), loss, ball)
    return risk_of_scores(problem, B, z).risk if reads else robust_risk_of(problem, B, b)


def _at_least(solution: Solution, mean_loss: float) -> Solution:
    """Return the solution with no smaller a risk than its mean loss on the rows as given.

    The gap is proved in the coordinates of the solver. Where columns are very far from 0, the
    intercept in the units of X has lost digits that the scores need.
    """
    lost = mean_loss - solution.objective
    if not (np.isfinite(solution.gap) and lost > LOST * (1 + abs(solution.objective))):
        return solution
    return replace(
        solution,
        objective=mean_loss,
        gap=solution.gap + lost,
        converged=False,
        message=f"the columns are so far from 0 that the intercept has lost digits: the mean loss "
        f"is {mean_loss:.3g}, against {solution.objective:.3g} on centred columns",
    )
