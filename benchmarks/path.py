"""Time of cross-validated paths over scikit-learn's, as ratios in one run.

Run: OMP_NUM_THREADS=1 python benchmarks/path.py [repeats] [accuracy]. Both sides get the same folds
and one BLAS thread, runs are interleaved and times are of the processor, so that the ratios hold on
a busy machine; a ratio is of the least times. 40 x 30 are rows of the breast cancer set, columns
standardised; the others are Gaussian with labels from a logistic model.

Equal accuracy: ours reach a relative gap of ``accuracy`` (default: ``FOLD_TOL``, what is shipped)
inside folds, and scikit-learn's ``tol`` is the largest power of ten at which every model of its
grid is within it of the least objective, relative to log 2.
"""

from __future__ import annotations

import sys
import warnings
from time import process_time
from unittest import mock

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from otdro import DROClassifier, DRORegressor
from otdro.radius import folds as fold_settings

SHAPES = {(40, 30): 0.04, (2_000, 50): 0.5, (20_000, 100): 0.5}
SQUARED_BAR, SVD_BAR, ORDER_TWO_BAR, DEFAULT_BAR = 1.5, 8, 5, 0.8


def seconds(action) -> float:
    start = process_time()
    action()
    return process_time() - start


def compare(ours, theirs, repeats: int) -> tuple[float, float]:
    """Return the least time of each, runs interleaved after one of each to warm up."""
    ours()
    found = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
    return tuple(np.min(found, axis=0))


def labels(n: int, d: int):
    rng = np.random.default_rng(d)
    if n == 40:
        X, y = load_breast_cancer(return_X_y=True)
        rows = rng.permutation(len(y))[:n]
        return StandardScaler().fit_transform(X[rows]), np.where(y[rows] == 1, 1, -1)
    X = rng.normal(size=(n, d))
    beta = rng.normal(size=d) * 2 / np.sqrt(d)
    return X, np.where(rng.uniform(size=n) < expit(X @ beta), 1, -1)


def grid_of(tol: float, folds) -> LogisticRegressionCV:
    return LogisticRegressionCV(
        Cs=20, cv=folds, l1_ratios=(0,), scoring="neg_log_loss", tol=tol, max_iter=10_000,
        use_legacy_attributes=False,
    )  # fmt: skip


def excess(X, y, model: LogisticRegressionCV) -> float:
    """Return the largest excess of the grid's objectives on all rows, relative to log 2.

    Models are fitted one after another from C = 1e-4 up as the grid does.
    """

    def objective(m, C):
        z = m.decision_function(X)
        return np.logaddexp(0, -y * z).mean() + m.coef_[0] @ m.coef_[0] / (2 * C * len(y))

    rough = LogisticRegression(tol=model.tol, max_iter=10_000, warm_start=True)
    exact = LogisticRegression(tol=1e-10, max_iter=10_000, solver="newton-cholesky")
    worst = 0.0
    for C in np.logspace(-4, 4, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            rough.set_params(C=C).fit(X, y)
            exact.set_params(C=C).fit(X, y)
        worst = max(worst, objective(rough, C) - objective(exact, C))
    return worst / np.log(2)


def logistic(n: int, d: int, repeats: int) -> tuple[float, float, float]:
    X, y = labels(n, d)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        theirs = grid_of(tol, folds)
        if excess(X, y, theirs) <= fold_settings.FOLD_TOL:
            break
    ours = DROClassifier(cost="euclidean", rule="min", cv=folds)
    return *compare(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), repeats), tol


def squared(n: int, d: int, repeats: int) -> tuple[float, float, int]:
    """Return both times, and the decompositions of one fit of ours."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) / np.sqrt(d) + rng.normal(size=n)
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    top = DRORegressor(cost="euclidean", rule="min", cv=folds).fit(X, y).path_.deltas[0]
    deltas = top * np.geomspace(1, 1e-6, 100)
    ours = DRORegressor(cost="euclidean", rule="min", cv=folds, deltas=deltas)
    theirs = RidgeCV(np.geomspace(1e-3, 1e3, 100) * n, cv=folds)
    return *compare(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), repeats), counted(ours, X, y)


def counted(model, X, y) -> int:
    """Return how often a fit calls ``svd`` or ``eigh`` on a matrix of more than 10 columns."""
    calls = 0

    def counting(function):
        def wrapped(A, *args, **kwargs):
            nonlocal calls
            calls += A.shape[-1] > 10
            return function(A, *args, **kwargs)

        return wrapped

    names = ("svd", "eigh", "eigvalsh")
    patches = [mock.patch.object(np.linalg, s, counting(getattr(np.linalg, s))) for s in names]
    for patch in patches:
        patch.start()
    try:
        model.fit(X, y)
    finally:
        for patch in patches:
            patch.stop()
    return calls


def order_two(repeats: int) -> tuple[float, float]:
    """Return the times of order 2 and of order 1, with folds, on the rows of 40 x 30."""
    X, y = labels(40, 30)
    two, one = (DROClassifier(cost="euclidean", order=order) for order in (2, 1))
    return compare(lambda: two.fit(X, y), lambda: one.fit(X, y), repeats)


def default(repeats: int) -> tuple[float, float]:
    """Return the times of a default fit, three costs and repeated folds, and of one grid."""
    X, y = labels(40, 30)
    theirs = grid_of(1e-4, 5)
    return compare(lambda: DROClassifier().fit(X, y), lambda: theirs.fit(X, y), repeats)


def main(repeats: str = "3", accuracy: str | None = None) -> None:
    if accuracy is not None:
        fold_settings.FOLD_TOL = float(accuracy)
    print(f"relative accuracy inside folds {fold_settings.FOLD_TOL:g}\n")
    print("| problem | ours, s | scikit-learn, s | ratio | bar |")
    print("|---|---|---|---|---|")
    with threadpool_limits(1):
        for (n, d), bar in SHAPES.items():
            ours, theirs, tol = logistic(n, d, int(repeats))
            what = f"logistic, {n} x {d}, 20 deltas, 5 folds (their tol {tol:g})"
            print(f"| {what} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.3f} | {bar} |")
        ours, theirs = order_two(int(repeats))
        what = "order 2 over order 1, 40 x 30, folds"
        print(f"| {what} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.1f} | {ORDER_TWO_BAR} |")
        ours, theirs = default(int(repeats))
        what = "default fit over LogisticRegressionCV(Cs=20, cv=5), 40 x 30"
        print(f"| {what} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {DEFAULT_BAR} |")
        ours, theirs, count = squared(5_000, 200, int(repeats))
        what = "squared, 5000 x 200, 100 deltas, 5 folds"
        print(f"| {what} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.3f} | {SQUARED_BAR} |")
        print(f"| its decompositions | {count} | | | {SVD_BAR} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    main(*sys.argv[1:])
