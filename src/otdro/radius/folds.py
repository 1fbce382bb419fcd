"""Cross-validation of a path: whatever is learned, the cost too, is learned inside the fold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from inspect import Parameter, signature
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)

from ..design import model_scores
from ..losses import Loss
from ..problem import Sample
from ..progress import logger
from ..solvers import Solver
from .candidates import Candidates
from .grid import Solved, solve_path

Array = NDArray[Any]
Split = tuple[Array, Array]

#: Folds of ``cv=None``, as in scikit-learn.
DEFAULT_FOLDS = 5
#: The gap, relative to the constant model's risk, to which models inside folds are solved at least.
FOLD_TOL = 1e-4


@dataclass(frozen=True, eq=False)
class FoldScores:
    """One candidate's folds: ``scores`` (F, m), larger is better; of each fold the ``rows`` it
    tested and their model scores ``z`` (K, rows, m)."""

    scores: Array
    rows: list[Array]
    z: list[Array]

    def entries(self, k: int, weights: Array) -> tuple[Array, Array, Array]:
        """Return tested rows (E,), their scores (E, m) for target k, and their shares (E,) of 1.

        A row that several folds tested shares its weight among its entries; one that no fold
        tested has none.
        """
        rows = np.concatenate(self.rows)
        share = weights[rows] / np.bincount(rows, minlength=len(weights))[rows]
        return rows, np.concatenate([z[k] for z in self.z]), share / share.sum()

    @property
    def mean(self) -> Array:
        """The mean score over folds."""
        return self.scores.mean(axis=0)

    @property
    def se(self) -> Array:
        """Its standard error."""
        F = len(self.scores)
        return self.scores.std(axis=0, ddof=1) / np.sqrt(F) if F > 1 else np.zeros_like(self.mean)


def splits(
    sample: Sample, cv: Any, groups: Any, seed: int, repeats: int = 1, classes: Any = None
) -> list[Split]:
    """Return (train, test) rows; an int makes shuffled folds, stratified by label, repeated.

    With ``groups`` such folds leave whole groups out. A splitter or an iterable of splits is used
    as it is. ``classes`` are the names of the labels. Splits that cannot train are left out; none
    is left only where the folds were made here.
    """
    labels = codes(sample)
    classify = sample.loss.task == "classification"
    count = _number_of_folds(cv, groups)
    if count is not None:
        names = np.unique(labels) if classes is None else classes
        splitters = _folds(labels, count, classify, seed, repeats, names, groups)
    else:
        splitters = [check_cv(cv, labels, classifier=classify)]
    found = [
        (np.asarray(train), np.asarray(test))
        for splitter in splitters
        for train, test in splitter.split(sample.X, labels, groups)
    ]
    lacking = [i for i, pair in enumerate(found) if not _usable(sample, *pair)]
    if len(lacking) == len(found):
        if count is not None and groups is None:
            return []
        raise ValueError(
            f"none of the {len(found)} splits of cv has training rows of positive weight from "
            f"{'all' if sample.loss.outputs > 1 else 'two'} classes; use other folds or groups, or "
            "a number as delta."
        )
    if lacking:
        warnings.warn(
            f"{len(lacking)} of {len(found)} splits (number {', '.join(map(str, lacking))}) lack a "
            "class or test rows of positive weight and are left out.",
            UserWarning,
            stacklevel=2,
        )
    return [pair for i, pair in enumerate(found) if i not in lacking]


def codes(sample: Sample) -> Array:
    """Return one label per row (the class number for one-vs-rest), or the target."""
    return sample.ys[0] if len(sample.ys) == 1 else np.stack(sample.ys).argmax(axis=0)


def _number_of_folds(cv: Any, groups: Any) -> int | None:
    """Return how many folds are to be made here, None where ``cv`` says which rows they hold."""
    if cv is None and groups is not None:
        # scikit-learn's default for None, which would pass over the groups
        return DEFAULT_FOLDS
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        return int(cv)
    return None


def _folds(
    labels: Array, k: int, classify: bool, seed: int, repeats: int, names: Any, groups: Any
) -> list[Any]:
    """Return the splitters of k folds, one per repetition, of whole groups if there are any."""
    if k < 2:
        raise ValueError(f"cv must be at least 2 folds, got cv={k}.")
    least, what = len(labels), "the sample"
    if classify:
        counts = np.unique(labels, return_counts=True)[1]
        rare = np.asarray(names).tolist()[int(counts.argmin())]
        least, what = int(counts.min()), f"the class {rare!r}"
    folds = _at_most(k, least, what, "row")
    stratify = classify and least >= 2
    if groups is None:
        kind = StratifiedKFold if stratify else KFold
    else:
        count = len(np.unique(groups))
        if count < 2:
            raise ValueError(
                f"folds of whole groups need two groups, got one: {groups[0]!r}. Leave groups out, "
                "or give a number as delta."
            )
        folds = _at_most(folds, count, "the sample", "group")
        kind = StratifiedGroupKFold if stratify and count > folds else GroupKFold
        if count == folds:
            # each group is a fold: every repetition would be the same
            repeats = 1
    return [kind(folds, shuffle=True, random_state=(seed + r) % 2**31) for r in range(repeats)]


def _at_most(k: int, least: int, what: str, unit: str) -> int:
    """Return the number of folds that ``least`` units allow, at least 2, aloud if that is not k."""
    if least >= k:
        return k
    fewer = max(2, least)
    plural = "" if least == 1 else "s"
    warnings.warn(
        f"{what} has {least} {unit}{plural}, fewer than cv={k} folds: using {fewer}.",
        UserWarning,
        stacklevel=4,
    )
    return fewer


def _usable(sample: Sample, train: Array, test: Array) -> bool:
    positive = sample.weights[train] > 0
    if not positive.any() or not (sample.weights[test] > 0).any():
        return False
    if sample.loss.task != "classification":
        return True
    return all(len(np.unique(y[train][positive])) == len(np.unique(y)) for y in sample.ys)


def cross_validate(
    sample: Sample,
    candidates: Candidates,
    order: int,
    deltas: list[Array],
    solver: Solver,
    pairs: list[Split],
    scorer: Any,
    n_jobs: int | None,
    starts: list[Solved | None] | None = None,
) -> list[FoldScores]:
    """Return the fold scores of every candidate along its deltas; ``starts`` for ``solve_path``."""
    solver = solver.in_folds(FOLD_TOL)
    starts = starts or [None] * len(deltas)
    # a generator, so that a verbose fit tells of a fold as soon as it is there
    arriving = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_fold)(sample, candidates, order, deltas, solver, train, test, scorer, starts)
        for train, test in pairs
    )
    folds: list[list[_Scored]] = []
    for fold in arriving:
        folds.append(fold)
        _log(fold, len(folds), len(pairs), candidates.names)
    _warn_of_unsolved([sum(part.failed for part in fold) for fold in folds])
    _require_numbers([[part.scores for part in fold] for fold in folds])
    tests = [test for _, test in pairs]
    return [
        FoldScores(
            np.stack([fold[c].scores for fold in folds]),
            tests,
            [fold[c].z for fold in folds],
        )
        for c in range(len(deltas))
    ]


@dataclass(frozen=True, eq=False)
class _Scored:
    """One candidate in one fold: ``scores`` (m,), ``z`` (K, test, m), unsolved fits, seconds."""

    scores: Array
    z: Array
    failed: int
    seconds: float


def _log(fold: list[_Scored], number: int, total: int, names: list[str]) -> None:
    for name, part in zip(names, fold, strict=True):
        logger.info(
            "fold %d of %d: cost %s, best score %.4g, %.2f s",
            number,
            total,
            name,
            part.scores.max(),
            part.seconds,
        )


def _fold(
    sample: Sample,
    candidates: Candidates,
    order: int,
    deltas: list[Array],
    solver: Solver,
    train: Array,
    test: Array,
    scorer: Any,
    starts: list[Solved | None],
) -> list[_Scored]:
    """Return what one fold says about every candidate."""
    part, held = sample.rows(train), sample.X[test]
    results = []
    for cost, grid, start in zip(candidates.costs(part), deltas, starts, strict=True):
        begun = perf_counter()
        solved = solve_path(part, solver.cost_in_folds(cost), order, grid, solver, start)
        failed = sum(not s.converged for row in solved for s in row)
        coefs = np.stack([[s.coef for s in row] for row in solved])
        intercepts = np.array([[s.intercept for s in row] for row in solved])
        z = np.stack([model_scores(held, c, b) for c, b in zip(coefs, intercepts, strict=True)])
        scores = _scores(sample, test, z, coefs, intercepts, scorer)
        results.append(_Scored(scores, z, failed, perf_counter() - begun))
    return results


def _scores(
    sample: Sample, test: Array, z: Array, coefs: Array, intercepts: Array, scorer: Any
) -> Array:
    """Return the score of every delta on the test rows: minus the mean loss, or the scorer's."""
    weights = sample.weights[test] / sample.weights[test].sum()
    if scorer is None:
        losses = [
            weights @ sample.loss.value(z[k], y[test][:, None]) for k, y in enumerate(sample.ys)
        ]
        return -np.mean(losses, axis=0)
    m = z.shape[2]
    return np.array([scorer(sample.X[test], test, coefs[:, j], intercepts[:, j]) for j in range(m)])


def _warn_of_unsolved(failed: list[int]) -> None:
    numbers = [str(i) for i, count in enumerate(failed) if count]
    if numbers:
        warnings.warn(
            f"{sum(failed)} fits inside fold(s) {', '.join(numbers)} did not reach their gap; they "
            "are scored all the same. Raise max_iter or scale the columns of X.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _require_numbers(scores: list[list[Array]]) -> None:
    bad = [str(i) for i, fold in enumerate(scores) if not all(np.isfinite(s).all() for s in fold)]
    if bad:
        raise ValueError(
            f"the score is not a number in fold(s) {', '.join(bad)}; use another scoring, or folds "
            "whose test rows it can score."
        )


class ModelScorer:
    """A scikit-learn scorer applied to coefficients, through a copy of the estimator.

    ``sample_weight`` (None: no weights) goes to a scorer that takes one; of one that does not,
    a warning says so.
    """

    def __init__(
        self,
        estimator: Any,
        scoring: Any,
        loss: Loss,
        y: Array,
        classes: Array | None,
        sample_weight: Array | None = None,
    ) -> None:
        self.model = clone(estimator)
        self.score = check_scoring(estimator, scoring=scoring)
        self.loss = loss
        self.y = y
        self.classes = classes
        self.name = scoring
        self.weights = sample_weight
        if sample_weight is not None and not _takes_weights(self.score):
            warnings.warn(
                f"scoring={scoring!r} takes no sample_weight: the rows of a fold count alike in "
                "its score.",
                UserWarning,
                stacklevel=4,
            )
            self.weights = None

    def __call__(self, X: Any, rows: Array, coef: Array, intercept: Array) -> float:
        """Return the score of one model on rows X, numbered ``rows`` in the training data."""
        model = self.model
        model.loss_ = self.loss
        model.n_features_in_ = X.shape[1]
        if self.classes is None:
            model.coef_, model.intercept_ = coef[0], float(intercept[0])
        else:
            several = self.loss.outputs > 1
            model.coef_, model.intercept_ = (
                (coef[0], intercept[0]) if several else (coef, intercept)
            )
            model.classes_ = self.classes
        weighted = {} if self.weights is None else {"sample_weight": self.weights[rows]}
        try:
            return float(self.score(model, X, self.y[rows], **weighted))
        except AttributeError as error:
            raise ValueError(
                f"scoring={self.name!r} needs what the loss {model.loss!r} lacks: {error}"
            ) from None


def _takes_weights(scorer: Any) -> bool:
    """Whether a scorer, or the metric that scikit-learn made it from, has a sample_weight."""
    parameters = signature(getattr(scorer, "_score_func", scorer)).parameters
    return "sample_weight" in parameters or any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
