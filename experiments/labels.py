"""What a price for labels is worth when labels are wrong: a table of reports/classes_and_labels.md.

A share of the labels of training and test rows is flipped. Test log-loss and calibration error of
a price by GridSearchCV, of labels that cannot be changed and of a tuned L2 penalty: n = 200
training rows, the same splits, the same three folds, everything chosen by their log-loss.

    python experiments/labels.py [--splits 4] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import sources
from classes import calibration_error
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from otdro import DROClassifier

ROWS, FOLDS = 200, 3
DELTAS = np.geomspace(0.2, 0.005, 4)
#: Prices of a label that folds choose among, in the unit of the cost.
PRICES = (0.1, 0.3, 1.0, np.inf)


def contenders(folds):
    """Return the models, unfitted, by name."""
    ours = {"cost": "euclidean", "cv": folds, "rule": "min", "deltas": DELTAS}
    l2 = LogisticRegressionCV(
        Cs=np.logspace(-3, 2, 12), cv=folds, scoring="neg_log_loss", max_iter=500,
        use_legacy_attributes=False, l1_ratios=(0,),
    )  # fmt: skip
    return {
        "label_cost=cv": GridSearchCV(
            DROClassifier(cost="euclidean"),
            {"delta": DELTAS, "label_cost": PRICES},
            cv=folds,
            scoring="neg_log_loss",
        ),
        "label_cost=inf": DROClassifier(**ours),
        "L2": l2,
    }


def compare(name, noise, seed):
    """Return one row of figures per model."""
    X, y, task = sources.get(name)
    Z, t, Z_test, t_test = sources.split(X, y, ROWS, seed, task)
    rng = np.random.default_rng(seed)
    t = np.where(rng.random(len(t)) < noise, -t, t)
    t_test = np.where(rng.random(len(t_test)) < noise, -t_test, t_test)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(Z, t))
    rows = []
    for model_name, model in contenders(folds).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = model.fit(Z, t).predict_proba(Z_test)
        searched = model_name == "label_cost=cv"
        price = model.best_params_["label_cost"] if searched else np.inf
        rows.append(
            {
                "set": name,
                "noise": noise,
                "split": seed,
                "model": model_name,
                "log_loss": log_loss(t_test, p),
                "calibration": calibration_error(p, (t_test > 0).astype(int)),
                "price": price,
            }
        )
    return rows


def main():
    """Write the rows and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    lines = [
        "| set | flipped | splits | label_cost=cv | inf | L2 | cv - inf | calibration cv | inf | "
        "finite price chosen |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    written = []
    for name in sources.PAPER:
        for noise in (0.1, 0.2):
            rows = [r for seed in range(options.splits) for r in compare(name, noise, seed)]
            written += rows
            lines.append(line(name, noise, rows))
            print(lines[-1], flush=True)
    with (options.out / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(written[0]))
        writer.writeheader()
        writer.writerows(written)
    (options.out / "labels.md").write_text("\n".join(lines) + "\n")


def line(name, noise, rows):
    """Return one line of the table."""
    wide = pd.DataFrame(rows).pivot(
        index="split", columns="model", values=["log_loss", "calibration", "price"]
    )
    loss, calibration = wide["log_loss"], wide["calibration"].mean()
    gain = loss["label_cost=cv"] - loss["label_cost=inf"]
    se = gain.std(ddof=1) / np.sqrt(len(gain))
    finite = int(np.isfinite(wide["price"]["label_cost=cv"].to_numpy(dtype=float)).sum())
    means = " | ".join(
        f"{loss[model].mean():.4f}" for model in ("label_cost=cv", "label_cost=inf", "L2")
    )
    return (
        f"| {name} | {noise:.0%} | {len(wide)} | {means} | {gain.mean():+.4f} ± {se:.4f} | "
        f"{calibration['label_cost=cv']:.3f} | {calibration['label_cost=inf']:.3f} | "
        f"{finite} of {len(wide)} |"
    )


if __name__ == "__main__":
    main()
