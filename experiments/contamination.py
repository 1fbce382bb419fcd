"""One bad cell, one bad row, many bad rows, heavy tails: the table of reports/contamination.md.

Test accuracy of the default, of rule="min" and of a tuned L2 penalty, trained on contaminated rows,
raw and standardised. The test rows are clean, but those of "student columns" have the noise too.

    python experiments/contamination.py [--splits 10] [--sets BC,BN] [--jobs 2] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import sources
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from otdro import DROClassifier
from otdro.comparison import Setting, tuned_l2
from otdro.scaling import scaler

SETS = (
    "BC", "BN", "QSAR", "Magic", "SB", "heart4", "elec2", "synthetic euclidean 1",
    "synthetic up 1", "synthetic diagonal 1",
)  # fmt: skip
SIZES = (50, 100, 300, 1000)
#: What is done to the training rows: how much of them, and by how many standard deviations.
KINDS = (
    ("clean", 0.0), *product(("cell", "row", "5% of rows"), (10.0, 100.0, 1e4)),
    *product(("student", "student columns"), (1.0, 2.0, 3.0)),
)  # fmt: skip
METHODS = ("default", "min", "L2")


def contaminated(X, kind, size, rng):
    """Return the rows with some cells moved by ``size`` standard deviations of their columns."""
    X = X.copy()
    n, d = X.shape
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    sign = rng.choice([-1.0, 1.0], size=(n, d))
    if kind == "cell":
        i, j = rng.integers(n), rng.integers(d)
        X[i, j] += sign[i, j] * size * spread[j]
    elif kind == "row":
        i = rng.integers(n)
        X[i] += sign[i] * size * spread
    elif kind == "5% of rows":
        rows = rng.permutation(n)[: max(1, round(0.05 * n))]
        X[rows] += sign[rows] * size * spread
    elif kind.startswith("student"):
        # every column gets noise of half its spread with heavy tails
        X += 0.5 * spread * rng.standard_t(size, size=(n, d))
    return X


def one(name, n, kind, size, scale, seed):
    """Return the test accuracies of the methods on one contaminated sample."""
    X, y, _ = sources.get(name)
    train, t, rest, t_rest = sources.split(X, y, n, seed, "classification", 2000, "none")
    rng = np.random.default_rng([seed, n, 17])
    # raw means the units of the source, each divided by one number for all columns
    unit = np.median(train.std(axis=0)) or 1.0
    bad, seen = contaminated(train / unit, kind, size, rng), rest / unit
    if kind == "student columns":
        seen = contaminated(seen, kind, size, rng)
    scaling = scaler(scale).fit(bad)
    Z, Z_test = scaling.transform(bad), scaling.transform(seen)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    models = {
        "default": DROClassifier(random_state=seed),
        "min": DROClassifier(rule="min", random_state=seed),
        # raw columns take lbfgs many thousand steps
        "L2": tuned_l2("classification", Setting(cv=folds, seed=seed)).set_params(
            solver="newton-cholesky"
        ),
    }
    row = {"set": name, "n": n, "kind": kind, "size": size, "scale": scale, "seed": seed}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for key, model in models.items():
            score = model.fit(Z, t).decision_function(Z_test)
            row[key] = float(((score > 0) == (t_rest > 0)).mean())
    return row


def page(rows):
    """Return mean accuracies by kind and scaling, and the cells in which the default is behind."""
    lines = [
        "| kind | size | scaling | " + " | ".join(METHODS) + " | default - best of both |",
        "|---|---|---|---|---|---|---|",
    ]
    for (kind, size), scale in product(KINDS, ("none", "standard")):
        part = [r for r in rows if (r["kind"], r["size"], r["scale"]) == (kind, size, scale)]
        if part:
            mean = [np.mean([r[m] for r in part]) for m in METHODS]
            cells = " | ".join(f"{m:.3f}" for m in mean)
            behind = f"{mean[0] - max(mean[1:]):+.3f}"
            lines.append(f"| {kind} | {size:g} | {scale} | {cells} | {behind} |")
    return "\n".join([*lines, "", *behind_by(rows)]) + "\n"


def behind_by(rows, least=0.02):
    """Return a line for each set, n, kind and scaling where the default is behind a rival."""
    keys = ("set", "n", "kind", "size", "scale")
    cells = {}
    for row in rows:
        cells.setdefault(tuple(row[k] for k in keys), []).append(row)
    lines = []
    for cell, part in cells.items():
        for rival in METHODS[1:]:
            gap = np.array([r[rival] - r["default"] for r in part])
            se = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.inf
            if gap.mean() > least and gap.mean() > 2 * se:
                lines.append(
                    f"- {', '.join(map(str, cell))}: {rival} by {gap.mean():.3f} ± {se:.3f}"
                )
    head = f"The default is behind by more than {least} and two paired errors in {len(lines)} of "
    return [head + f"{2 * len(cells)} comparisons:", "", *lines]


def main():
    """Run the study and write its table, and every row beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("contamination.md"))
    options = parser.parse_args()
    cells = [
        (name, int(n), kind, size, scale, seed)
        for name in options.sets.split(",")
        for n in options.sizes.split(",")
        if int(n) < len(sources.get(name)[1]) / 1.5
        for kind, size in KINDS
        for scale in ("none", "standard")
        for seed in range(options.splits)
    ]
    found = Parallel(options.jobs, return_as="generator")(delayed(one)(*c) for c in cells)
    rows = []
    for row in found:
        rows.append(row)
        if len(rows) % 200 == 0:
            print(f"{len(rows)} of {len(cells)}", flush=True)
    options.out.write_text(page(rows))
    options.out.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    main()
