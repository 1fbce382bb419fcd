"""Time of every loss with folds beside scikit-learn's: 20 penalties, 5 folds, one thread.

    OMP_NUM_THREADS=1 python benchmarks/corners.py [repeats]

Processor seconds, the least of the repeats. The bar is three times the peer's time or one second,
whichever is larger; for default fits of many columns two times the peer's, for digits three times.
"""

from __future__ import annotations

import sys
import warnings
from time import process_time

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import HuberRegressor, QuantileRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from otdro import DROClassifier, DRORegressor
from otdro.comparison import logistic_cv

SHAPES = ((40, 30), (200, 20), (60, 300), (60, 600), (1_000, 50))
STRENGTHS = np.logspace(-4, 4, 20)


def made(n, d):
    """Return rows of which five columns matter, labels and targets."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d))
    z = X[:, :5] @ np.array([1.5, -1.0, 0.7, 0.5, -0.3]) + rng.logistic(size=n)
    return X, np.where(z > 0, 1, -1), z


def searched(model, name):
    """Return the peer with 20 penalties and 5 folds."""
    return GridSearchCV(model, {name: STRENGTHS})


def l2():
    """Return the tuned L2 model."""
    return logistic_cv(0, Cs=20, cv=5, scoring="neg_log_loss", max_iter=1_000)


def l1():
    """Return the tuned L1 model."""
    return logistic_cv(1, Cs=20, cv=5, scoring="neg_log_loss", solver="liblinear")


#: Our model, its peer, whether it takes labels.
PAIRS = {
    "default": (lambda: DROClassifier(), l2, True),
    "linf": (lambda: DROClassifier(cost="linf"), l1, True),
    "hinge": (
        lambda: DROClassifier("hinge"),
        lambda: searched(LinearSVC(loss="hinge", max_iter=10_000), "C"),
        True,
    ),
    "squared hinge": (
        lambda: DROClassifier("squared_hinge"),
        lambda: searched(LinearSVC(), "C"),
        True,
    ),
    "squared": (lambda: DRORegressor(), lambda: RidgeCV(STRENGTHS, cv=5), False),
    "huber": (
        lambda: DRORegressor("huber"),
        lambda: searched(HuberRegressor(max_iter=1_000), "alpha"),
        False,
    ),
    "absolute": (
        lambda: DRORegressor("absolute"),
        lambda: searched(QuantileRegressor(), "alpha"),
        False,
    ),
    "quantile": (
        lambda: DRORegressor("quantile"),
        lambda: searched(QuantileRegressor(), "alpha"),
        False,
    ),
}


def seconds(model, X, y):
    """Return the processor seconds of a fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = process_time()
        model.fit(X, y)
        return process_time() - start


def line(name, ours, peer, X, y, repeats, share, floor):
    """Print the times of a case and whether the bar is met."""
    times = [(seconds(ours(), X, y), seconds(peer(), X, y)) for _ in range(repeats)]
    mine, theirs = (min(column) for column in zip(*times, strict=True))
    met = "met" if mine <= max(share * theirs, floor) else "MISSED"
    print(f"{name:28} {mine:7.2f} s {theirs:7.2f} s {mine / theirs:6.1f}  {met}", flush=True)


def main():
    """Print a line for every loss and shape."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'':28} {'otdro':>9} {'peer':>9}  ratio")
    for name, (ours, peer, labelled) in PAIRS.items():
        for n, d in SHAPES:
            X, labels, targets = made(n, d)
            y = labels if labelled else targets
            line(f"{name} {n} x {d}", ours, peer, X, y, repeats, 3, 1.0)
    for n, d in ((1_000, 50), (150, 300), (150, 1_000)):
        X, labels, _ = made(n, d)
        line(f"default fit {n} x {d}", DROClassifier, l2, X, labels, repeats, 2, 0.0)
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    line("digits, 600", DROClassifier, l2, X[:600], y[:600], repeats, 3, 0.0)
    line("digits, 1,797", DROClassifier, l2, X, y, repeats, 3, 0.0)
    X, y = load_diabetes(return_X_y=True)
    line("diabetes, huber", *PAIRS["huber"][:2], X, y, repeats, 3, 1.0)
    line("diabetes, 50 rows", *PAIRS["squared"][:2], X[:50], y[:50], repeats, 3, 1.0)


if __name__ == "__main__":
    main()
