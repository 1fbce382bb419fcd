"""What learning the cost is worth: the tables of docs/cost_value.md.

Test log-loss of cost="learned" and cost="euclidean" at the paper's train sizes, same splits, same
folds, same rule for delta, columns standardised on the training rows.

    python experiments/cost_value.py [--splits 50] [--seed 1000] [--out FILE]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import sources
from sklearn.metrics import log_loss

from otdro import DROClassifier


def losses(name, n, count, first):
    """Return test log-losses (splits, 2) of the Euclidean and the learned cost, and what won."""
    X, y, task = sources.get(name)
    rows, won = [], []
    for seed in range(count):
        Z, t, Z_test, t_test = sources.split(X, y, n, first + seed, task)
        row = []
        for cost in ("euclidean", "learned"):
            model = DROClassifier(cost=cost, random_state=seed).fit(Z, t)
            row.append(log_loss(t_test, model.predict_proba(Z_test)))
        best = max(
            range(len(model.path_.candidates)), key=lambda c: model.path_.candidates[c].chosen
        )
        won.append(model.path_.candidates[best].name.split(",")[0])
        rows.append(row)
    return np.array(rows), won


def page(results):
    """Return the page as text."""
    lines = [
        "# What learning the cost is worth",
        "",
        "Made by `experiments/cost_value.py`: test log-loss at the paper's train sizes, the same",
        "splits, folds and rule for delta. `difference` is learned - euclidean with its paired",
        "standard error.",
        "",
        "| set | n | splits | euclidean, mean (median) | learned | difference | chosen |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, n, table, won in results:
        gain = table[:, 1] - table[:, 0]
        se = gain.std(ddof=1) / np.sqrt(len(gain))
        mean, median = table.mean(axis=0), np.median(table, axis=0)
        names, counts = np.unique(won, return_counts=True)
        chosen = ", ".join(f"{k} {c}" for k, c in zip(names, counts, strict=True))
        lines.append(
            f"| {name} | {n} | {len(table)} | {mean[0]:.4f} ({median[0]:.4f}) | "
            f"{mean[1]:.4f} ({median[1]:.4f}) | {gain.mean():+.4f} ± {se:.4f} | {chosen} |"
        )
    relative = np.mean([t[:, 1].mean() / t[:, 0].mean() for _, _, t, _ in results])
    lines += ["", f"Learned over Euclidean, mean of the ratios over the sets: {relative:.4f}."]
    return "\n".join(lines) + "\n"


def main():
    """Run the study and write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1000, help="of the first split")
    parser.add_argument("--sets", default="BC,BN,QSAR,Magic,SB")
    # the page in docs/ holds several runs and their reading: a run does not overwrite it
    parser.add_argument("--out", type=Path, default=Path("cost_value.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    results = []
    for name in options.sets.split(","):
        n = sources.PAPER[name]
        count = options.splits * (2 if name == "BN" else 1)
        table, won = losses(name, n, count, options.seed)
        results.append((name, n, table, won))
        print(page(results).splitlines()[-3], flush=True)
    options.out.write_text(page(results))


if __name__ == "__main__":
    main()
