"""Time of each metric learner, neighbours included, over scikit-learn's own neighbour search.

Run: python benchmarks/metrics.py [n] [d] [k]. All times are medians of interleaved runs in one
process, so that the ratios hold on a busy machine. The bars at n = 5000, d = 100, k = 5 are 2 for
the closed forms (Eigen, LogDet, GeometricMean, Diagonal) and 10 for Xing.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.neighbors import NearestNeighbors

from otdro.metrics import Diagonal, Eigen, GeometricMean, LogDet, Robust, Xing

REPEATS = 5


def timed(action) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


def main(n: int = 5000, d: int = 100, k: int = 5) -> None:
    rng = np.random.RandomState(0)
    X = rng.randn(n, d)
    y = X @ rng.randn(d) + 3 * rng.randn(n) > 0
    learners = {
        "Eigen": Eigen(k=k),
        "LogDet": LogDet(k=k),
        "GeometricMean": GeometricMean(k=k),
        "Diagonal": Diagonal(k=k),
        "Xing": Xing(k=k, random_state=0),
        "Robust": Robust(k=k, random_state=0),
    }
    actions = {"search": lambda: NearestNeighbors(n_neighbors=k).fit(X).kneighbors()}
    actions |= {name: lambda m=m: m.fit(X, y) for name, m in learners.items()}
    seconds = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(REPEATS):
        for name, action in actions.items():
            seconds[name].append(timed(action))
    base = median(seconds["search"])
    print(f"n={n} d={d} k={k}: scikit-learn neighbour search {base:.3f} s")
    for name in learners:
        print(f"{name:16s} {median(seconds[name]):.3f} s  ratio {median(seconds[name]) / base:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
