"""The unlabelled part as support: the semi-supervised estimator beside the supervised one.

At the paper's split sizes, standardised on the training rows, logistic loss, Euclidean cost of
order 2 and of the 10-nearest-neighbour graph, delta by the same 5 folds. Unlabelled rows beyond
500 are left out. Writes experiments/results/semi_supervised.csv.

    python experiments/semi_supervised.py [splits] [sets]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from otdro.costs import Graph, Norm
from otdro.datasets import load
from otdro.losses import Logistic
from otdro.problem import Ball, Problem
from otdro.solvers import Exact

SIZES = {
    "BC": (40, 200),
    "BN": (20, 600),
    "QSAR": (80, 500),
    "Magic": (30, 9000),
    "SB": (150, 1500),
}
DELTAS = np.geomspace(1e-3, 3, 6)
SUPPORT = 500
OUT = Path(__file__).parent / "results" / "semi_supervised.csv"


def rows(name):
    """Return X and labels -1/+1 of a data set."""
    data = load(name)
    return np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)


def fit(X, y, S, kind, delta):
    """Return the robust model: all of R^d, or the points of X and S."""
    cost = Graph(10) if kind == "graph" else Norm(2)
    points = None if kind == "supervised" else S
    ball = Ball(cost, delta, 2)
    weights = np.full(len(y), 1 / len(y))
    return Exact(tol=1e-4).solve(Problem(X, y, weights, Logistic(), ball, True, points))


def scores(model, X, y):
    """Return log loss and accuracy."""
    m = y * (X @ model.coef + model.intercept)
    return float(np.mean(np.logaddexp(0, -m))), float(np.mean(m > 0))


def chosen(X, y, S, kind, seed):
    """Return the model at the delta with the least out-of-fold log loss."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))

    def held_out(delta, a, b):
        return scores(fit(X[a], y[a], np.vstack([S, X[b]]), kind, delta), X[b], y[b])[0]

    losses = [np.mean([held_out(delta, a, b) for a, b in folds]) for delta in DELTAS]
    return fit(X, y, S, kind, DELTAS[int(np.argmin(losses))])


def split(name, seed):
    """Yield (kind, log loss, accuracy) of one split."""
    X, y = rows(name)
    order = np.random.default_rng(seed).permutation(len(y))
    n, m = SIZES[name]
    train, free, test = order[:n], order[n : n + min(m, SUPPORT)], order[n + m :]
    scaler = StandardScaler().fit(X[train])
    Z = scaler.transform(X)
    for kind in ("supervised", "support", "graph"):
        try:
            model = chosen(Z[train], y[train], Z[free], kind, seed)
        except ValueError as error:
            if "components" not in str(error):
                raise
            yield kind, np.nan, np.nan
            continue
        yield kind, *scores(model, Z[test], y[test])


def main(splits, names):
    """Run the splits and print a table of means."""
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("w") as file:
        file.write("set,seed,kind,log_loss,accuracy\n")
        for seed in range(splits):
            for name in names:
                for kind, loss, accuracy in split(name, seed):
                    file.write(f"{name},{seed},{kind},{loss:.5f},{accuracy:.5f}\n")
                file.flush()
                print(name, seed, flush=True)


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10,
        sys.argv[2].split(",") if len(sys.argv) > 2 else list(SIZES),
    )
