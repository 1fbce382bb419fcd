"""Cross-validation of a path: whatever is learned, the cost too, is learned inside the fold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from logging import INFO
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..arrays import beside, namespace, numpy, pick
from ..costs import Cost
from ..design import model_scores
from ..problem import Sample
from ..progress import logger
from ..solvers import Solver
from .candidates import Candidates
from .grid import Solved, solve_with_folds
from .splitting import Split
from .unlabelled import Corrections, correction

Array = NDArray[Any]

#: The gap, relative to the constant model's risk, to which models inside folds are solved at least.
FOLD_TOL = 1e-4
#: Scores of tested rows that a rule looks at in one go.
ENTRIES = 1_000_000


@dataclass(frozen=True, eq=False)
class FoldScores:
    """One candidate's folds: ``scores`` (F, m), larger is better; of each fold the ``rows`` it
    tested, their model scores ``z`` (K, rows, m), and the cost, learned from its training rows.

    ``path`` is that over all rows, where it was found with the folds; ``corrections`` what rows
    without labels say, where there are some.
    """

    scores: Array
    rows: list[Array]
    z: list[Array]
    costs: list[Cost]
    path: Solved | None = None
    corrections: Corrections | None = None

    def entries(
        self, k: int, weights: Array, columns: slice = slice(None)
    ) -> tuple[Array, Array, Array]:
        """Return tested rows (E,), their scores (E, m) for target k, and their shares (E,) of 1.

        A row that several folds tested shares its weight among its entries; one that no fold
        tested has none. ``columns`` are the deltas asked for.
        """
        rows, times = self.tested
        share = weights[rows] / times
        z = namespace(weights).concat([z[k][:, columns] for z in self.z])
        return rows, z, share / share.sum()

    def shares(self, weights: Array) -> Array:
        """Return the share of the tested weight that each fold has, (F,)."""
        _, _, share = self.entries(0, weights, slice(0))
        ends = np.cumsum([len(rows) for rows in self.rows])[:-1]
        return np.array([part.sum() for part in np.split(numpy(share), ends)])

    @cached_property
    def tested(self) -> tuple[Array, Array]:
        """The tested rows, fold after fold (E,), and how often each of them is tested."""
        rows, z = np.concatenate(self.rows), self.z[0]
        return beside(rows, z), beside(np.bincount(rows)[rows], z)

    def forget_rows(self) -> None:
        """Let go of the scores of rows, of which there may be many, once a rule has seen them."""
        self.z.clear()

    def blocks(self) -> list[slice]:
        """Return the deltas in parts of at most ``ENTRIES`` scores, so that copies are small."""
        return _blocks(self.scores.shape[1], sum(len(rows) for rows in self.rows))

    @property
    def mean(self) -> Array:
        """The mean score over folds."""
        return self.scores.mean(axis=0)

    @property
    def se(self) -> Array:
        """Its standard error."""
        F = len(self.scores)
        return self.scores.std(axis=0, ddof=1) / np.sqrt(F) if F > 1 else np.zeros_like(self.mean)

    @property
    def repeats(self) -> float:
        """How often a tested row is tested."""
        rows = np.concatenate(self.rows)
        return len(rows) / len(np.unique(rows))

    def paired_error(self, place: int, other: FoldScores, other_place: int) -> float:
        """Return the standard error of the mean difference to other scores on the same folds.

        Folds of a repetition say nothing new: F of them in r repetitions count as F/r.
        """
        difference = self.scores[:, place] - other.scores[:, other_place]
        F = len(difference)
        if F == 1:
            return float(np.inf)
        return float(difference.std(ddof=1) * np.sqrt(self.repeats / F))


@dataclass(frozen=True, eq=False)
class FoldFits:
    """What fits inside folds have in common; without a ``scorer`` the score is minus the loss.

    ``unlabelled`` are rows without labels on which every model is to state what it expects.
    """

    sample: Sample
    order: int
    solver: Solver
    scorer: Any = None
    unlabelled: Array | None = None


@dataclass(frozen=True, eq=False)
class AskedPath:
    """What is asked of a candidate: its cost over all rows, its ``deltas``, the gap of its path."""

    cost: Cost
    deltas: Array
    tol: float


def cross_validate(
    fits: FoldFits,
    candidates: Candidates,
    asked: list[AskedPath],
    pairs: list[Split],
    n_jobs: int | None = None,
    learned: list[list[Cost]] | None = None,
) -> list[FoldScores]:
    """Return the fold scores of every candidate along the deltas asked for.

    ``learned`` are the costs of the candidates in every fold where they are known already.
    """
    parts = _parts(len(pairs), effective_n_jobs(n_jobs))
    arriving = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_folds_of)(
            fits, candidates, asked, pairs[part], None if learned is None else learned[part]
        )
        for part in parts
    )
    folds: list[list[_Scored]] = []
    for part in arriving:
        for fold in part:
            folds.append(fold)
            if logger.isEnabledFor(INFO):
                _log(fold, len(folds), len(pairs), candidates.names)
    _warn_of_unsolved([sum(part.failed for part in fold) for fold in folds])
    _require_numbers([[part.scores for part in fold] for fold in folds])
    tests = [test for _, test in pairs]
    return [
        FoldScores(
            np.stack([fold[c].scores for fold in folds]),
            tests,
            [fold[c].z for fold in folds],
            [fold[c].cost for fold in folds],
            folds[0][c].path,
            _corrections(fits, [fold[c].correction for fold in folds]),
        )
        for c in range(len(asked))
    ]


def _corrections(fits: FoldFits, found: list[Array | None]) -> Corrections | None:
    if fits.unlabelled is None:
        return None
    return Corrections(len(fits.unlabelled), np.stack([each for each in found if each is not None]))


@dataclass(frozen=True, eq=False)
class _Scored:
    """One candidate in one fold: ``scores`` (m,), ``z`` (K, test, m), cost, unsolved fits, time,
    the path over all rows, where it was found with the folds, and the ``correction`` (K, 2, m)."""

    scores: Array
    z: Array
    cost: Cost
    failed: int
    seconds: float
    path: Solved | None
    correction: Array | None


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


def _parts(total: int, count: int) -> list[slice]:
    """Return the numbers of the folds in at most ``count`` parts of even size."""
    size = -(-total // count)
    return [slice(i, i + size) for i in range(0, total, size)]


def _folds_of(
    fits: FoldFits,
    candidates: Candidates,
    asked: list[AskedPath],
    pairs: list[Split],
    learned: list[list[Cost]] | None,
) -> list[list[_Scored]]:
    """Return what some folds say about every candidate."""
    sample = fits.sample
    trains = [train for train, _ in pairs]
    found = learned or [candidates.costs(sample.rows(train)) for train in trains]
    results: list[list[_Scored]] = [[] for _ in pairs]
    for costs, each in zip(zip(*found, strict=True), asked, strict=True):
        begun = perf_counter()
        near = [fits.solver.cost_in_folds(cost) for cost in costs]
        full, paths = solve_with_folds(
            sample,
            fits.solver.cost_in_folds(each.cost),
            trains,
            near,
            fits.order,
            each.deltas,
            fits.solver,
            each.tol,
            FOLD_TOL,
        )
        seconds = (perf_counter() - begun) / len(pairs)
        for row, (_, test), cost, solved in zip(results, pairs, costs, paths, strict=True):
            row.append(_scored(fits, test, cost, solved, seconds, full))
    return results


def _scored(
    fits: FoldFits, test: Array, cost: Cost, solved: Solved, seconds: float, path: Solved | None
) -> _Scored:
    """Return what the solutions of a fold say on its test rows."""
    sample, more = fits.sample, fits.unlabelled
    held = pick(sample.X, test)
    failed = sum(not s.converged for row in solved for s in row)
    coefs = np.stack([[s.coef for s in row] for row in solved])
    intercepts = np.array([[s.intercept for s in row] for row in solved])
    each = [model_scores(held, c, b) for c, b in zip(coefs, intercepts, strict=True)]
    z = namespace(each[0]).stack(each)
    scores = _scores(sample, test, z, coefs, intercepts, fits.scorer)
    corrected = None
    if more is not None:
        weights, models = pick(sample.weights, test), zip(each, coefs, intercepts, strict=True)
        corrected = np.stack(
            [
                correction(sample.loss, model_scores(more, c, b), own, weights)
                for own, c, b in models
            ]
        )
    return _Scored(scores, z, cost, failed, seconds, path, corrected)


def _scores(
    sample: Sample, test: Array, z: Array, coefs: Array, intercepts: Array, scorer: Any
) -> Array:
    """Return the score of every delta on the test rows: minus the mean loss, or the scorer's."""
    weights = pick(sample.weights, test)
    weights = weights / weights.sum()
    m = z.shape[2]
    if scorer is None:
        losses = [
            np.concatenate(
                [
                    numpy(weights @ sample.loss.value(z[k][:, columns], pick(y, test)[:, None]))
                    for columns in _blocks(m, len(test))
                ]
            )
            for k, y in enumerate(sample.ys)
        ]
        return -np.mean(losses, axis=0)
    held = pick(sample.X, test)
    return np.array([scorer(held, test, coefs[:, j], intercepts[:, j]) for j in range(m)])


def _blocks(m: int, tested: int) -> list[slice]:
    """Return m deltas in parts of at most ``ENTRIES`` scores of so many tested rows."""
    step = max(1, ENTRIES // max(tested, 1))
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


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
