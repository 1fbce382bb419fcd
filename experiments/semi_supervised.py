"""The unlabelled part as support: the semi-supervised estimator beside the supervised one.

At the paper's split sizes, standardised on the training rows, logistic loss, Euclidean cost of
order 2 and of the nearest-neighbour graph (10 neighbours, or as many as connect it), delta by the
same 5 folds. Unlabelled rows beyond 1500 (Magic has 9000) are left out. Writes
experiments/results/semi_supervised.csv.

    python experiments/semi_supervised.py [splits] [sets]
"""

import sys
from pathlib import Path

import numpy as np
from datasets import load
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from otdro.costs import Graph, Norm
from otdro.losses import Logistic
from otdro.problem import Sample
from otdro.radius.grid import default_deltas, solve_path
from otdro.solvers import Exact

SIZES = {
    "BC": (40, 200),
    "BN": (20, 600),
    "QSAR": (80, 500),
    "Magic": (30, 9000),
    "SB": (150, 1500),
}
SIZE = 12
SUPPORT = 1500
OUT = Path(__file__).parent / "results" / "semi_supervised.csv"


def rows(name):
    """Return X and labels -1/+1 of a data set."""
    data = load(name)
    return np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)


def cost_of(kind, nodes):
    """Return the cost, the graph with as few neighbours as connect the nodes."""
    if kind != "graph":
        return Norm(2)
    for k in (10, 20, 40, 80, 160):
        try:
            Graph(k).path_lengths(nodes, None)
        except ValueError:
            continue
        return Graph(k)
    raise ValueError("no graph of up to 160 neighbours connects the nodes")


def setting(X, y, S, kind):
    """Return the sample: a ball over all of R^d, or over the points of X and S."""
    points = None if kind == "supervised" else S
    return Sample(X, [y], np.full(len(y), 1 / len(y)), Logistic(), True, points)


def scores(model, X, y):
    """Return log loss and accuracy."""
    m = y * (X @ model.coef + model.intercept)
    return float(np.mean(np.logaddexp(0, -m))), float(np.mean(m > 0))


def chosen(X, y, S, kind, seed):
    """Return the model at the delta with the least out-of-fold log loss."""
    cost = cost_of(kind, np.vstack([X, S]))
    deltas = default_deltas(setting(X, y, S, kind), cost, 2, SIZE)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))

    def fit(X, y, S, deltas):
        return solve_path(setting(X, y, S, kind), cost, 2, deltas, Exact(tol=1e-4))[0]

    # held-out rows are points of the support, their labels unknown
    losses = [
        [scores(m, X[b], y[b])[0] for m in fit(X[a], y[a], np.vstack([S, X[b]]), deltas)]
        for a, b in folds
    ]
    best = int(np.argmin(np.mean(losses, axis=0)))
    return fit(X, y, S, deltas[[best]])[0], deltas[best]


def split(name, seed):
    """Return (kind, log loss, accuracy, delta) for every kind on one split."""
    X, y = rows(name)
    order = np.random.default_rng(seed).permutation(len(y))
    n, m = SIZES[name]
    train, free, test = order[:n], order[n : n + min(m, SUPPORT)], order[n + m :]
    scaler = StandardScaler().fit(X[train])
    Z = scaler.transform(X)
    found = []
    for kind in ("supervised", "support", "graph"):
        model, delta = chosen(Z[train], y[train], Z[free], kind, seed)
        found.append((kind, *scores(model, Z[test], y[test]), delta))
    return found


def main(splits, names):
    """Run the splits on two cores and write the table."""
    jobs = [(name, seed) for seed in range(splits) for name in names]
    found = Parallel(n_jobs=2, verbose=5)(delayed(split)(*job) for job in jobs)
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("w") as file:
        file.write("set,seed,kind,log_loss,accuracy,delta\n")
        for (name, seed), rows in zip(jobs, found, strict=True):
            for kind, loss, accuracy, delta in rows:
                file.write(f"{name},{seed},{kind},{loss:.5f},{accuracy:.5f},{delta:.3g}\n")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10,
        sys.argv[2].split(",") if len(sys.argv) > 2 else list(SIZES),
    )
