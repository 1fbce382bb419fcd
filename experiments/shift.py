"""Models that will meet a new environment: the table of reports/shift.md.

Leave-one-out: every environment in turn is the test set of models fitted to the others. Forward:
where environments are in order of time, the models are fitted to the past and meet the next one.
``groups`` are folds that leave environments out, ``rows`` folds that leave rows out.

    python experiments/shift.py [--sets heart4,elec2] [--rows 150] [--splits 2] [--only-ours]

One line per fit is appended to experiments/results/shift.csv; --report prints the tables.
--held-out fits 600 rows of each held-out set of held_out.py, and tests on another environment.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import held_out
import numpy as np
import pandas as pd
import sources
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from otdro import DROClassifier, DRORegressor
from otdro.scaling import scaler

DESIGN = ("heart4", "parkinsons", "elec2")
REPORT = ("eeg_eye", "room_occupancy", "bike_hour", "communities_crime", "wine_quality")
ORDERED = ("elec2", "bike_hour")
MADE = (
    "BC random", "BC clusters", "BC column", "digits 3/8 clusters", "digits 3/8 random",
    "Magic clusters", "QSAR clusters", "QSAR random", "diabetes clusters", "diabetes random",
    "airfoil clusters", "concrete clusters", "energy column", "effects 0 0", "effects 0.3 0",
    "effects 1 0", "effects 1 1", "subjects 0", "subjects 1", "subjects 2",
)  # fmt: skip
OUT = Path("experiments/results/shift.csv")
HELD_OUT = Path("experiments/results/shift_held_out.csv")
#: Ours with each kind of folds, and the penalty of scikit-learn with each.
METHODS = ("groups", "rows", "worst", "L2 groups", "L2 rows")
#: What is left of a method where the training rows are of one environment only.
OF_ONE = {"groups": "rows", "worst": "rows", "L2 groups": "L2 rows"}


def ours(task, rule="auto"):
    """Return our default model of the task."""
    model = DROClassifier if task == "classification" else DRORegressor
    return model(rule=rule, random_state=0)


def tuned(task, folds):
    """Return scikit-learn's model with a penalty chosen on given folds."""
    if task == "regression":
        return RidgeCV(alphas=np.logspace(-3, 4, 30), cv=folds)
    return LogisticRegressionCV(
        Cs=np.logspace(-4, 2, 13), cv=folds, scoring="neg_log_loss", l1_ratios=(0,),
        use_legacy_attributes=False, max_iter=2000,
    )  # fmt: skip


def fitted(method, task, X, y, groups):
    """Return a model fitted to rows of known environments."""
    if len(np.unique(groups)) == 1:
        method = OF_ONE.get(method, method)
    if method == "groups":
        return ours(task).fit(X, y, groups=groups)
    if method == "worst":
        return ours(task, "worst").fit(X, y, groups=groups)
    if method == "rows":
        return ours(task).fit(X, y)
    if method == "L2 groups":
        splits = GroupKFold(min(5, len(np.unique(groups)))).split(X, y, groups)
        splits = [(a, b) for a, b in splits if task == "regression" or len(np.unique(y[a])) > 1]
        return tuned(task, splits).fit(X, y)
    kind = KFold if task == "regression" else StratifiedKFold
    return tuned(task, kind(5, shuffle=True, random_state=0)).fit(X, y)


def test_loss(model, task, X, y):
    """Return the mean log-loss, or the mean squared error in units of the training variance."""
    if task == "regression":
        return float(np.mean((model.predict(X) - y) ** 2))
    margin = y * model.decision_function(X)
    return float(np.mean(np.logaddexp(0, -margin)))


def rounds(env, forward):
    """Return (training environments, test environment) of every round."""
    names = list(dict.fromkeys(env))
    if forward:
        return [(names[:k], names[k]) for k in range(2, len(names))]
    return [([g for g in names if g != out], out) for out in names]


def sampled(env, among, rows, rng):
    """Return the numbers of at most ``rows`` rows of each environment."""
    parts = [np.flatnonzero(env == g) for g in among]
    return np.concatenate([rng.permutation(part)[:rows] for part in parts])


def losses(name, forward, scale, rows, splits, methods):
    """Append the test losses of one set to the file, one line per round, sample and method."""
    known = name in sources.SHIFT
    X, y, env, task = (sources.environments if known else sources.made_environments)(name)
    for train, test in rounds(env, forward):
        for seed in range(splits):
            rng = np.random.default_rng([seed, 7])
            a = sampled(env, train, rows, rng)
            b = sampled(env, [test], 3000, rng)
            least = 2 if known else 10
            if task == "classification" and min((y[a] > 0).sum(), (y[a] < 0).sum()) < least:
                continue
            scaling = scaler(scale).fit(X[a])
            Z, target = scaling.transform(X[a]), y[a]
            unit = (target.mean(), target.std()) if task == "regression" else (0.0, 1.0)
            target, truth = (target - unit[0]) / unit[1], (y[b] - unit[0]) / unit[1]
            for method in methods:
                model = fitted(method, task, Z, target, env[a])
                value = test_loss(model, task, scaling.transform(X[b]), truth)
                line = [name, scale, int(forward), test, seed, method, f"{value:.6g}"]
                with OUT.open("a", newline="") as file:
                    csv.writer(file).writerow(line)


def study_held_out(draws=3):
    """Write one line per held-out set, draw and method."""
    lines = ["set,draw,test,method,loss"]
    for task, text in held_out.ENVIRONMENTS.items():
        for line in text.strip().splitlines():
            name = line.split()[0]
            if not held_out.held_out(name):
                continue
            X, y, env = held_out.prepared(line, task, environments=True)
            names, counts = np.unique(env, return_counts=True)
            for draw in range(draws):
                rng = np.random.default_rng([draw, 11])
                test, *train = rng.permutation(names[counts >= 40])[:9]
                a = sampled(env, train, 600 // len(train), rng)
                b = sampled(env, [test], 3000, rng)
                scaling = scaler("standard").fit(X[a])
                mean, unit = (y[a].mean(), y[a].std()) if task == "regression" else (0.0, 1.0)
                for method in ("rows", "groups", "worst"):
                    Z, target = scaling.transform(X[a]), (y[a] - mean) / unit
                    model = fitted(method, task, Z, target, env[a])
                    value = test_loss(model, task, scaling.transform(X[b]), (y[b] - mean) / unit)
                    lines.append(f"{name},{draw},{test},{method},{value:.6g}")
    HELD_OUT.write_text("\n".join(lines) + "\n")


def tables():
    """Return mean loss (of the worst round) by line and method, and the ratios to folds of rows."""
    table = pd.read_csv(OUT, names=("set", "scaling", "forward", "test", "seed", "method", "loss"))
    by_round = table.groupby(["set", "scaling", "forward", "method", "test"]).loss.mean()
    lines = by_round.groupby(level=[0, 1, 2, 3]).agg(["mean", "max"]).unstack("method")
    rows, groups, worst = (lines.xs(m, axis=1, level="method") for m in ("rows", "groups", "worst"))
    return lines, pd.DataFrame({
        "groups/rows": groups["mean"] / rows["mean"],
        "worst/groups": worst["mean"] / groups["mean"],
        "worst/groups in the worst": worst["max"] / groups["max"],
    })  # fmt: skip


def main():
    """Run the study, or print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join((*DESIGN, *REPORT)))
    parser.add_argument("--rows", type=int, default=150, help="training rows an environment")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--scalings", default="standard,asinh")
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.report:
        for table in tables():
            print(table.round(3).to_string())
        return
    if options.held_out:
        study_held_out()
        return
    methods = METHODS[:3] if options.only_ours else METHODS
    for name in options.sets.split(","):
        for forward in (False, True) if name in ORDERED else (False,):
            for scale in options.scalings.split(","):
                losses(name, forward, scale, options.rows, options.splits, methods)
                print(name, forward, scale, flush=True)


if __name__ == "__main__":
    main()
