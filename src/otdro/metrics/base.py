"""The contract of a metric: (X, y), X alone or pairs -> a positive definite matrix of trace d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from ..arrays import on_host
from ..costs import Mahalanobis
from ..costs.learned_matrix import check_shrinkage, shrink
from ..costs.low_rank import LowRank, identity
from ..design import WRITTEN_UP_TO, Design, as_dense, is_wide, mean
from ..fences import fenced_rows
from ..pairs import Pairs, from_labels, from_target, generator, resolve, target_kind
from ..wanted import (
    COUNT,
    SEED,
    TOLERANCE,
    TRUTH,
    Wanted,
    check_settings,
    is_finite,
    is_list_or_none,
    is_number,
)
from .leading import of_rows

Array = NDArray[Any]
#: What learners of the same rows share, by what it depends on besides the rows.
Made = dict[tuple[Any, ...], Any]

#: A scatter matrix gets a ridge that lifts its smallest eigenvalue to this share of the mean one.
RIDGE = 1e-3
#: Directions of the span of rows of many columns in which a full matrix is learned, at most: the
#: number of columns up to which one is learned in all directions.
SPAN = 256


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


#: What the parameters of learners take; their ranges are each learner's own.
WANTED = {
    "kind": Wanted(_is_text, "'each', 'nearest' or 'opposite'"),
    "task": Wanted(_is_text, "'auto', 'classification' or 'regression'"),
    "k": COUNT,
    "approximate": TRUTH,
    "within": TRUTH,
    "diagonal": TRUTH,
    "random_state": SEED,
    "max_iter": COUNT,
    "max_pairs": COUNT,
    "tol": TOLERANCE,
    "power": Wanted(is_finite, "a finite number"),
    "mu": Wanted(is_number, "a number > 0"),
    "noise": Wanted(is_number, "a number > 0"),
    "alpha": Wanted(is_number, "a number in (0, 1]"),
    "t": Wanted(is_number, "a number in [0, 1]"),
    "weights": Wanted(is_list_or_none, "a list of numbers >= 0 or None"),
}


class Metric(BaseEstimator):  # type: ignore[misc]
    """What every learner leaves: ``metric_``, symmetric positive definite, of trace n_features.

    Rows far out count as if they lay on a fence (``otdro.fences``), so that one bad cell cannot
    decide what is learned.
    """

    #: Whether the metric depends on labels, targets or pairs, and so may fit their noise.
    needs_labels: bool = True
    #: Whether all directions of rows of many columns teach it, not only those of their span.
    takes_wide: bool = False

    def fit_with(self, X: Any, y: Any, unlabelled: Any) -> Self:
        """Fit, with the help of rows without labels where they can help; here they cannot."""
        fitted: Self = self.fit(X, y)
        return fitted

    def fit_sharing(self, X: Any, y: Any, unlabelled: Any, task: str, made: Made | None) -> Self:
        """Fit, with rows without labels if there are any, to a target that may state its task.

        ``made`` keeps what learners of the same rows have made, for those that would make the same.
        """
        return self.fit(X, y) if unlabelled is None else self.fit_with(X, y, unlabelled)

    def shrunk(self, shrinkage: float) -> Array:
        """Return the metric that another ``shrinkage`` gives, without learning again."""
        raise NotImplementedError

    def cost(self) -> Mahalanobis:
        """Return the cost ``sqrt((u - x)' metric_ (u - x))``."""
        check_is_fitted(self, "metric_")
        return Mahalanobis(self.metric_)

    def _rows(self, X: Any) -> Array:
        """Return the rows to learn from, those far out on the fence; few columns are dense."""
        check_settings(self, WANTED)
        X = on_host(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        return fenced_rows(as_dense(X) if X.shape[1] <= WRITTEN_UP_TO else X)


@dataclass(eq=False, repr=False, kw_only=True)
class MetricLearner(Metric):
    r"""Learn :math:`\Lambda` so that must-link rows are near and cannot-link rows far.

    A subclass writes ``program(S_M, S_N)``, the solution as a function of the two scatter matrices
    (means of outer products of differences over must-link and cannot-link pairs), or ``solve`` if
    it needs the pairs one by one. Parameters of its own are fields of a dataclass, declared as
    those below, so that no constructor is written. Every learner ends in
    :math:`(1-\eta)\,\Lambda\, d/\mathrm{tr}\,\Lambda + \eta I`, :math:`\eta` the ``shrinkage``.

    Parameters
    ----------
    kind : {"each", "nearest", "opposite"}
        How pairs are made from labels, see ``otdro.pairs.from_labels``.
    k : int
        Neighbours of a row.
    shrinkage : float in [0, 1]
        Weight of the identity; values below 1e-6 count as 1e-6, so that ``metric_`` is positive
        definite.
    task : {"auto", "classification", "regression"}
        Whether y holds labels or a continuous target (pairs by closeness in y); ``"auto"`` decides
        by ``otdro.pairs.target_kind``.
    approximate : bool
        Search neighbours with pynndescent.
    random_state : int, RandomState or None
        For subsamples (more than 50,000 rows or 20,000 pairs); None is the seed 0.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features, n_features)
        Symmetric positive definite, trace n_features. Independent of the order of the rows.
        A ``LowRank`` of more than 2,000 features, or of more than 256 and more than there are rows:
        the program is then solved in the span of the rows, and every direction across it has the
        price of the shrinkage.
    solution_ : ndarray of shape (n_features, n_features)
        The solution of the program, before trace and shrinkage.
    """

    kind: str = "each"
    k: int = 5
    shrinkage: float = 0.1
    task: str = "auto"
    approximate: bool = False
    random_state: Any = None

    def fit(self, X: Any, y: Any = None, *, pairs: Any = None) -> Self:
        """Learn ``metric_`` from labels or targets y, or from given pairs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,), default=None
            Labels or targets; not needed if ``pairs`` are given.
        pairs : Pairs, two integer arrays of shape (m, 2), or a graph
            Must-link and cannot-link pairs, see ``otdro.pairs``; they replace those made from y.
        """
        X = self._rows(X)
        check_shrinkage(self.shrinkage)
        self.check_parameters()
        pairs = self._pairs(X, y, pairs)
        in_span = is_wide(X) and not self.takes_wide
        self.solution_ = self._solve_in_span(X, pairs) if in_span else self.solve(X, pairs)
        self.metric_ = self.shrunk(self.shrinkage)
        return self

    def check_parameters(self) -> None:
        """Refuse parameters of this learner that are out of range."""

    def solve(self, X: Array, pairs: Pairs) -> Array:
        """Return the solution of the program for these pairs."""
        return self.program(*scatters(X, pairs))

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return the solution as a function of the scatter matrices."""
        raise NotImplementedError

    def _solve_in_span(self, X: Any, pairs: Pairs) -> LowRank:
        """Return the solution over matrices on the span of the rows, zero across it.

        Differences of few rows of many columns span few directions V (d, r). With Z = X V the
        solution is V M V', M that of the rows Z; the leading ``SPAN`` directions are used.
        """
        n, d = X.shape
        center = mean(X, np.full(n, 1 / n))
        V = of_rows(Design(X, center=center), min(SPAN, n)).vectors
        if V.shape[1] == 0:
            return identity(d)
        size, U = eigh(self.solve(Design(X, center=center).scores(V), pairs))
        return LowRank(np.zeros(d), (V @ U) * np.sqrt(np.maximum(size, 0.0)))

    def shrunk(self, shrinkage: float) -> Array:
        """Return the metric that another ``shrinkage`` gives, without learning again."""
        check_is_fitted(self, "solution_")
        return shrink(self.solution_, shrinkage)

    def _pairs(self, X: Array, y: Any, pairs: Any) -> Pairs:
        if y is not None:
            y = column_or_1d(on_host(y))
            check_consistent_length(X, y)
        if pairs is not None:
            return resolve(pairs, X.shape[0], y)
        if y is None:
            raise ValueError(f"{type(self).__name__}.fit needs y or pairs.")
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        found = self.make_pairs(X, y)
        found.check(X.shape[0])
        return found

    def fit_sharing(self, X: Any, y: Any, unlabelled: Any, task: str, made: Made | None) -> Self:
        """Fit to the pairs of another learner where they are the same."""
        if self.task == "auto":
            self.set_params(task=task)
        if y is None or made is None:
            return self.fit(X, y)
        key = self.pair_settings()
        if key not in made:
            made[key] = self.make_pairs(X, y)
        return self.fit(X, y, pairs=made[key])

    def pair_settings(self) -> tuple[Any, ...]:
        """Return what the pairs of this learner depend on, besides the data."""
        return self.kind, self.k, self.task, self.approximate, self.random_state

    def make_pairs(self, X: Array, y: Array) -> Pairs:
        """Return the pairs that ``fit`` makes from labels or targets."""
        if target_kind(y, self.task) == "regression":
            return from_target(X, y, random_state=self.random_state)
        return from_labels(
            X,
            y,
            kind=self.kind,
            k=self.k,
            approximate=self.approximate,
            random_state=self.random_state,
        )

    def _differences(self, X: Array, pairs: Pairs, limit: int) -> tuple[Array, Array]:
        """Return x_i - x_j over at most ``limit`` must-link and cannot-link pairs."""
        rng = generator(self.random_state)
        must, cannot = pairs.must.sample(limit, rng), pairs.cannot.sample(limit, rng)
        return X[must[:, 0]] - X[must[:, 1]], X[cannot[:, 0]] - X[cannot[:, 1]]


def scatters(X: Array, pairs: Pairs) -> tuple[Array, Array]:
    """Return S_M and S_N, each with a ridge if it is (nearly) singular."""
    # differences of n rows span n - 1 directions at most
    few = X.shape[0] <= X.shape[1]
    return ridged(pairs.must.scatter(X), pairs.cannot.scatter(X), singular=few)


def ridged(S_M: Array, S_N: Array, singular: bool = False) -> tuple[Array, Array]:
    """Lift both spectra to RIDGE times their mean; a zero matrix takes the other's mean, or 1.

    Matrices that are known to be ``singular`` need no eigenvalues for that.
    """
    least_M, least_N = least_spreads(np.trace(S_M) / len(S_M), np.trace(S_N) / len(S_N))
    if singular:
        return S_M + least_M * np.eye(len(S_M)), S_N + least_N * np.eye(len(S_N))
    return lifted(S_M, least_M), lifted(S_N, least_N)


def least_spreads(mean_M: float, mean_N: float) -> tuple[float, float]:
    """Return RIDGE times the mean spreads; a zero one takes the other's, or 1."""
    return RIDGE * (mean_M or mean_N or 1.0), RIDGE * (mean_N or mean_M or 1.0)


def lifted(S: Array, least: float) -> Array:
    """Add the multiple of I, if any, that brings the smallest eigenvalue up to ``least``."""
    return S + max(0.0, least - float(np.linalg.eigvalsh(S)[0])) * np.eye(len(S))


def generalised_eigh(S_N: Array, S_M: Array) -> tuple[Array, Array]:
    """Return nu ascending and V with S_N V = S_M V diag(nu), V'S_M V = I."""
    nu, V = eigh(S_N, S_M)
    return nu, V
