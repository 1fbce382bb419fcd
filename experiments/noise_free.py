"""Labels without noise: the default beside tuned L2, and beside the default that keeps its grid.

    python experiments/noise_free.py [--splits 8]

Tables whose label follows from a few columns, and the design half of the studies, where the step
below the grid should change nothing. One line per fit in experiments/results/noise_free.csv.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import sources
from sklearn.linear_model import LogisticRegressionCV

from otdro import DROClassifier
from otdro.radius import rules

OUT = Path("experiments/results/noise_free.csv")
SIZES = (50, 150, 500)


def indicators(columns):
    """Return one indicator per value of every column."""
    return np.concatenate([np.eye(c.max() + 1)[c] for c in columns], axis=1)


def table(kind, rows, seed):
    """Return (X, y) of a rule without noise; "noisy" has 2% of wrong labels."""
    rng = np.random.default_rng([seed, rows, 5])
    if kind == "flare":
        sizes = (2, 3, 3, 4, 2, 6)
        columns = [rng.choice(k, rows, p=rng.dirichlet(2 * np.ones(k))) for k in sizes]
        return indicators(columns), columns[2] == 1
    if kind == "nursery":
        columns = [rng.integers(k, size=rows) for k in (3, 5, 4, 4, 3, 2, 3, 3)]
        return indicators(columns), columns[7] == 2
    if kind == "level":
        X = rng.integers(5, size=(rows, 8)).astype(float)
        return X, X[:, 0] >= 3
    B = rng.random((rows, 10)) < (0.5 if kind == "sum" else 0.4)
    y = B[:, :4].sum(axis=1) >= 2 if kind == "sum" else B[:, 0] | B[:, 1]
    return B.astype(float), y ^ (rng.random(rows) < (0.02 if kind == "noisy" else 0))


def fits(X, y, new, truth):
    """Return the test log-loss of the default, of the default with its grid, and of tuned L2."""
    beyond = rules.NO_WRONG_ROWS
    losses = []
    for share in (beyond, 0.0):
        rules.NO_WRONG_ROWS = share
        losses.append(log_loss(DROClassifier().fit(X, y), new, truth))
    rules.NO_WRONG_ROWS = beyond
    l2 = LogisticRegressionCV(
        Cs=np.logspace(-4, 4, 17), cv=5, scoring="neg_log_loss", l1_ratios=(0,),
        use_legacy_attributes=False, max_iter=3000,
    )  # fmt: skip
    return [*losses, log_loss(l2.fit(X, y), new, truth)]


def log_loss(model, X, y):
    """Return the mean log-loss without clipping of probabilities."""
    return float(np.logaddexp(0, -y * model.decision_function(X)).mean())


def main():
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=8)
    splits = parser.parse_args().splits
    warnings.simplefilter("ignore")
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("set", "n", "split", "default", "grid only", "L2"))
        for kind in ("flare", "nursery", "or", "sum", "level", "noisy"):
            for n in SIZES:
                for s in range(splits):
                    X, y = table(kind, n + 2_000, s)
                    y = np.where(y, 1.0, -1.0)
                    if min((y[:n] > 0).sum(), (y[:n] < 0).sum()) < 5:
                        continue
                    mean, spread = X[:n].mean(axis=0), X[:n].std(axis=0)
                    Z = (X - mean) / np.where(spread > 0, spread, 1.0)
                    losses = fits(Z[:n], y[:n], Z[n:], y[n:])
                    writer.writerow((kind, n, s, *(f"{each:.6g}" for each in losses)))
                file.flush()
        for name, n in sources.DESIGN.items():
            X, y, task = sources.get(name)
            for s in range(splits):
                losses = fits(*sources.split(X, y, n, s, task))
                writer.writerow((name, n, s, *(f"{each:.6g}" for each in losses)))
            file.flush()


if __name__ == "__main__":
    main()
