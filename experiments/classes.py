"""Softmax against one-vs-rest: a table of reports/classes_and_labels.md.

Test log-loss, accuracy and calibration error of the softmax model, of one-vs-rest and of
scikit-learn's softmax with a tuned L2 penalty: the same splits, the same three folds, each
strength chosen by the mean log-loss of the folds. gas_drift goes forward in time: rows of earlier
batches train, the next batch tests. It is read from the folder ``shift`` in OTDRO_DATA.

    python experiments/classes.py [--splits 8] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import load
from sklearn import datasets as sk
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from otdro import DROClassifier

FOLDS, SIZE = 3, 8
TRAIN = {"iris": 30, "wine": 30, "digits": 100}
GAS_ROWS = 300


def contenders(folds):
    """Return the models, unfitted, by name."""
    ours = {"cost": "euclidean", "cv": folds, "scoring": "neg_log_loss", "rule": "min"}
    l2 = LogisticRegressionCV(
        Cs=np.logspace(-3, 3, SIZE), cv=folds, scoring="neg_log_loss", max_iter=500,
        use_legacy_attributes=False, l1_ratios=(0,),
    )  # fmt: skip
    return {
        "softmax": DROClassifier(**ours, multi_class="multinomial"),
        "one-vs-rest": DROClassifier(**ours, multi_class="ovr"),
        "scikit-learn L2": l2,
    }


def calibration_error(p, y, bins=10):
    """Return the mean gap of confidence and accuracy over bins of the largest probability."""
    top, right = p.max(axis=1), p.argmax(axis=1) == y
    place = np.minimum((top * bins).astype(int), bins - 1)
    gaps = [abs(top[place == k].mean() - right[place == k].mean()) for k in np.unique(place)]
    return float(np.average(gaps, weights=np.unique(place, return_counts=True)[1]))


def compare(X, y, train, test, seed):
    """Return one row of figures per model."""
    mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(sd > 0, sd, 1.0)
    classes = np.unique(y[train])
    test = test[np.isin(y[test], classes)]
    codes = np.searchsorted(classes, y)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(train, codes[train]))
    rows = []
    for name, model in contenders(folds).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = model.fit(Z[train], codes[train]).predict_proba(Z[test])
        rows.append(
            {
                "model": name,
                "log_loss": log_loss(codes[test], np.clip(p, 1e-15, 1), labels=range(len(classes))),
                "accuracy": float(np.mean(p.argmax(axis=1) == codes[test])),
                "calibration": calibration_error(p, codes[test]),
            }
        )
    return rows


def small(name, count):
    """Yield (X, y, train, test, seed) of splits of a set that scikit-learn ships."""
    X, y = getattr(sk, f"load_{name}")(return_X_y=True)
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(y))
        train = order[: TRAIN[name]]
        if np.bincount(y[train], minlength=y.max() + 1).min() >= FOLDS:
            yield X, y, train, order[TRAIN[name] :], seed


def gas():
    """Yield splits of gas_drift: some rows of the batches before, then the whole next batch."""
    data = load("gas_drift")
    X, y = data.X, data.y.astype(int)
    batch = np.unique(data.groups, return_inverse=True)[1]
    for b in range(1, batch.max() + 1):
        before = np.flatnonzero(batch < b)
        train = np.random.default_rng(b).choice(before, GAS_ROWS, replace=False)
        yield X, y, train, np.flatnonzero(batch == b), b


def summary(name, rows):
    """Return the lines of a table: means, and paired differences to the softmax model."""
    table = pd.DataFrame(rows)
    wide = table.pivot(
        index="split", columns="model", values=["log_loss", "accuracy", "calibration"]
    )
    lines = []
    for model in ("softmax", "one-vs-rest", "scikit-learn L2"):
        cells = []
        for figure in ("log_loss", "accuracy", "calibration"):
            values = wide[figure][model]
            gain = values - wide[figure]["softmax"]
            se = gain.std(ddof=1) / np.sqrt(len(gain))
            more = "" if model == "softmax" else f" ({gain.mean():+.3f} ± {se:.3f})"
            cells.append(f"{values.mean():.3f}{more}")
        lines.append(f"| {name} | {len(wide)} | {model} | {' | '.join(cells)} |")
    return lines


def main():
    """Write the rows and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    lines = [
        "| set | splits | model | log-loss (minus softmax) | accuracy | calibration error |",
        "|---|---|---|---|---|---|",
    ]
    written = []
    for name in (*TRAIN, "gas_drift"):
        splits = gas() if name == "gas_drift" else small(name, options.splits)
        rows = []
        for X, y, train, test, seed in splits:
            for row in compare(X, y, train, test, seed):
                rows.append({"set": name, "split": seed, **row})
        lines += summary(name, rows)
        written += rows
        print("\n".join(lines[-3:]), flush=True)
    with (options.out / "classes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(written[0]))
        writer.writeheader()
        writer.writerows(written)
    (options.out / "classes.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
