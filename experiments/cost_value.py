"""What learning the cost is worth: the tables of reports/cost_value.md.

Test loss of cost="learned" (a blend), cost="euclidean" and a tuned L2 penalty: same splits, same
folds, columns scaled on the training rows in two ways. On synthetic sets also the true cost.

    python experiments/cost_value.py [--half report] [--task classification] [--splits 50] [--out F]
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import sources
from joblib import Parallel, delayed
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from otdro import DROClassifier, DRORegressor
from otdro.comparison import Setting, tuned_l2
from otdro.costs import Mahalanobis

METHODS = ("euclidean", "learned", "L2", "true")


def models(name, task, seed):
    """Return the contenders by name; the true cost where there is one."""
    kind = DROClassifier if task == "classification" else DRORegressor
    found = {cost: kind(cost=cost, random_state=seed) for cost in ("euclidean", "learned")}
    folds = StratifiedKFold if task == "classification" else KFold
    found["L2"] = tuned_l2(task, Setting(cv=folds(5, shuffle=True, random_state=seed), seed=seed))
    if name.startswith("synthetic"):
        _, known, number = name.split()
        found["true"] = kind(cost=Mahalanobis(sources.synthetic(known, int(number))[2]))
    return found


def measured(model, task, X, y):
    """Return test loss and accuracy (log-loss; or squared error, and none)."""
    if task == "regression":
        return float(np.mean((model.predict(X) - y) ** 2)), float("nan")
    margin = y * model.decision_function(X)
    return float(np.logaddexp(0, -margin).mean()), float((margin > 0).mean())


def one(name, n, scale, seed):
    """Return the measures of every method on one split."""
    X, y, task = sources.get(name)
    Z, t, Z_test, t_test = sources.split(X, y, n, seed, task, scale=scale)
    if task == "regression":
        center, spread = t.mean(), t.std()
        t, t_test = (t - center) / spread, (t_test - center) / spread
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        fitted = {k: m.fit(Z, t) for k, m in models(name, task, seed).items()}
    row = {"set": name, "n": n, "scale": scale, "seed": seed}
    for key, model in fitted.items():
        row[key], row[f"{key} accuracy"] = measured(model, task, Z_test, t_test)
    row["weights"] = fitted["learned"].cost_.weights_
    return row


def paired(rows, one, other):
    """Return the ratio of the mean losses, and the standard error of the paired difference."""
    a, b = (np.array([row[key] for row in rows]) for key in (one, other))
    return a.mean() / b.mean(), (a - b).std(ddof=1) / np.sqrt(len(a)) / b.mean()


def page(rows):
    """Return the table, one line a set and scaling, and the means over sets."""
    lines = [
        "| set | n | scaling | splits | euclidean | learned | L2 | learned/euclidean | "
        "learned/L2 | accuracy - L2's | learned/true |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = {}
    keys = list(dict.fromkeys((r["set"], r["n"], r["scale"]) for r in rows))
    for name, n, scale in keys:
        part = [r for r in rows if (r["set"], r["n"], r["scale"]) == (name, n, scale)]
        means = [np.mean([r[m] for r in part]) for m in METHODS[:3]]
        cells = [f"{m:.4f}" for m in means]
        ratio, se = paired(part, "learned", "euclidean")
        ratios.setdefault(name, []).append((ratio, se, means))
        l2, l2_se = paired(part, "learned", "L2")
        more = np.array([r["learned accuracy"] - r["L2 accuracy"] for r in part])
        accuracy = f"{more.mean():+.4f} ± {more.std(ddof=1) / np.sqrt(len(more)):.4f}"
        true = f"{paired(part, 'learned', 'true')[0]:.3f}" if "true" in part[0] else ""
        lines.append(
            f"| {name} | {n} | {scale} | {len(part)} | " + " | ".join(cells)
            + f" | {ratio:.4f} ± {se:.4f} | {l2:.4f} ± {l2_se:.4f} | {accuracy} | {true} |"
        )  # fmt: skip
    both = np.array([np.mean([r for r, _, _ in found]) for found in ratios.values()])
    lines += [
        "",
        f"Learned over Euclidean, mean of both scalings: mean over the {len(both)} sets "
        f"{both.mean():.4f}, median {np.median(both):.4f}, largest {both.max():.4f} "
        f"({list(ratios)[int(both.argmax())]}).",
    ]
    return "\n".join(lines) + "\n"


def main():
    """Run the study and write its table, and every row beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", default="report", choices=("report", "design"))
    parser.add_argument("--task", default="classification")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--seed", type=int, default=9000, help="of the first split")
    parser.add_argument("--sets", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("cost_value.md"))
    options = parser.parse_args()
    suffix = "" if options.task == "classification" else "_REGRESSION"
    sizes = getattr(sources, options.half.upper() + suffix)
    names = options.sets.split(",") if options.sets else list(sizes)
    seeds = range(options.seed, options.seed + options.splits)
    cells = [(m, sizes[m], s, k) for m in names for s in ("standard", "asinh") for k in seeds]
    rows = []
    for row in Parallel(options.jobs, return_as="generator")(delayed(one)(*c) for c in cells):
        rows.append(row)
        if row["seed"] == seeds[-1]:
            print(page(rows[-options.splits :]).splitlines()[2], flush=True)
    options.out.write_text(page(rows))
    options.out.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    main()
