"""Mix: published models updated with few rows, and averages of a dense and a sparse model.

    python experiments/mix.py [--replications 8] [--part sources|members]
    python experiments/mix.py --report

``sources``, on sets with environments: the source is a default fit to at most 600 rows of the
other environments; the target environment gives n training rows and the rest as test. Columns are
in units of the spreads of the source rows. ``members``: MixClassifier([DROClassifier(),
DROClassifier(cost="linf")]) and the like for regression, beside the default alone.

Rows are appended to experiments/results/mix.csv and mix_members.csv; lines that are there are not
computed again. Columns ``w0.00`` to ``w1.00`` hold the test loss at these weights of the source and
``v0.00`` to ``v1.00`` the out-of-fold loss, from which --report computes other rules for weights;
the sparse member has the place of the source. --report writes the tables of reports/mix.md.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import sources
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold

import otdro.mix
from otdro import DROClassifier, DRORegressor, MixClassifier, MixRegressor

SIZES = (10, 20, 50, 100)
SOURCE_ROWS = 600
#: Weights of the pooled source rows, relative to a target row, that folds choose among.
POOLED = (0.0, 0.03, 0.1, 0.3, 1.0)
#: Weights of the source at which test and out-of-fold losses are recorded.
GRID = np.linspace(0, 1, 41)
RESULTS = Path(__file__).parent / "results"
SOURCES = RESULTS / "mix.csv"
MEMBERS = RESULTS / "mix_members.csv"


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


def done(path, keys):
    """Return the lines of a file that are there, by the values of the first columns."""
    if not path.exists():
        return set()
    with path.open() as file:
        return {tuple(line[key] for key in keys) for line in csv.DictReader(file)}


def append(path, line):
    """Add one line to a file of results."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        if new:
            writer.writeheader()
        writer.writerow(line)


def observed(mix, X, y):
    """Return a fitted mixture and the function from weights to the out-of-fold loss it saw."""
    seen = {}
    weigh = otdro.mix.mixing_weights

    def recorded(rows, scores, *others):
        seen["risk"] = lambda v: float(rows.share @ rows.losses(np.tensordot(v, scores, axes=1)))
        return weigh(rows, scores, *others)

    otdro.mix.mixing_weights = recorded
    try:
        return mix.fit(X, y), seen["risk"]
    finally:
        otdro.mix.mixing_weights = weigh


def study_sources(folder, replications):
    """Write one line per set, number of rows and replication."""
    known = done(SOURCES, ("set", "n", "replication"))
    for name, X, y, env in load(folder):
        labels = np.unique(y)
        classes = labels if len(labels) <= 6 else None
        if name in ("wine_quality", "bike_hour", "communities_crime"):
            classes = None
        kind, mix = (
            (DRORegressor, MixRegressor) if classes is None else (DROClassifier, MixClassifier)
        )
        for n in SIZES:
            for r in range(replications if X.shape[1] < 100 else min(2, replications)):
                if (name, str(n), str(r)) in known:
                    continue
                seed = zlib.crc32(f"{name} {n} {r}".encode())
                rows = draw(np.random.default_rng(seed), y, env, n, classes)
                if rows is None:
                    continue
                append(SOURCES, {"set": name, "n": n, "replication": r,
                                 **one_draw(kind, mix, X, y, rows, r, classes)})  # fmt: skip


def one_draw(kind, mix, X, y, rows, r, classes):
    """Return the losses of all methods on one draw of source, target and test rows."""
    source, train, test = rows
    spread = X[source].std(axis=0)
    Z = (X - X[source].mean(axis=0)) / np.where(spread > 0, spread, 1)
    published = kind().fit(Z[source], y[source])
    mixed, risk = observed(mix(sources=[published]), Z[train], y[train])
    [member] = mixed.members_.values()
    alone = mix([], [published]).fit(Z[train], y[train])
    line = {
        "target": loss(member, Z[test], y[test], classes),
        "source": loss(alone, Z[test], y[test], classes),
        "mix": loss(mixed, Z[test], y[test], classes),
        "pooled": "",
        "weight": mixed.weights_["source"],
        "regression": int(classes is None),
    }
    if X.shape[1] < 60:
        fitted = pooled(kind, Z, y, source, train, r, classes)
        line["pooled"] = loss(fitted, Z[test], y[test], classes)
    for w in GRID:
        mixed.coef_ = w * alone.coef_ + (1 - w) * member.coef_
        mixed.intercept_ = w * alone.intercept_ + (1 - w) * member.intercept_
        line[f"w{w:.3f}"] = f"{loss(mixed, Z[test], y[test], classes):.6g}"
        line[f"v{w:.3f}"] = f"{risk([w, 1 - w]):.6g}"
    return line


#: Tables of the second study, each with 50 and 150 training rows where it has enough.
CLASSIFICATION = (
    "BC", "BN", "QSAR", "Magic", "SB", "wine", "hastie", "no signal", "digits 3/8", "digits 4/9",
    "heart4", "parkinsons", "elec2", "eeg_eye", "room_occupancy", "synthetic euclidean 1",
    "synthetic up 1", "synthetic down 1", "synthetic diagonal 1", "synthetic diagonal 2",
    "synthetic none 1", "separable blobs 1", "separable sensors 1", "separable steep 1",
)  # fmt: skip
REGRESSION = (
    "diabetes", "friedman", "linear", "concrete", "energy", "yacht", "airfoil",
    "communities_crime", "bike_hour", "wine_quality", "synthetic target 1", "synthetic target 2",
)  # fmt: skip


def study_members(replications):
    """Write one line per table, number of rows and replication."""
    known = done(MEMBERS, ("set", "n", "replication"))
    for name in (*CLASSIFICATION, *REGRESSION):
        X, y, task = sources.get(name)
        kind, mix = (
            (DRORegressor, MixRegressor) if task == "regression" else (DROClassifier, MixClassifier)
        )
        classes = None if task == "regression" else np.unique(y)
        for n in (50, 150):
            for r in range(replications):
                if len(y) < n + 100 or (name, str(n), str(r)) in known:
                    continue
                Z, t, new, truth = sources.split(X, y, n, r, task)
                members = [("dense", kind()), ("sparse", kind(cost="linf"))]
                mixed, risk = observed(mix(members), Z, t)
                dense, sparse = mixed.members_["dense"], mixed.members_["sparse"]
                line = {
                    "set": name, "n": n, "replication": r, "regression": int(task == "regression"),
                    "target": loss(dense, new, truth, classes),
                    "source": loss(sparse, new, truth, classes),
                    "mix": loss(mixed, new, truth, classes),
                    "weight": mixed.weights_["sparse"],
                }  # fmt: skip
                for w in GRID:
                    mixed.coef_ = w * sparse.coef_ + (1 - w) * dense.coef_
                    mixed.intercept_ = w * sparse.intercept_ + (1 - w) * dense.intercept_
                    line[f"w{w:.3f}"] = f"{loss(mixed, new, truth, classes):.6g}"
                    line[f"v{w:.3f}"] = f"{risk([1 - w, w]):.6g}"
                append(MEMBERS, line)


def posterior(risks, n, regression, *, log=False, against=np.inf, temperature=1.0):
    """Return the posterior mean of the weight whose out-of-fold losses on GRID are ``risks``."""
    v = (np.arange(400) + 0.5) / 400
    risk = np.interp(v, GRID, risks)
    if log:
        exponent = -n / (2 if regression else 1) * np.log(np.maximum(risk, 1e-12))
    else:
        exponent = -temperature * n * risk / (2 * min(risks) if regression else 1)
    exponent = exponent + n / against * np.log(1 - v)
    p = np.exp(exponent - exponent.max())
    return float(v @ p / p.sum())


def exponential(risks, n, regression, *, temperature=1.0, least=0.0):
    """Return the weight proportional to e^(-n L) that one of two models has."""
    unit = 2 * min(risks[0], risks[-1]) if regression else 1.0
    excess = np.clip(temperature * n * (risks[-1] - risks[0]) / unit, -700, 700)
    return least + (1 - 2 * least) / (1 + np.exp(excess))


#: Rules for the weight of the source (of the sparse member), from the losses out of fold.
WEIGHTS = {
    "e^(-nL)": exponential,
    "e^(-nL), at least .02": partial(exponential, least=0.02),
    "e^(-nL/2)": partial(exponential, temperature=0.5),
    "the better one": lambda risks, n, regression: float(risks[-1] < risks[0]),
    "least L(v)": lambda risks, n, regression: float(GRID[int(np.argmin(risks))]),
    "posterior mean": posterior,
    "posterior mean, L^-n": partial(posterior, log=True),
    "posterior mean, e^(-nL/2)": partial(posterior, temperature=0.5),
    "posterior mean, prior n/50": partial(posterior, against=50),
    "posterior mean, prior n/25": partial(posterior, against=25),
    "posterior mean, prior n/10": partial(posterior, against=10),
}


def with_rules(path):
    """Return the rows of a file with the test loss of every rule for the weight."""
    table = pd.read_csv(path)
    tests = table[[f"w{w:.3f}" for w in GRID]].to_numpy()
    risks = table[[f"v{w:.3f}" for w in GRID]].to_numpy()
    columns = {}
    for name, rule in WEIGHTS.items():
        chosen = [rule(*each) for each in zip(risks, table.n, table.regression, strict=True)]
        columns[name] = [np.interp(w, GRID, t) for w, t in zip(chosen, tests, strict=True)]
    return pd.concat([table, pd.DataFrame(columns)], axis=1)


def cells(*values):
    """Return a line of a table."""
    shown = [each if isinstance(each, str) else f"{each:.3f}" for each in values]
    return "| " + " | ".join(shown) + " |"


def report():
    """Return the tables of reports/mix.md."""
    table = with_rules(SOURCES)
    means = table.groupby(["set", "n"]).mean(numeric_only=True)
    lines = ["| over target-only | 10 | 20 | 50 | 100 | largest | over pooling | 20 | 50 | 100 |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    both = table.dropna(subset=["pooled"]).groupby(["set", "n"]).mean(numeric_only=True)
    for name in ("mix", "source", *WEIGHTS):
        ratio = means[name] / means.target
        over = (both[name] / both.pooled).groupby("n").mean()
        lines.append(cells(name, *ratio.groupby("n").mean(), ratio.max(), *over))
    lines += ["", "| set | n | mix | source | pooled | weight of the source |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for (name, n), row in means.iterrows():
        ratios = [row[each] / row.target for each in ("mix", "source")]
        pool = both.pooled.get((name, n), np.nan) / both.target.get((name, n), np.nan)
        lines.append(cells(name, str(n), *ratios, pool, row.weight))
    table = with_rules(MEMBERS)
    lines += [
        "",
        "| dense and sparse over dense | log-loss 50 | 150 | worse / better / of | "
        "squared error 50 | 150 | worse / better / of |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("mix", "source", *list(WEIGHTS)[:8]):
        line = [name if name != "source" else "sparse alone"]
        for regression in (0, 1):
            some = table[table.regression == regression]
            if some.empty:
                line += ["", "", ""]
                continue
            groups = some.groupby(["set", "n"])
            ratio = (groups[name].mean() / groups.target.mean()).groupby("n").mean()
            gap = some[name] - some.target
            parts = gap.groupby([some.set, some.n])
            t = parts.mean() / np.maximum(parts.std() / np.sqrt(parts.count()), 1e-12)
            line += [*ratio, f"{(t > 2).sum()} / {(t < -2).sum()} / {len(t)}"]
        lines.append(cells(*line))
    return "\n".join(lines) + "\n"


def main():
    """Run the studies, or write the report from their rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=8)
    parser.add_argument("--part", choices=("sources", "members"))
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.report:
        print(report())
        return
    if asked.part != "members":
        study_sources(os.environ["OTDRO_DATA"], asked.replications)
    if asked.part != "sources":
        study_members(asked.replications)


if __name__ == "__main__":
    main()
