"""Softmax models beside scikit-learn's, default fits beside one-vs-rest, and prices of labels.

Ratios of processor time in one run, the best of a few repeats each:

    python benchmarks/classes.py [softmax] [folds] [labels] [large_labels]
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import time
import warnings
from itertools import combinations, product

import numpy as np
from exact import labelled, row
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from otdro import DROClassifier
from otdro.costs import Mahalanobis

DELTA = 0.02
#: The accuracy asked of both, relative to the objective.
ACCURACY = 1e-6


def best_time(run, repeats=3):
    """Return the least processor seconds of a few runs, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return min(times), result


def several(n, d, K, seed=0):
    """Return rows and labels drawn from a softmax model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal((d, K)) * 2 / np.sqrt(d) + rng.gumbel(size=(n, K))
    return X, scores.argmax(axis=1)


def pair_norm(B):
    """Return the largest norm of a difference of two classes' coefficients."""
    return max(np.linalg.norm(B[k] - B[j]) for k, j in combinations(range(len(B)), 2))


def penalised(X, y, C, tol):
    """Return scikit-learn's softmax model with a squared penalty."""
    return LogisticRegression(C=C, tol=tol, max_iter=10_000).fit(X, y)


def objective(model, X, y):
    """Return what scikit-learn's model minimises."""
    p = model.predict_proba(X)[np.arange(len(y)), y]
    return -np.log(p).sum() * model.C + 0.5 * np.sum(model.coef_**2)


def at_pair_norm(X, y, size):
    """Return C of the penalised model whose largest pair norm is ``size``, by bisection."""
    low, high = np.log(1e-8), np.log(1e4)
    for _ in range(25):
        middle = (low + high) / 2
        below = pair_norm(penalised(X, y, np.exp(middle), 1e-4).coef_) < size
        low, high = (middle, high) if below else (low, middle)
    return float(np.exp((low + high) / 2))


def loosest(X, y, C):
    """Return the largest tol of scikit-learn's solver that gives the accuracy asked."""
    best = objective(penalised(X, y, C, 1e-9), X, y)
    for tol in np.geomspace(1e-1, 1e-8, 15):
        if objective(penalised(X, y, C, tol), X, y) <= (1 + ACCURACY) * best:
            return float(tol)
    return 1e-9


def softmax(sizes=((2_000, 50, 5), (20_000, 100, 10)), bar=5):
    """One fit at a given delta, against lbfgs at an equal largest pair norm."""
    for n, d, K in sizes:
        X, y = several(n, d, K)
        ours, model = best_time(
            lambda X=X, y=y: DROClassifier(
                cost="euclidean", multi_class="multinomial", delta=DELTA, tol=ACCURACY
            ).fit(X, y)
        )
        C = at_pair_norm(X, y, pair_norm(model.coef_))
        tol = loosest(X, y, C)
        theirs, peer = best_time(lambda X=X, y=y, C=C, tol=tol: penalised(X, y, C, tol))
        note = (
            f"pair norms {pair_norm(model.coef_):.3f}, {pair_norm(peer.coef_):.3f}; tol {tol:.0e}"
        )
        row(f"softmax {n} x {d}, K = {K}, against lbfgs", ours, theirs, bar, note)


def folds(bar=3):
    """Default fits, against one-vs-rest."""
    digits = load_digits(return_X_y=True)
    few = np.random.default_rng(0).permutation(len(digits[1]))[:200]
    sets = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "digits": (digits[0][few], digits[1][few]),
    }
    for name, (X, y) in sets.items():
        X = StandardScaler().fit_transform(X)
        times = [
            best_time(lambda X=X, y=y, form=form: DROClassifier(multi_class=form).fit(X, y), 2)[0]
            for form in ("multinomial", "ovr")
        ]
        n, d = X.shape
        row(
            f"default fit, {name} {n} x {d}, against ovr", *times, None if name == "digits" else bar
        )


def given_cost(name, d):
    """Return a cost by its name; the matrix is a random one of condition about ten."""
    if name != "matrix":
        return name
    B = np.random.default_rng(1).standard_normal((d, d))
    return Mahalanobis(B @ B.T / d + 0.3 * np.eye(d))


def forms():
    """Yield the losses, orders and costs that have an exact fit."""
    for loss, order in (("logistic", 1), ("logistic", 2), ("hinge", 1), ("hinge", 2)):
        for cost in ("euclidean", "matrix", "linf", "l1"):
            if (loss, order) != ("logistic", 2) or cost in ("euclidean", "matrix"):
                yield loss, order, cost
    for cost in ("euclidean", "linf"):
        yield "squared_hinge", 2, cost


def labels(bar=4, sizes=((200, 10), (2_000, 50)), prices=(0.1, 1.0, 10.0), deltas=(0.01, 0.1)):
    """A price of labels, against the same fit without it."""
    for n, d in sizes:
        X, y = labelled(n, d, 0.0)
        for (loss, order, cost), delta in product(forms(), deltas):
            fit = DROClassifier(loss, cost=given_cost(cost, d), order=order, delta=delta)
            plain, _ = best_time(lambda fit=fit, X=X, y=y: fit.fit(X, y))
            for kappa in prices:
                fit.set_params(label_cost=kappa)
                priced, model = best_time(lambda fit=fit, X=X, y=y: fit.fit(X, y))
                name = f"{loss} {order} {cost}, {n} x {d}, delta={delta}, label_cost={kappa}"
                row(name, priced, plain, bar, f"{np.sum(model.n_iter_)} steps")


def large_labels(bar=4):
    """The same of 20,000 rows."""
    labels(bar, sizes=((20_000, 100),))


def main():
    """Print the table."""
    parts = {
        "softmax": softmax,
        "folds": folds,
        "labels": labels,
        "large_labels": large_labels,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    chosen = parser.parse_args().parts or list(parts)
    print(f"{'work':<46}{'ours s':>10}{'other s':>10}{'ratio':>8}{'bar':>7}")
    warnings.simplefilter("ignore")
    for name in chosen:
        parts[name]()


if __name__ == "__main__":
    main()
