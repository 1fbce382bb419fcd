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
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler

from otdro import DROClassifier
from otdro.costs import Graph, Norm

SIZES = {
    "BC": (40, 200),
    "BN": (20, 600),
    "QSAR": (80, 500),
    "Magic": (30, 9000),
    "SB": (150, 1500),
}
SUPPORT = 1500
#: Deltas below this share of the largest are left out: folds of few rows are separable there.
SMALLEST = 1e-4
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
        if connected_components(kneighbors_graph(nodes, k), directed=False)[0] == 1:
            return Graph(k)
    raise ValueError("no graph of up to 160 neighbours connects the nodes")


def chosen(X, y, S, kind, seed):
    """Return coefficients, intercept and delta with the least out-of-fold log loss."""
    cost = cost_of(kind, np.vstack([X, S]))
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    model = DROClassifier(
        cost=cost, order=2, rule="min", scoring="neg_log_loss", cv=folds, tol=1e-4
    )
    # held-out rows are points of the support, their labels unknown
    path = model.fit(X, y, support=None if kind == "supervised" else S).path_
    eligible = path.deltas >= SMALLEST * path.deltas.max()
    best = int(np.argmax(np.where(eligible, path.score_mean, -np.inf)))
    return path.coef[best], path.intercept[best], path.deltas[best]


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
        coef, intercept, delta = chosen(Z[train], y[train], Z[free], kind, seed)
        margin = y[test] * (Z[test] @ coef + intercept)
        loss = float(np.logaddexp(0, -margin).mean())
        found.append((kind, loss, float((margin > 0).mean()), delta))
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
