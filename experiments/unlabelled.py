"""Rows without labels in the choice of delta: default fits with and without them there.

Both see the rows without labels in the scaling and in the covariance of a learned cost. Sets of the
design half, 40 splits from seed 7600, up to 600 rows without labels, both scalings. Writes one line
per fit to experiments/results/unlabelled_design.jsonl and prints the table of reports/regret.md.

    python experiments/unlabelled.py [splits] [processes]
"""

import json
import sys
import warnings
from collections import defaultdict
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import sources
from threadpoolctl import threadpool_limits

from otdro import DROClassifier
from otdro.radius import selection
from otdro.scaling import scaler

SETS = [
    ("BN", 20), ("BN", 60), ("BN", 200), ("QSAR", 40), ("QSAR", 80), ("QSAR", 200), ("SB", 60),
    ("SB", 150), ("heart4", 30), ("heart4", 60), ("heart4", 200), ("parkinsons", 40),
    ("elec2", 30), ("elec2", 60), ("elec2", 300), ("hastie", 60), ("median diabetes", 40),
    ("median concrete", 40), ("median yacht", 40), ("digits 3/8", 40), ("digits 1/8", 40),
    ("digits 5/9", 60), ("iris 1/2", 30), ("separable sensors 1", 50), ("separable main 1", 50),
    ("separable steep 1", 50), ("synthetic diagonal 1", 60), ("synthetic up 1", 60),
    ("synthetic down 1", 60),
]  # fmt: skip
SEED, WITHOUT_LABELS, TESTED = 7600, 600, 3000
OUT = Path(__file__).parent / "results" / "unlabelled_design.jsonl"
LOOK = selection.rows_to_look_at


def rows(name):
    """Return X and labels -1/+1; "median S" cuts the target of a regression set S."""
    if not name.startswith("median "):
        return sources.get(name)[:2]
    X, y, _ = sources.get(name.removeprefix("median "))
    return X, np.where(y > np.median(y), 1.0, -1.0)


def split(y, n, seed):
    """Return training rows, at least two of either class, rows without labels, and test rows."""
    rng = np.random.default_rng([seed, n])
    while True:
        order = rng.permutation(len(y))
        train, rest = order[:n], order[n:]
        if min((y[train] > 0).sum(), (y[train] < 0).sum()) >= 2:
            k = min(WITHOUT_LABELS, len(rest) // 2)
            return train, rest[:k], rest[k : k + TESTED]


def one(job):
    """Return the test log-loss of the default, without and with U in the choice of delta."""
    name, n, scale, seed = job
    X, y = rows(name)
    train, more, test = split(y, n, seed)
    columns = scaler(scale).fit(X[np.r_[train, more]])
    Z, U, T = (columns.transform(X[part]) for part in (train, more, test))
    found = {"set": name, "n": n, "scale": scale, "seed": seed, "unlabelled": len(more)}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for used, look in (("cost", lambda *_: None), ("cost and delta", LOOK)):
            selection.rows_to_look_at = look
            model = DROClassifier(random_state=seed).fit(Z, y[train], unlabelled=U)
            margin = y[test] * model.decision_function(T)
            found[used] = round(float(np.logaddexp(0, -margin).mean()), 6)
    return found


def table(found):
    """Return lines of the change in percent, with its paired standard error."""
    lines = defaultdict(list)
    for row in found:
        lines[row["set"], row["n"], row["scale"]].append((row["cost"], row["cost and delta"]))
    changes = []
    for key, pairs in sorted(lines.items()):
        before, after = np.transpose(pairs)
        error = 100 * (after - before).std(ddof=1) / np.sqrt(len(pairs)) / before.mean()
        changes.append(100 * (after.mean() / before.mean() - 1))
        yield f"{key[0]} {key[1]} {key[2]:<9} {changes[-1]:+6.2f} ± {error:.2f}"
    yield f"mean {np.mean(changes):+.2f}, median {np.median(changes):+.2f}"


if __name__ == "__main__":
    splits, processes = (int(a) for a in (sys.argv[1:] + ["40", "2"][len(sys.argv) - 1 :]))
    jobs = [
        (name, n, scale, SEED + k)
        for k in range(splits)
        for name, n in SETS
        for scale in ("standard", "asinh")
    ]
    with Pool(processes) as pool, OUT.open("w") as out:
        found = []
        for row in pool.imap_unordered(one, jobs):
            found.append(row)
            out.write(json.dumps(row) + "\n")
    print("\n".join(table(found)))
