"""Default fits of wide, sparse and long rows: time over scikit-learn's grid, memory above X.

Run: OMP_NUM_THREADS=1 OTDRO_DATA=... python benchmarks/scale.py [problem ...]. Every fit is a
process of its own, so that its peak is its own; times are of the processor, hence the ratios hold
on a busy machine. scikit-learn is ``LogisticRegressionCV(Cs=20, cv=5)`` with the fastest of the
solvers tried for the problem. "growth" is the slope of log time against log d at 200 rows,
"linf" the fit under that cost against the l1 penalty of liblinear, and "fixed" the fit of a9a as
CSR at one delta against ``LogisticRegression`` at the penalty that has its minimiser.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
from scipy import sparse

#: Solvers of scikit-learn to try, the bar of the ratio, and that of the memory above X in GB.
PROBLEMS = {
    "tf-idf 500 x 5000": (("liblinear", "lbfgs", "newton-cg"), 2, None),
    "dense 100 x 10000": (("lbfgs", "newton-cg"), 2, 0.5),
    "sparse 2000 x 50000": (("liblinear", "lbfgs", "newton-cg"), 4, 1.0),
    "a9a 5000 x 123": (("lbfgs", "newton-cg", "newton-cholesky"), 2, None),
    "a9a 32561 x 123": (("lbfgs", "newton-cg", "newton-cholesky"), 2, None),
    "dense 1000000 x 20": (("lbfgs",), 1, 0.32),
}
WIDTHS = (100, 1_000, 10_000, 100_000)
MEMORY = 8 * 2**30


def texts(n: int, d: int, share: float):
    """Return rows of unit length with words of falling frequency, and labels from a few words."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, d + 1) ** 0.9
    frequency /= frequency.sum()
    words = [np.unique(rng.choice(d, size=int(share * d), p=frequency)) for _ in range(n)]
    row = np.repeat(np.arange(n), [len(each) for each in words])
    column = np.concatenate(words)
    value = rng.uniform(0.5, 1.5, size=len(column)) * (1 + np.log(n / np.bincount(column)[column]))
    value /= np.sqrt(np.bincount(row, value**2))[row]
    places = (row.astype(np.int32), column.astype(np.int32))  # as liblinear needs them
    X = sparse.csr_array((value, places), shape=(n, d))
    return X, labels(X, rng, rng.normal(size=d) * (rng.random(d) < 0.05), 0.5)


def gaussian(n: int, d: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, labels(X, rng, rng.normal(size=d) * (rng.random(d) < 10 / d + 0.02), 1.0)


def labels(X, rng, beta, noise: float):
    z = X @ beta
    z = z - np.median(z)
    return np.where(z + noise * z.std() * rng.normal(size=len(z)) > 0, 1, -1)


def adult(n: int):
    sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
    from datasets import load

    data = load("a9a")
    return data.X[:n], data.y[:n]


def rows(name: str):
    kind, shape = name.split(" ", 1)
    n, d = (int(part) for part in shape.split(" x "))
    if kind == "a9a":
        return adult(n)
    return gaussian(n, d) if kind == "dense" else texts(n, d, 0.01 if kind == "tf-idf" else 0.002)


def model(what: str):
    if what in ("otdro", "linf"):
        from otdro import DROClassifier

        return DROClassifier(cost="learned" if what == "otdro" else what)
    from sklearn.linear_model import LogisticRegressionCV

    ratio, solver = (1, "liblinear") if what == "l1" else (0, what)
    return LogisticRegressionCV(
        Cs=20, cv=5, solver=solver, max_iter=1_000, l1_ratios=(ratio,), use_legacy_attributes=False
    )


def one(name: str, what: str) -> None:
    """Print the time and the peak above X of one fit."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    X, y = rows(name)
    fresh = model(what)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = process_time()
    fresh.fit(X, y)
    spent = process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": spent, "gigabytes": peak * 1024 / 1e9}))


def fixed(delta: float = 0.003, repeats: int = 5) -> None:
    """Print the times of fits of sparse rows at one delta, and the memory that ours takes."""
    from sklearn.linear_model import LogisticRegression

    from otdro import DROClassifier

    X, y = adult(32_561)
    X = sparse.csr_matrix(X)
    ours = DROClassifier(cost="euclidean", order=1, delta=delta)
    seconds = {"otdro": least(lambda: ours.fit(X, y), repeats)}
    C = np.linalg.norm(ours.coef_) / (delta * len(y))
    for solver in ("liblinear", "lbfgs", "newton-cg", "newton-cholesky"):
        other = LogisticRegression(C=C, solver=solver, tol=1e-6, max_iter=1_000)
        seconds[solver] = least(lambda other=other: other.fit(X, y), repeats)
    fastest = min(value for name, value in seconds.items() if name != "otdro")
    told = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
    tracemalloc.start()
    ours.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(f"\na9a as CSR, delta {delta}, s: {told}; ratio {seconds['otdro'] / fastest:.2f} (bar 1)")
    print(f"memory {peak / 1e6:.1f} MB, {peak / size:.2f} times the CSR's (bar 3)")


def least(run: Callable[[], object], repeats: int) -> float:
    """Return the least processor seconds of a few runs."""
    times = []
    for _ in range(repeats):
        start = process_time()
        run()
        times.append(process_time() - start)
    return min(times)


def measured(name: str, what: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, what]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main(*names: str) -> None:
    print("| problem | otdro, s | scikit-learn, s | ratio | bar | GB above X | bar |")
    print("|---|---|---|---|---|---|---|")
    for name in names or PROBLEMS:
        if name in ("growth", "linf", "fixed"):
            continue
        solvers, bar, room = PROBLEMS[name]
        ours = measured(name, "otdro")
        theirs, fastest = min((measured(name, each)["seconds"], each) for each in solvers)
        ratio = ours["seconds"] / theirs
        print(
            f"| {name} | {ours['seconds']:.2f} | {theirs:.2f} ({fastest}) | {ratio:.1f} | {bar} | "
            f"{ours['gigabytes']:.2f} | {room or '-'} |",
            flush=True,
        )
    if not names or "linf" in names:
        seconds = [measured("tf-idf 500 x 5000", what)["seconds"] for what in ("linf", "l1")]
        print(f"\nlinf, tf-idf 500 x 5000: {seconds[0]:.2f} s, l1 {seconds[1]:.2f} s (bar 3 times)")
    if not names or "fixed" in names:
        fixed()
    if not names or "growth" in names:
        times = [measured(f"dense 200 x {d}", "otdro")["seconds"] for d in WIDTHS]
        slope = np.polyfit(np.log(WIDTHS), np.log(times), 1)[0]
        print(f"\n200 rows, d = {WIDTHS}: {np.round(times, 2)} s, slope {slope:.2f} (bar 1.1)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
