"""Cross-validation of a path: whatever is learned, the cost too, is learned inside the fold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from ..design import Design
from ..problem import Sample
from ..solvers import Solver
from .candidates import Candidates
from .grid import Solved, solve_path

Array = NDArray[Any]
Split = tuple[Array, Array]

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

    A splitter or an iterable of splits is used as it is. ``classes`` are the names of the labels.
    """
    labels = codes(sample)
    classify = sample.loss.task == "classification"
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        names = np.unique(labels) if classes is None else classes
        splitters = _folds(labels, int(cv), classify, seed, repeats, names)
    else:
        splitters = [check_cv(cv, labels, classifier=classify)]
    found = [
        (np.asarray(train), np.asarray(test))
        for splitter in splitters
        for train, test in splitter.split(sample.X, labels, groups)
    ]
    lacking = [i for i, pair in enumerate(found) if not _usable(sample, *pair)]
    if len(lacking) == len(found):
        raise ValueError(
            f"none of the {len(found)} splits of cv has training rows of positive weight from two "
            "classes; use other folds, or a number as delta."
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
    """Return one label a row (the class number for one-vs-rest), or the target."""
    return sample.ys[0] if len(sample.ys) == 1 else np.stack(sample.ys).argmax(axis=0)


def _folds(labels: Array, k: int, classify: bool, seed: int, repeats: int, names: Any) -> list[Any]:
    if k < 2:
        raise ValueError(f"cv must be at least 2 folds, got cv={k}.")
    least, what = len(labels), "the sample"
    if classify:
        counts = np.unique(labels, return_counts=True)[1]
        rare = np.asarray(names).tolist()[int(counts.argmin())]
        least, what = int(counts.min()), f"the class {rare!r}"
    if least < k:
        fewer = max(2, least)
        warnings.warn(
            f"{what} has {least} rows, fewer than cv={k} folds: using {fewer}.",
            UserWarning,
            stacklevel=3,
        )
        k = fewer
    kind = StratifiedKFold if classify and least >= 2 else KFold
    return [kind(k, shuffle=True, random_state=(seed + r) % 2**31) for r in range(repeats)]


def _usable(sample: Sample, train: Array, test: Array) -> bool:
    positive = sample.weights[train] > 0
    if not positive.any() or not (sample.weights[test] > 0).any():
        return False
    if sample.loss.task != "classification":
        return True
    return all(len(np.unique(y[train][positive])) == 2 for y in sample.ys)


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
    folds = Parallel(n_jobs=n_jobs)(
        delayed(_fold)(sample, candidates, order, deltas, solver, train, test, scorer, starts)
        for train, test in pairs
    )
    _warn_of_unsolved([fold[1] for fold in folds])
    _require_numbers([[scores for scores, _ in results] for results, _ in folds])
    tests = [test for _, test in pairs]
    return [
        FoldScores(
            np.stack([results[c][0] for results, _ in folds]),
            tests,
            [results[c][1] for results, _ in folds],
        )
        for c in range(len(deltas))
    ]


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
) -> tuple[list[tuple[Array, Array]], int]:
    """Return each candidate's scores (m,) and z (K, test, m), and how many fits failed."""
    part, held = sample.rows(train), Design(sample.X[test])
    results, failed = [], 0
    for cost, grid, start in zip(candidates.costs(part), deltas, starts, strict=True):
        solved = solve_path(part, solver.cost_in_folds(cost), order, grid, solver, start)
        failed += sum(not s.converged for row in solved for s in row)
        coefs = np.stack([[s.coef for s in row] for row in solved])
        intercepts = np.array([[s.intercept for s in row] for row in solved])
        z = np.stack([held.scores(c.T) + b for c, b in zip(coefs, intercepts, strict=True)])
        results.append((_scores(sample, test, z, coefs, intercepts, scorer), z))
    return results, failed


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
    """A scikit-learn scorer applied to coefficients, through a copy of the estimator."""

    def __init__(self, estimator: Any, scoring: Any, y: Array, classes: Array | None) -> None:
        self.model = clone(estimator)
        self.score = check_scoring(estimator, scoring=scoring)
        self.y, self.classes, self.name = y, classes, scoring

    def __call__(self, X: Any, rows: Array, coef: Array, intercept: Array) -> float:
        """Return the score of one model on rows X, numbered ``rows`` in the training data."""
        model = self.model
        model.n_features_in_ = X.shape[1]
        if self.classes is None:
            model.coef_, model.intercept_ = coef[0], float(intercept[0])
        else:
            model.coef_, model.intercept_, model.classes_ = coef, intercept, self.classes
        try:
            return float(self.score(model, X, self.y[rows]))
        except AttributeError as error:
            raise ValueError(
                f"scoring={self.name!r} needs what the loss {model.loss!r} lacks: {error}"
            ) from None
