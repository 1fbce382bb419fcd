"""Mix on sets with environments: a model of other environments, updated with few target rows.

    python experiments/mix.py [--replications 10] [--out experiments/results/mix.csv]

For every set, replication and number of target rows: the source is a default fit to at most 600
rows of the other environments; the target environment gives n training rows and the rest as test.
Columns are in units of the spreads of the source rows. One line per fit is written to the file.
The columns ``w0.00`` to ``w1.00`` hold the test loss at these weights of the source, from which the
temperature and the least weight were studied. The rows in ``experiments/results/mix.csv`` were made
with weights without a least weight; parkinsons has no environment that is large enough.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold

from otdro import DROClassifier, DRORegressor, MixClassifier, MixRegressor

SIZES = (10, 20, 50, 100)
SOURCE_ROWS = 600
#: Weights of the pooled source rows, relative to a target row, that folds choose among.
POOLED = (0.0, 0.03, 0.1, 0.3, 1.0)
#: Weights of the source at which the test loss is recorded, for the study of the temperature.
GRID = np.linspace(0, 1, 21)


def load(folder):
    """Yield (name, X, y, environment) of every set with environments."""
    for path in sorted(Path(folder, "shift").glob("*.csv.gz")):
        table = pd.read_csv(path)
        y = table["y"].to_numpy()
        yield (
            path.name.removesuffix(".csv.gz"),
            table.drop(columns=["env", "y"]).to_numpy(float),
            y,
            table["env"].to_numpy(),
        )


def loss(model, X, y, classes):
    """Return the test loss of a model."""
    if classes is None:
        return mean_squared_error(y, model.predict(X))
    return log_loss(y, model.predict_proba(X), labels=classes)


def draw(rng, y, env, n, classes):
    """Return source rows, target rows and test rows; None where an environment is too small."""
    names = np.unique(env)
    for target in rng.permutation(names):
        own = np.flatnonzero(env == target)
        others = np.flatnonzero(env != target)
        if len(own) < n + 40:
            continue
        some = rng.permutation(own)
        train, test = some[:n], some[n : n + 2000]
        source = rng.permutation(others)[:SOURCE_ROWS]
        if classes is None:
            return source, train, test
        counts = [np.count_nonzero(y[train] == k) for k in classes]
        if min(counts) >= 2 and len(np.unique(y[source])) == len(classes):
            return source, train, test
    return None


def pooled(kind, X, y, source, train, seed, classes):
    """Return a fit to source and target rows, the weight of the former chosen by folds."""
    splitter = KFold if classes is None else StratifiedKFold
    counts = len(train) if classes is None else min(np.unique(y[train], return_counts=True)[1])
    folds = list(
        splitter(min(5, counts), shuffle=True, random_state=seed).split(X[train], y[train])
    )

    def fit(own, w):
        rows = np.concatenate([own, source]) if w > 0 else own
        weights = np.where(np.arange(len(rows)) < len(own), 1.0, w)
        return kind(cost="euclidean").fit(X[rows], y[rows], weights)

    scores = [
        np.mean([loss(fit(train[a], w), X[train[b]], y[train[b]], classes) for a, b in folds])
        for w in POOLED
    ]
    return fit(train, POOLED[int(np.argmin(scores))])


def study(folder, out, replications):
    """Write one line per set, replication and number of rows."""
    fields = ["set", "n", "replication", "target", "source", "mix", "pooled", "weight",
              "loss_source", "loss_member", *(f"w{w:.2f}" for w in GRID)]  # fmt: skip
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for name, X, y, env in load(folder):
            labels = np.unique(y)
            classes = labels if len(labels) <= 6 else None
            if name in ("wine_quality", "bike_hour", "communities_crime"):
                classes = None
            kind, mix = (
                (DRORegressor, MixRegressor) if classes is None else (DROClassifier, MixClassifier)
            )
            for n in SIZES:
                for r in range(replications if X.shape[1] < 100 else min(4, replications)):
                    seed = zlib.crc32(f"{name} {n} {r}".encode())
                    rows = draw(np.random.default_rng(seed), y, env, n, classes)
                    if rows is None:
                        continue
                    source, train, test = rows
                    spread = X[source].std(axis=0)
                    Z = (X - X[source].mean(axis=0)) / np.where(spread > 0, spread, 1)
                    published = kind().fit(Z[source], y[source])
                    mixed = mix(sources=[published]).fit(Z[train], y[train])
                    member = next(iter(mixed.members_.values()))
                    alone = mix([], [published]).fit(Z[train], y[train])
                    line = {
                        "set": name, "n": n, "replication": r,
                        "target": loss(member, Z[test], y[test], classes),
                        "source": loss(alone, Z[test], y[test], classes),
                        "mix": loss(mixed, Z[test], y[test], classes),
                        "weight": mixed.weights_["source"],
                        "loss_source": mixed.losses_["source"],
                        "loss_member": next(v for k, v in mixed.losses_.items() if k != "source"),
                    }  # fmt: skip
                    if X.shape[1] < 60:
                        fitted = pooled(kind, Z, y, source, train, r, classes)
                        line["pooled"] = loss(fitted, Z[test], y[test], classes)
                    for w in GRID:
                        mixed.coef_ = w * alone.coef_ + (1 - w) * member.coef_
                        mixed.intercept_ = w * alone.intercept_ + (1 - w) * member.intercept_
                        line[f"w{w:.2f}"] = loss(mixed, Z[test], y[test], classes)
                    writer.writerow(line)
                    file.flush()


def main():
    """Run the study and print the ratios to the fit to the target rows alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--out", default="experiments/results/mix.csv")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    study(os.environ["OTDRO_DATA"], asked.out, asked.replications)
    summary(asked.out)


def summary(path):
    """Print the mean ratio of every method by number of rows."""
    table = pd.read_csv(path)
    table = table.groupby(["set", "n"], as_index=False).mean(numeric_only=True)
    for method in ("mix", "source", "pooled"):
        table[method] /= table["target"]
    print(table[["set", "n", "mix", "source", "pooled", "weight"]].round(3).to_string())
    print(table.groupby("n")[["mix", "source", "pooled"]].mean().round(3).to_string())


if __name__ == "__main__":
    main()
