"""Fits on one GPU beside floors measured in the same run: products, Gram matrices, Cholesky solves.

    SCIPY_ARRAY_API=1 python benchmarks/gpu.py --out benchmarks/results/gpu.json

Times are medians of a few runs after one that is not counted, tf32 off. ``kernels`` says what a
solve is made of: how often a kind of kernel runs and for how long, and how long the device waits.
``--device cpu`` shrinks every size by a hundred, to see that the script runs.
"""

from __future__ import annotations

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from otdro import DROClassifier
from otdro.arrays import adjoint_of_rows, gram_of_rows, product_of_rows
from otdro.costs import Norm
from otdro.losses import Logistic, Softmax
from otdro.problem import Ball, Problem
from otdro.solvers import Exact

#: Seconds that are asked for on an H200.
BARS = {"long": 0.060, "head": 3.0}
#: Kinds of kernels by what their names hold; all others are elementwise or sums.
KINDS = {
    "copies": ("memcpy", "memset"),
    "products": ("gemm", "gemv", "dot", "cutlass", "::mm", "::bmm", "::mv"),
}


def solution(solver, problem):
    """Return the solution of one problem."""
    return solver.solve([problem], [problem.ball.delta])[0][0]


def timed(run, repeats=5):
    """Return the median seconds of a run, the device being idle before and after it."""
    seconds = []
    for _ in range(repeats + 1):
        settle()
        start = time.perf_counter()
        result = run()
        settle()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), result


def settle():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def labelled(n, d, device, seed=0):
    """Return float32 rows of unit variance, about a mean of 1/2, and labels -1/+1 (float64)."""
    generator = torch.Generator(device).manual_seed(seed)
    X = torch.randn(n, d, generator=generator, device=device) + 0.5
    beta = torch.randn(d, generator=generator, device=device) * 2 / d**0.5
    chance = torch.sigmoid((X - 0.5) @ beta)
    y = torch.rand(n, generator=generator, device=device) < chance
    return X, y.double() * 2 - 1


def floors(X):
    """Return the seconds of a Gram matrix, a product and an adjoint over the rows."""
    v, r = X[0].clone(), X[:, 0].clone()
    return {
        "gram": timed(lambda: X.T @ X)[0],
        "product": timed(lambda: X @ v)[0],
        "adjoint": timed(lambda: X.T @ r)[0],
    }


def own_products(X):
    """Return the seconds of the products that a solver takes: sums over rows in float64."""
    v, r = X[0].double().cpu().numpy(), X[:, 0].double().abs()
    return {
        "gram": timed(lambda: gram_of_rows(X, r))[0],
        "product": timed(lambda: product_of_rows(X, v))[0],
        "adjoint": timed(lambda: adjoint_of_rows(X, r))[0],
    }


def kernels(run, device):
    """Return count and milliseconds of the kernels of a run by kind, its wall time and waits."""
    on_gpu = device != "cpu"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    settle()
    with profile(activities=activities, acc_events=True) as seen:
        start = time.perf_counter()
        run()
        settle()
        wall = time.perf_counter() - start
    found = {kind: {"count": 0, "ms": 0.0} for kind in (*KINDS, "elementwise")}
    for event in seen.key_averages():
        if event.device_type != (DeviceType.CUDA if on_gpu else DeviceType.CPU):
            continue
        name = event.key.lower()
        kind = next(
            (k for k, parts in KINDS.items() if any(p in name for p in parts)), "elementwise"
        )
        taken = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found[kind]["count"] += event.count
        found[kind]["ms"] += taken / 1e3
    busy = sum(kind["ms"] for kind in found.values())
    return found | {"wall_ms": 1e3 * wall, "waiting_ms": 1e3 * wall - busy}


def long_rows(device, scale):
    """Order-1 logistic on 10M x 100 float32 to 1e-6 of the constant model's risk."""
    X, y = labelled(10_000_000 // scale, 100, device)
    weights = torch.full_like(y, 1 / len(y))
    problem = Problem(X, y, weights, Logistic(), Ball(Norm(2), 0.01, 1))
    seconds, found = timed(lambda: solution(Exact(tol=1e-6), problem))
    model = DROClassifier(cost="euclidean", delta=0.01)
    fit, _ = timed(lambda: model.fit(X, y))
    known = floors(X)
    part = Problem(X[::20].contiguous(), y[::20], 20 * weights[::20], Logistic(), problem.ball)
    own = own_products(X)
    of_part, _ = timed(lambda: solution(Exact(tol=1e-5), part))
    made_of = kernels(lambda: solution(Exact(tol=1e-6), problem), device)
    exact = Problem(X.double(), y, weights, Logistic(), Ball(Norm(2), 0.01, 1))
    reference = solution(Exact(tol=1e-10), exact)
    return {
        "shape": list(X.shape),
        "solve_s": seconds,
        "fit_s": fit,
        "n_iter": found.n_iter,
        "converged": found.converged,
        "gap": found.gap,
        "excess_over_float64": (found.objective - reference.objective) / reference.objective,
        "floors_s": known,
        "own_products_s": own,
        "one_row_in_20_s": of_part,
        "kernels": made_of,
        "in_grams": seconds / known["gram"],
    }


def several_classes(device, scale):
    """Order-1 softmax of five classes on 1M x 100 float32 to 1e-6 of the constant model's risk."""
    K = 5
    X, _ = labelled(1_000_000 // scale, 100, device)
    generator = torch.Generator(device).manual_seed(1)
    B = torch.randn(100, K, generator=generator, device=device) / 5
    noise = torch.rand(len(X), K, generator=generator, device=device)
    y = ((X - 0.5) @ B - torch.log(-torch.log(noise))).argmax(dim=1).double()
    weights = torch.full_like(y, 1 / len(y))
    problem = Problem(X, y, weights, Softmax(K), Ball(Norm(2), 0.01, 1))
    seconds, found = timed(lambda: solution(Exact(tol=1e-6), problem), repeats=2)
    exact = Problem(X.double(), y, weights, Softmax(K), Ball(Norm(2), 0.01, 1))
    reference = solution(Exact(tol=1e-9), exact)
    known = floors(X)
    return {
        "shape": [*X.shape, K],
        "solve_s": seconds,
        "n_iter": found.n_iter,
        "converged": found.converged,
        "gap": found.gap,
        "excess_over_float64": (found.objective - reference.objective) / reference.objective,
        "floors_s": known,
        "kernels": kernels(lambda: solution(Exact(tol=1e-6), problem), device),
        "in_grams": seconds / known["gram"],
    }


def robust_head(device, scale):
    """Delta by five folds and 20 deltas on 1M x 768 float32, as of embeddings."""
    X, y = labelled(1_000_000 // scale, 768 if scale == 1 else 64, device)
    model = DROClassifier(cost="euclidean", delta="cv", cv=5)
    seconds, _ = timed(lambda: model.fit(X, y), repeats=1)
    known = floors(X)
    return {
        "shape": list(X.shape),
        "fit_s": seconds,
        "delta": model.delta_,
        "deltas": len(model.path_.deltas),
        "gap": model.gap_,
        "floors_s": known,
        "in_grams": seconds / known["gram"],
    }


CASES = {
    "long": long_rows,
    "several": several_classes,
    "head": robust_head,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu = asked.device != "cpu"
    found = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "bars_s": BARS,
    }
    with sklearn.config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in asked.cases.split(","):
            found[name] = CASES[name](asked.device, 1 if on_gpu else 100)
            print(name, json.dumps(found[name], indent=1), flush=True)
            if asked.out:
                asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
