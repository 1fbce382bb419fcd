"""The folds: which rows train and test, the models fitted inside them, and their scores.

Whatever is learned, the cost too, is learned inside the fold. A fold is the problem of all rows in
which the rows left out have weight 0, so that a solver can share passes between the path over all
rows and its folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

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
from ..pairs import PER_COLUMN, generator
from ..problem import Sample, Solution
from ..progress import note
from ..solvers import Solver
from .grid import OutOfFold, Solved

Array = NDArray[Any]
Split = tuple[Array, Array]
#: The score of a model (coef, intercept) on rows, from these and their numbers.
Scorer = Callable[[Any, Array, Array, Array], float]

#: The gap, relative to the constant model's risk, to which models inside folds are solved at least.
FOLD_TOL = 1e-4
#: The same for few rows, where it is cheap: at 1e-4 the chosen delta moved by up to 31% on samples
#: of 40 to 150 rows of breast cancer, at 1e-5 by less than 1%.
FOLD_TOL_OF_FEW = 1e-5
#: Rows up to which that holds.
FEW_ROWS = 500
#: A gap above this share of the constant model's risk may change what a fold says about its delta.
UNSURE = 1e-3
#: Rows up to which folds made from an int are repeated: their noise decides there.
REPEAT_UP_TO = 120
#: How often they are repeated.
REPEATS = 3
#: Rows on which costs are compared at least where rows are more.
COMPARE_ON = 1_000
#: Rows of the rarest class on which costs are compared at least.
OF_A_CLASS = 100


@dataclass(frozen=True, eq=False)
class FoldScores:
    """The folds of one cost: ``scores`` (F, m), larger is better, and what they come from.

    Of each fold ``rows`` are those it tested and ``z`` (K, rows, m) their model scores. ``path`` is
    the path over all rows, and ``unsolved`` the number of fits inside folds that did not reach
    their gap.
    """

    scores: Array
    rows: list[Array]
    z: list[Array]
    path: Solved | None = None
    unsolved: int = 0

    def entries(self, k: int, weights: Array) -> tuple[Array, Array, Array]:
        """Return tested rows (E,), their scores (E, m) for target k, and their shares (E,) of 1.

        A row that several folds tested shares its weight among its entries; one that no fold
        tested has none.
        """
        rows, times = self.tested
        share = weights[rows] / times
        z = namespace(weights).concat([z[k] for z in self.z])
        return rows, z, share / share.sum()

    @cached_property
    def tested(self) -> tuple[Array, Array]:
        """The tested rows, fold after fold (E,), and how often each of them is tested."""
        rows, z = np.concatenate(self.rows), self.z[0]
        return beside(rows, z), beside(np.bincount(rows)[rows], z)

    def out_of_fold(self, place: int) -> OutOfFold:
        """Return the scores of tested rows at one delta."""
        scores = [numpy(z[:, :, place]) for z in self.z]
        # of K targets (K, rows), of a softmax model (1, rows, K)
        each = [part[0] if part.ndim == 3 else part.T for part in scores]
        return OutOfFold(np.concatenate(self.rows), np.concatenate(each))

    @property
    def mean(self) -> Array:
        """The mean score over folds."""
        return self.scores.mean(axis=0)

    @property
    def se(self) -> Array:
        """Its standard error."""
        F = len(self.scores)
        return self.scores.std(axis=0, ddof=1) / np.sqrt(F) if F > 1 else np.zeros_like(self.mean)

    def paired_error(self, place: int, other: FoldScores, other_place: int) -> float:
        """Return the standard error of the mean difference to other scores on the same folds.

        Folds of a repetition say nothing new: F of them in r repetitions count as F/r.
        """
        difference = self.scores[:, place] - other.scores[:, other_place]
        F = len(difference)
        if F == 1:
            return float(np.inf)
        rows = np.concatenate(self.rows)
        repeats = len(rows) / len(np.unique(rows))
        return float(difference.std(ddof=1) * np.sqrt(repeats / F))


def cross_validate(
    sample: Sample,
    order: int,
    solver: Solver,
    splits: list[Split],
    costs: list[Cost],
    learned: list[list[Cost]],
    deltas: list[Array],
    scorer: Scorer | None = None,
    *,
    n_jobs: int | None = None,
    final: bool = False,
) -> Iterator[FoldScores]:
    """Yield what the folds say of each cost along its deltas, and the path over all rows.

    ``learned[f][c]`` is cost c learned without fold f. Without a ``scorer`` the score is minus the
    loss. The folds start from the path; a ``final`` one has the accuracy of the fit.
    """
    enough = FOLD_TOL_OF_FEW if len(sample.weights) <= FEW_ROWS else FOLD_TOL
    tols = [0.0 if final else enough] + [enough] * len(splits)
    lots: list[list[Any]] = []
    for c, grid in enumerate(deltas):
        shared = costs[c].euclidean and sample.support is None
        parts = [sample, *(_training(sample, train, shared) for train, _ in splits)]
        of_parts = [costs[c], *(of_fold[c] for of_fold in learned)]
        for k in range(len(sample.ys)):
            problems = [
                part.problem(part.ys[k], part.ball(cost, grid[0], order))
                for part, cost in zip(parts, of_parts, strict=True)
            ]
            # no method shares work between folds under other norms
            size = len(parts) if costs[c].euclidean else 1
            starts = range(0, len(parts), size)
            lots.append([(problems[i : i + size], grid, tols[i : i + size]) for i in starts])
    # the lots do not depend on n_jobs, so that the results do not
    solved = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(solver.solve)(problems, grid, tols=tols)
        for jobs in lots
        for problems, grid, tols in jobs
    )
    of_targets = []
    for done, jobs in enumerate(lots):
        left = "" if final else "; then those of the chosen cost"
        note(f"solving the folds of {len(costs)} costs, {done} of {len(lots)} parts done{left}")
        of_targets.append([path for _ in jobs for path in next(solved)])
        if len(of_targets) == len(sample.ys):
            yield _scored(sample, splits, scorer, of_targets)
            of_targets = []


def _training(sample: Sample, train: Array, shared: bool) -> Sample:
    """Return the rows that train: all rows, those left out with weight 0, where work is shared.

    Where rows are places for mass, those left out are none.
    """
    if not shared:
        return sample.rows(train)
    weights: Array = full(len(sample.weights), 0.0, sample.weights)
    inside = pick(sample.weights, train)
    weights[beside(train, weights)] = inside / inside.sum()
    return replace(sample, weights=weights)


def _scored(
    sample: Sample, splits: list[Split], scorer: Scorer | None, solved: list[list[list[Solution]]]
) -> FoldScores:
    """Return what the solutions of one cost say, ``solved[k]`` those of the target vector k."""
    path, *folds = (list(paths) for paths in zip(*solved, strict=True))
    ball = sample.ball(Norm(2), 0.0, 1)
    unsure = [UNSURE * sample.problem(y, ball).constant[1] for y in sample.ys]
    scores, of_tested, unsolved = [], [], 0
    for (_, test), paths in zip(splits, folds, strict=True):
        tested = sample.rows(test)
        coefs = np.stack([[s.coef for s in row] for row in paths])
        intercepts = np.array([[s.intercept for s in row] for row in paths])
        z = [model_scores(tested.X, c, b) for c, b in zip(coefs, intercepts, strict=True)]
        of_tested.append(namespace(z[0]).stack(z))
        if scorer is None:
            pairs = zip(tested.ys, z, strict=True)
            losses = [tested.weights @ sample.loss.value(part, y[:, None]) for y, part in pairs]
            scores.append(-np.mean([numpy(each) for each in losses], axis=0))
        else:
            models = zip(np.swapaxes(coefs, 0, 1), np.swapaxes(intercepts, 0, 1), strict=True)
            scores.append(np.array([scorer(tested.X, test, *model) for model in models]))
        for row, enough in zip(paths, unsure, strict=True):
            unsolved += sum(not s.converged and not s.gap <= enough for s in row)
    bad = [str(f) for f, of_fold in enumerate(scores) if not np.isfinite(of_fold).all()]
    if bad:
        raise ValueError(
            f"the score is not a number in fold(s) {', '.join(bad)}; use another scoring, or folds "
            "whose test rows it can score."
        )
    return FoldScores(np.stack(scores), [test for _, test in splits], of_tested, path, unsolved)


def compared(sample: Sample, splits: list[Split]) -> tuple[Sample, list[Split]]:
    """Return the rows on which costs are compared with what is left of the folds among them.

    Of rows more than twice as many as are enough it is a random part, always the same; all rows
    where such a part would lack a class in some fold.
    """
    n, d = sample.X.shape
    rows = np.flatnonzero(numpy(sample.weights) > 0)
    rarest = 1.0
    if sample.loss.task == "classification":
        counts = [np.unique(numpy(y)[rows], return_counts=True)[1].min() for y in sample.ys]
        rarest = float(min(counts) / len(rows))
    most = max(COMPARE_ON, PER_COLUMN * d, int(np.ceil(OF_A_CLASS / rarest)))
    if len(rows) <= 2 * most:
        return sample, splits
    rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    place = np.full(n, -1)
    place[rows] = np.arange(most)
    fewer = [
        (place[train][place[train] >= 0], place[test][place[test] >= 0]) for train, test in splits
    ]
    part = sample.rows(rows)
    if not all(usable(part, train, test) for train, test in fewer):
        return sample, splits
    return part, fewer


def fold_seed(random_state: Any) -> int:
    """Return the seed of the folds; that of None is fixed, so that a fit repeats."""
    return 0 if random_state is None else int(generator(random_state).randint(2**31 - 1))


def splits(
    sample: Sample, cv: Any, groups: Any, seed: int, repeats: int = 1, classes: Any = None
) -> list[Split]:
    """Return (train, test) rows; an int makes shuffled folds, stratified by label, repeated.

    With ``groups`` such folds leave whole groups out. A splitter or an iterable of splits is used
    as it is. ``classes`` are the names of the labels. Splits that cannot train are left out; none
    is left only where the folds were made here.
    """
    ys = [numpy(y) for y in sample.ys]
    # of one-vs-rest the number of the class
    labels = ys[0] if len(ys) == 1 else np.stack(ys).argmax(axis=0)
    classify = sample.loss.task == "classification"
    # a splitter is for rows that NumPy can read
    rows = sample.X if library(sample.X) is None else labels[:, None]
    # scikit-learn's splitter for None would pass over the groups
    made_here = isinstance(cv, int | np.integer) or (cv is None and groups is not None)
    made: Iterable[Any]
    if made_here:
        k = check_cv().n_splits if cv is None else int(cv)
        names = np.unique(labels) if classes is None else classes
        splitters = _folds(labels, k, classify, seed, repeats, names, groups)
        made = (pair for splitter in splitters for pair in splitter.split(rows, labels, groups))
    elif isinstance(cv, Iterable) and not hasattr(cv, "split"):
        made = cv
    else:
        made = check_cv(cv, labels, classifier=classify).split(rows, labels, groups)
    pairs = [_pair(pair, len(labels)) for pair in made]
    lacking = [i for i, pair in enumerate(pairs) if not usable(sample, *pair)]
    if len(lacking) == len(pairs):
        if made_here and groups is None:
            return []
        raise ValueError(
            f"none of the {len(pairs)} splits of cv has training rows of positive weight from "
            f"{'all' if sample.loss.outputs > 1 else 'two'} classes; use other folds or groups, or "
            "a number as delta."
        )
    if lacking:
        warnings.warn(
            f"{len(lacking)} of {len(pairs)} splits (number {', '.join(map(str, lacking))}) lack a "
            "class or test rows of positive weight and are left out.",
            UserWarning,
            stacklevel=2,
        )
    return [pair for i, pair in enumerate(pairs) if i not in lacking]


def _pair(split: Any, n: int) -> Split:
    """Return the rows that train and those that test; refuse what are no numbers of rows."""
    parts = split if isinstance(split, tuple | list | np.ndarray) else ()
    parts = [np.asarray(part) for part in parts]
    if len(parts) != 2 or any(rows.dtype.kind not in "biu" or rows.ndim != 1 for rows in parts):
        raise ValueError(
            "every split of cv must be a pair (train, test) of arrays of row numbers, got "
            f"{split!r}."
        )
    for rows in parts:
        if rows.dtype.kind != "b" and len(rows) and not -n <= rows.min() <= rows.max() < n:
            raise ValueError(
                f"a split of cv names row {int(rows.max())}, and X has {n} rows, 0 to {n - 1}: "
                "make the splits for the rows of this fit."
            )
    return parts[0], parts[1]


def _folds(
    labels: Array, k: int, classify: bool, seed: int, repeats: int, names: Any, groups: Any
) -> list[Any]:
    """Return the splitters of k folds, one per repetition, of whole groups if there are any."""
    if k < 2:
        raise ValueError(f"cv must be at least 2 folds, got cv={k}.")

    def at_most(folds: int, least: int, what: str, unit: str) -> int:
        """Return the folds that ``least`` units allow, at least 2; warn if they are fewer."""
        if least >= folds:
            return folds
        warnings.warn(
            f"{what} has {least} {unit}{'' if least == 1 else 's'}, fewer than cv={folds} folds: "
            f"using {max(2, least)}.",
            UserWarning,
            stacklevel=4,
        )
        return max(2, least)

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


def usable(sample: Sample, train: Array, test: Array) -> bool:
    """Whether a fold can train on some rows, of all classes, and test on others."""
    positive = pick(sample.weights, train) > 0
    if not positive.any() or not (pick(sample.weights, test) > 0).any():
        return False
    if sample.loss.task != "classification":
        return True
    distinct = namespace(sample.weights).unique_values
    return all(len(distinct(pick(y, train)[positive])) == len(distinct(y)) for y in sample.ys)


def model_scorer(
    estimator: Any, loss: Loss, y: Array, classes: Array | None, sample_weight: Array | None
) -> Scorer:
    """Return the scorer of an estimator as one of coefficients.

    The function scores one model on rows X, numbered ``rows`` in the training data.
    ``sample_weight`` (None: no weights) goes to a scorer that takes one; of one that does not,
    a warning says so.
    """
    scoring = estimator.scoring
    model, score = clone(estimator), check_scoring(estimator, scoring=scoring)
    # of a scorer that scikit-learn made, its metric takes the weights
    taken = signature(getattr(score, "_score_func", score)).parameters.values()
    weighs = any(p.name == "sample_weight" or p.kind is Parameter.VAR_KEYWORD for p in taken)
    if sample_weight is not None and not weighs:
        text = f"scoring={scoring!r} takes no sample_weight: the rows of a fold count alike in its"
        warnings.warn(f"{text} score.", UserWarning, stacklevel=4)
        sample_weight = None

    def scored(X: Any, rows: Array, coef: Array, intercept: Array) -> float:
        model.loss_ = loss
        model.n_features_in_ = X.shape[1]
        model.coef_, model.intercept_ = coef, intercept
        if classes is None or loss.outputs > 1:
            model.coef_, model.intercept_ = coef[0], intercept[0]
        if classes is not None:
            model.classes_ = classes
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight[rows]}
        try:
            return float(score(model, X, y[rows], **weighted))
        except AttributeError as error:
            raise ValueError(
                f"scoring={scoring!r} needs what the loss {model.loss!r} lacks: {error}"
            ) from None

    return scored
