"""The folds: which rows train and test, the models fitted inside them, and their scores.

Whatever is learned, the cost too, is learned inside the fold. A fold is the problem of all rows in
which the rows left out have weight 0, so that a solver can share passes between the path over all
rows and its folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import Parameter, signature
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)

from ..arrays import beside, full, library, namespace, numpy, pick
from ..costs import Cost, Norm
from ..design import model_scores
from ..losses import Loss
from ..problem import Problem, Sample, Solution
from ..progress import logger, note
from ..solvers import Solver
from .evidence import Corrections, FoldScores, blocks, correction
from .grid import Solved

Array = NDArray[Any]
Split = tuple[Array, Array]

#: The gap, relative to the constant model's risk, to which models inside folds are solved at least.
FOLD_TOL = 1e-4
#: The same for few rows, where it is cheap: at 1e-4 the chosen delta moved by up to 31% on samples
#: of 40 to 150 rows of breast cancer, at 1e-5 by less than 1%.
FOLD_TOL_OF_FEW = 1e-5
#: Rows up to which that holds.
FEW_ROWS = 500
#: A gap above this share of the constant model's risk may change what a fold says about its delta.
UNSURE = 1e-3
#: Folds of ``cv=None``, as in scikit-learn.
DEFAULT_FOLDS = 5
NO_PAIR = "every split of cv must be a pair (train, test) of arrays of row numbers, got {!r}."
#: Rows up to which costs are compared on all of them.
ALL_UP_TO = 2_000
#: Rows on which costs are compared at least where rows are more.
COMPARE_ON = 1_000
#: Rows per column on which costs are compared at least.
PER_COLUMN = 10
#: Rows of the rarest class on which costs are compared at least.
OF_A_CLASS = 100


@dataclass(frozen=True, eq=False)
class FoldFits:
    """What fits inside folds have in common; without a ``scorer`` the score is minus the loss.

    ``unlabelled`` are rows without labels on which every model is to state what it expects.
    """

    sample: Sample
    order: int
    solver: Solver
    splits: list[Split]
    scorer: Any = None
    unlabelled: Array | None = None
    n_jobs: int | None = None


def cross_validate(
    fits: FoldFits,
    costs: list[Cost],
    learned: list[list[Cost]],
    deltas: list[Array],
    *,
    names: list[str] | None = None,
    final: bool = False,
) -> list[FoldScores]:
    """Return what the folds say of every cost along its deltas, and the path over all rows.

    ``learned[f][c]`` is cost c learned without fold f; ``names`` are for progress lines. The folds
    start from the path; a ``final`` one has the accuracy of the fit.
    """
    enough = fold_tol(len(fits.sample.weights))
    lots: list[list[Any]] = []
    for c, grid in enumerate(deltas):
        for k in range(len(fits.sample.ys)):
            in_folds = [of_fold[c] for of_fold in learned]
            problems = _fold_problems(fits, k, costs[c], in_folds, float(grid[0]))
            tols = [0.0 if final else enough] + [enough] * len(in_folds)
            jobs = [(problems, grid, tols)]
            if not costs[c].euclidean:
                # no method shares work between folds there
                jobs = [([one], grid, [tol]) for one, tol in zip(problems, tols, strict=True)]
            lots.append(jobs)
    # the lots do not depend on n_jobs, so that the results do not
    solved = Parallel(n_jobs=fits.n_jobs, return_as="generator")(
        delayed(fits.solver.solve)(problems, grid, tols=tols)
        for jobs in lots
        for problems, grid, tols in jobs
    )
    scores: list[FoldScores] = []
    of_targets = []
    shown = names or [repr(cost) for cost in costs]
    begun = perf_counter()
    for done, jobs in enumerate(lots):
        left = "" if final else "; then those of the chosen cost"
        note(f"solving the folds of {len(costs)} costs, {done} of {len(lots)} parts done{left}")
        of_targets.append([path for _ in jobs for path in next(solved)])
        if len(of_targets) == len(fits.sample.ys):
            scores.append(_scored(fits, of_targets))
            of_targets = []
            _log_folds(shown[len(scores) - 1], scores[-1].scores, perf_counter() - begun)
            begun = perf_counter()
    return scores


def _log_folds(name: str, scores: Array, seconds: float) -> None:
    """Log the best score of every fold under a cost, and the time of a fold."""
    F = len(scores)
    for f, best in enumerate(scores.max(axis=1)):
        line = "fold %d of %d: cost %s, best score %.4g, %.2f s"
        logger.info(line, f + 1, F, name, best, seconds / F)


def fold_tol(rows: int) -> float:
    """Return the gap, relative to the constant model's risk, that models inside folds may have."""
    return FOLD_TOL_OF_FEW if rows <= FEW_ROWS else FOLD_TOL


def _fold_problems(
    fits: FoldFits, k: int, cost: Cost, in_folds: list[Cost], largest: float
) -> list[Problem]:
    """Return the problem of the target vector k over all rows, and those inside the folds."""
    sample = fits.sample
    whole = sample.problem(sample.ys[k], sample.ball(cost, largest, fits.order))
    problems = [whole]
    for (train, _), learned in zip(fits.splits, in_folds, strict=True):
        ball = sample.ball(learned, largest, fits.order)
        if whole.finite or not cost.euclidean:
            # rows may be places for mass: those left out are none
            part = sample.rows(train)
            problems.append(part.problem(part.ys[k], ball))
        else:
            inside: Array = full(len(sample.weights), 0.0, sample.weights)
            part_weights = pick(sample.weights, train)
            inside[beside(train, inside)] = part_weights / part_weights.sum()
            problems.append(sample.problem(sample.ys[k], ball).weighted(inside))
    return problems


def _scored(fits: FoldFits, solved: list[list[list[Solution]]]) -> FoldScores:
    """Return what the solutions of one cost say, ``solved[k]`` those of the target vector k."""
    path, *folds = (list(paths) for paths in zip(*solved, strict=True))
    each = [_score_fold(fits, f, paths) for f, paths in enumerate(folds)]
    bad = [str(f) for f, fold in enumerate(each) if not np.isfinite(fold.scores).all()]
    if bad:
        raise ValueError(
            f"the score is not a number in fold(s) {', '.join(bad)}; use another scoring, or folds "
            "whose test rows it can score."
        )
    ball = fits.sample.ball(Norm(2), 0.0, 1)
    unsure = [UNSURE * fits.sample.problem(y, ball).constant[1] for y in fits.sample.ys]
    corrections = None
    if fits.unlabelled is not None:
        values = np.stack([fold.correction for fold in each])
        corrections = Corrections(len(fits.unlabelled), values)
    return FoldScores(
        scores=np.stack([fold.scores for fold in each]),
        rows=[test for _, test in fits.splits],
        z=[fold.z for fold in each],
        path=path,
        corrections=corrections,
        unsolved=sum(
            not s.converged and not s.gap <= enough
            for paths in folds
            for row, enough in zip(paths, unsure, strict=True)
            for s in row
        ),
    )


class _Scored(NamedTuple):
    """One fold: ``scores`` (m,), ``z`` (K, test, m) and ``correction`` (K, 2, m) or None."""

    scores: Array
    z: Array
    correction: Any


def _score_fold(fits: FoldFits, f: int, solved: Solved) -> _Scored:
    """Return what the solutions of a fold say on its test rows."""
    sample, loss, (_, test) = fits.sample, fits.sample.loss, fits.splits[f]
    held = pick(sample.X, test)
    weights = pick(sample.weights, test)
    weights = weights / weights.sum()
    coefs = np.stack([[s.coef for s in row] for row in solved])
    intercepts = np.array([[s.intercept for s in row] for row in solved])
    z = [model_scores(held, c, b) for c, b in zip(coefs, intercepts, strict=True)]
    m = coefs.shape[1]
    if fits.scorer is None:
        losses = []
        for y, of_target in zip(sample.ys, z, strict=True):
            tested = pick(y, test)[:, None]
            parts = (
                numpy(weights @ loss.value(of_target[:, columns], tested))
                for columns in blocks(m, len(test))
            )
            losses.append(np.concatenate(list(parts)))
        scores = -np.mean(losses, axis=0)
    else:
        scores = np.array(
            [fits.scorer(held, test, coefs[:, j], intercepts[:, j]) for j in range(m)]
        )
    corrected = None
    if fits.unlabelled is not None:
        corrected = np.stack(
            [
                correction(loss, model_scores(fits.unlabelled, c, b), own, weights)
                for own, c, b in zip(z, coefs, intercepts, strict=True)
            ]
        )
    return _Scored(scores, namespace(z[0]).stack(z), corrected)


def compared(sample: Sample, splits: list[Split]) -> tuple[Sample, list[Split]]:
    """Return the rows on which costs are compared with what is left of the folds among them.

    Of more than ``ALL_UP_TO`` rows it is a random part, always the same; all rows where such a part
    would lack a class in some fold.
    """
    n, d = sample.X.shape
    rows = np.flatnonzero(numpy(sample.weights) > 0)
    rarest = 1.0
    if sample.loss.task == "classification":
        counts = [np.unique(numpy(y)[rows], return_counts=True)[1].min() for y in sample.ys]
        rarest = float(min(counts) / len(rows))
    most = max(COMPARE_ON, PER_COLUMN * d, int(np.ceil(OF_A_CLASS / rarest)))
    if len(rows) <= max(ALL_UP_TO, most):
        return sample, splits
    rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    place = np.full(n, -1)
    place[rows] = np.arange(most)
    kept = [[place[part][place[part] >= 0] for part in pair] for pair in splits]
    fewer = [(train, test) for train, test in kept]
    part = sample.rows(rows)
    if not all(usable(part, train, test) for train, test in fewer):
        return sample, splits
    return part, fewer


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
    # where folds are made here, else ``cv`` says which rows they hold
    count = None
    if cv is None and groups is not None:
        # scikit-learn's default for None, which would pass over the groups
        count = DEFAULT_FOLDS
    elif isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        count = int(cv)
    if count is not None:
        names = np.unique(labels) if classes is None else classes
        splitters = _folds(labels, count, classify, seed, repeats, names, groups)
    else:
        splitters = [check_cv(_given(cv), labels, classifier=classify)]
    # a splitter is for rows that NumPy can read
    rows = sample.X if library(sample.X) is None else labels[:, None]
    # of many rows the numbers of those that train are as much as a few columns
    short = count is not None and library(sample.X) is None and len(labels) < 2**31
    kind = np.int32 if short else None
    found = [
        _pair(split, len(labels), kind)
        for splitter in splitters
        for split in splitter.split(rows, labels, groups)
    ]
    lacking = [i for i, pair in enumerate(found) if not usable(sample, *pair)]
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


def _given(cv: Any) -> Any:
    """Return a splitter as it is, and an iterable of splits as a list of pairs."""
    if isinstance(cv, str) or hasattr(cv, "split") or not isinstance(cv, Iterable):
        return cv
    listed = list(cv)
    for split in listed:
        if not (isinstance(split, tuple | list | np.ndarray) and len(split) == 2):
            raise ValueError(NO_PAIR.format(split))
    return listed


def _pair(split: Split, n: int, kind: Any) -> Split:
    """Return the rows that train and those that test; refuse what are no numbers of rows."""
    train, test = (np.asarray(part) for part in split)
    for rows in (train, test):
        if rows.dtype.kind not in "biu" or rows.ndim != 1:
            raise ValueError(NO_PAIR.format(split))
        if rows.dtype.kind != "b" and len(rows) and not -n <= rows.min() <= rows.max() < n:
            raise ValueError(
                f"a split of cv names row {int(rows.max())}, and X has {n} rows, 0 to {n - 1}: "
                "make the splits for the rows of this fit."
            )
    return train.astype(kind or train.dtype, copy=False), test.astype(
        kind or test.dtype, copy=False
    )


def codes(sample: Sample) -> Array:
    """Return one label per row (the class number for one-vs-rest), or the target."""
    ys = [numpy(y) for y in sample.ys]
    return ys[0] if len(ys) == 1 else np.stack(ys).argmax(axis=0)


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
    folds = at_most(k, least, what, "row")
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
        folds = at_most(folds, count, "the sample", "group")
        kind = StratifiedGroupKFold if stratify and count > folds else GroupKFold
        if count == folds:
            # each group is a fold: every repetition would be the same
            repeats = 1
    return [kind(folds, shuffle=True, random_state=(seed + r) % 2**31) for r in range(repeats)]


def at_most(k: int, least: int, what: str, unit: str) -> int:
    """Return the folds that ``least`` units allow, at least 2; warn if they are not k."""
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


def usable(sample: Sample, train: Array, test: Array) -> bool:
    """Whether a fold can train on some rows, of all classes, and test on others."""
    positive = pick(sample.weights, train) > 0
    if not positive.any() or not (pick(sample.weights, test) > 0).any():
        return False
    if sample.loss.task != "classification":
        return True
    distinct = namespace(sample.weights).unique_values
    return all(len(distinct(pick(y, train)[positive])) == len(distinct(y)) for y in sample.ys)


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
