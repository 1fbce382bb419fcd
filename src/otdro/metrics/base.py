"""The contract of a metric: (X, y), X alone or pairs -> a positive definite matrix of trace d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from ..arrays import on_host
from ..costs import Mahalanobis
from ..costs.mahalanobis import LowRank, check_shrinkage, fitted_matrix, identity, seeded, shrink
from ..design import FEW_ROWS_UP_TO, WRITTEN_UP_TO, Design, as_dense, fenced_rows, is_wide, mean
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

Array = NDArray[Any]

#: A scatter matrix gets a ridge that lifts its smallest eigenvalue to this share of the mean one.
RIDGE = 1e-3
#: Leading directions of the covariance that are kept where it has no written form.
RANK = 50

#: What the parameters of learners take.
WANTED = {
    "kind": Wanted(lambda value: isinstance(value, str), "'each', 'nearest' or 'opposite'"),
    "task": Wanted(
        lambda value: isinstance(value, str), "'auto', 'classification' or 'regression'"
    ),
    "k": COUNT,
    "within": TRUTH,
    "random_state": SEED,
    "max_iter": COUNT,
    "max_pairs": COUNT,
    "tol": TOLERANCE,
    "power": Wanted(is_finite, "a finite number"),
    "mu": Wanted(lambda value: is_number(value) and value > 0, "a number > 0"),
    "noise": Wanted(lambda value: is_finite(value) and value > 0, "a finite number > 0"),
    "alpha": Wanted(lambda value: is_number(value) and 0 < value <= 1, "a number in (0, 1]"),
    "t": Wanted(lambda value: is_number(value) and 0 <= value <= 1, "a number in [0, 1]"),
    "weights": Wanted(is_list_or_none, "a list of numbers >= 0 or None"),
}


class Metric(BaseEstimator):  # type: ignore[misc]
    """What every learner leaves: ``metric_``, symmetric positive definite, of trace n_features.

    Rows far out count as if they lay on a fence (``otdro.design``), so that one bad cell cannot
    decide what is learned.
    """

    #: Whether all directions of rows of many columns teach it, not only those of their span.
    takes_wide: bool = False

    def fit_with(self, X: Any, y: Any, unlabelled: Any, task: str) -> Self:
        """Fit to a target that may state its task, with rows without labels where they can help."""
        if self.get_params(deep=False).get("task") == "auto":
            self.set_params(task=task)
        fitted: Self = self.fit(X, y)
        return fitted

    def shrunk(self, shrinkage: float) -> Any:
        """Return the metric that another ``shrinkage`` gives, without learning again."""
        check_is_fitted(self, "solution_")
        return shrink(self.solution_, shrinkage)

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

    def _labels(self, X: Any, y: Any, task: str) -> tuple[Array, str]:
        """Return one label or target per row, and which of the two they are."""
        y = column_or_1d(on_host(y))
        check_consistent_length(X, y)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        return y, target_kind(y, task)


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
        pairs = self._pairs(X, y, pairs)
        in_span = is_wide(X) and not self.takes_wide
        self.solution_ = self._solve_in_span(X, pairs) if in_span else self.solve(X, pairs)
        self.metric_ = self.shrunk(self.shrinkage)
        return self

    def solve(self, X: Array, pairs: Pairs) -> Array:
        """Return the solution of the program for these pairs."""
        return self.program(*scatters(X, pairs))

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return the solution as a function of the scatter matrices."""
        raise NotImplementedError

    def _solve_in_span(self, X: Any, pairs: Pairs) -> LowRank:
        """Return the solution over matrices on the span of the rows, zero across it.

        Differences of few rows of many columns span few directions V (d, r). With Z = X V the
        solution is V M V', M that of the rows Z; of V as many directions are used as there may be
        columns with a full matrix.
        """
        n, d = X.shape
        center = mean(X, np.full(n, 1 / n))
        V = of_rows(Design(X, center=center), min(FEW_ROWS_UP_TO, n)).vectors
        if V.shape[1] == 0:
            return identity(d)
        size, U = eigh(self.solve(Design(X, center=center).scores(V), pairs))
        return LowRank(np.zeros(d), (V @ U) * np.sqrt(np.maximum(size, 0.0)))

    def _pairs(self, X: Array, y: Any, pairs: Any) -> Pairs:
        if pairs is not None:
            labels = None if y is None else self._labels(X, y, "classification")[0]
            return resolve(pairs, X.shape[0], labels)
        if y is None:
            raise ValueError(f"{type(self).__name__}.fit needs y or pairs.")
        y, kind = self._labels(X, y, self.task)
        seed = {"random_state": self.random_state}
        if kind == "regression":
            return resolve(from_target(X, y, **seed), X.shape[0])
        return resolve(from_labels(X, y, kind=self.kind, k=self.k, **seed), X.shape[0])

    def _differences(self, X: Array, pairs: Pairs, limit: int) -> tuple[Array, Array]:
        """Return x_i - x_j over at most ``limit`` must-link and cannot-link pairs."""
        rng = generator(self.random_state)
        must, cannot = pairs.must.sample(limit, rng), pairs.cannot.sample(limit, rng)
        return X[must[:, 0]] - X[must[:, 1]], X[cannot[:, 0]] - X[cannot[:, 1]]


def scatters(X: Array, pairs: Pairs) -> tuple[Array, Array]:
    """Return S_M and S_N, each with its smallest eigenvalue lifted to ``RIDGE`` times their mean.

    A zero matrix takes the mean of the other, or 1.
    """
    S_M, S_N = pairs.must.scatter(X), pairs.cannot.scatter(X)
    n, d = X.shape

    def lifted(S: Array, least: float) -> Array:
        # differences of n rows span n - 1 directions at most
        smallest = 0.0 if n <= d else float(np.linalg.eigvalsh(S)[0])
        return S + max(0.0, least - smallest) * np.eye(d)

    least_M, least_N = least_spreads(np.trace(S_M) / d, np.trace(S_N) / d)
    return lifted(S_M, least_M), lifted(S_N, least_N)


def least_spreads(mean_M: float, mean_N: float) -> tuple[float, float]:
    """Return RIDGE times the mean spreads; a zero one takes the other's, or 1."""
    return RIDGE * (mean_M or mean_N or 1.0), RIDGE * (mean_N or mean_M or 1.0)


def learn(
    learner: Any,
    X: Any,
    y: Any,
    *,
    shrinkage: float | None = None,
    task: str = "auto",
    unlabelled: Any = None,
) -> Mahalanobis:
    """Fit a clone of any metric learner and return its cost, trace d.

    Parameters
    ----------
    learner : object
        One of ``otdro.metrics``, or any object with ``fit(X, y)`` that leaves ``components_``
        (M = components_' components_) or has ``get_mahalanobis_matrix()``.
    X, y : arrays
    shrinkage : float in [0, 1] or None
        Weight of the identity; None keeps the learner's own (0 for those of other libraries).
    task : {"auto", "classification", "regression"}
        Set on learners of otdro whose own ``task`` is ``"auto"``.
    unlabelled : array of shape (n_rows, n_features) or None
        More rows, for learners that need no labels.
    """
    taught = fitted(learner, X, y, task=task, unlabelled=unlabelled)
    return Mahalanobis(shrunk(taught, shrinkage))


def shrunk(learner: Any, shrinkage: float | None = None) -> Array:
    """Return the matrix of a fitted learner, trace d, at a shrinkage; None is its own."""
    if not isinstance(learner, Metric):
        return shrink(fitted_matrix(learner), shrinkage or 0.0)
    own = getattr(learner, "shrinkage", None)
    matrix: Array = learner.metric_
    return matrix if shrinkage in (None, own) else learner.shrunk(float(shrinkage or 0.0))


def fitted(learner: Any, X: Any, y: Any, *, task: str = "auto", unlabelled: Any = None) -> Any:
    """Return a fitted clone of a learner; arguments as in ``learn``."""
    learner = seeded(learner)
    if not isinstance(learner, Metric):
        return learner.fit(X, y)
    return learner.fit_with(X, y, unlabelled, task)


@dataclass(frozen=True, eq=False)
class Leading:
    r"""The matrix :math:`V\mathrm{diag}(\lambda)V' + \bar\lambda(I - VV')`.

    ``vectors`` V (d, k) are orthonormal, ``spread`` lambda (k,) is the variance along them and
    ``rest`` the mean variance along all directions across them.
    """

    vectors: Array
    spread: Array
    rest: float

    def power(self, p: float, shrinkage: float) -> LowRank:
        """Return ((1 - s) C d/tr C + s I)^p scaled to trace d, p > 0; I where C = 0."""
        price, even = self._prices(p, shrinkage)
        rise = np.sqrt(np.maximum(price - even, 0.0))
        return LowRank(np.full(len(self.vectors), even), self.vectors * rise)

    def written_power(self, p: float, shrinkage: float) -> Array:
        """Return the same written out, for any p."""
        V, (price, even) = self.vectors, self._prices(p, shrinkage)
        d, k = V.shape
        Lam: Array = (V * price) @ V.T if k == d else even * np.eye(d) + (V * (price - even)) @ V.T
        return (Lam + Lam.T) / 2

    def _prices(self, p: float, shrinkage: float) -> tuple[Array, float]:
        """Return the eigenvalues of the power along the vectors, and the one across them."""
        d, k = self.vectors.shape
        trace = self.spread.sum() + (d - k) * self.rest
        if trace == 0:
            return np.ones(k), 1.0
        price = ((1 - shrinkage) * self.spread * (d / trace) + shrinkage) ** p
        even = float(((1 - shrinkage) * self.rest * (d / trace) + shrinkage) ** p)
        unit = d / (price.sum() + (d - k) * even)
        return unit * price, unit * even


def of_rows(design: Design, rank: int) -> Leading:
    """Return at most ``rank`` leading directions of rows z, those of E[zz'].

    They come from the n x n kernel ZZ' = U s^2 U': V = Z'U/s.
    """
    n, d = design.n, design.d
    K = design.kernel()
    total = float(np.trace(K))
    if rank < n:
        # from a fixed direction of the columns, so that the order of the rows decides nothing
        start = design.scores(np.random.default_rng(0).standard_normal(d))
        square, U = eigsh(K, rank, v0=start)
    else:
        square, U = eigh(K, check_finite=False)
    some = square > n * np.finfo(float).eps * max(total, np.finfo(float).tiny)
    square, U = square[some], U[:, some]
    if design.center is not None:
        # of rows of mean zero 1'U = 0: made so to rounding, a centre drops out of Z'U
        U = U - U.mean(axis=0)
    vectors = design.uncentred.adjoint(U / np.sqrt(square))
    rest = max(total - float(square.sum()), 0.0) / (d - len(square))
    # what rounding leaves of directions that all rows lack
    rest = rest if rest > np.finfo(float).eps * total else 0.0
    return Leading(vectors, square / n, rest / n)
