"""Mix: published models updated with few rows, and averages of a dense and a sparse model.

    python experiments/mix.py [--draws 3] [--part sources|members]
    python experiments/mix.py --report

``sources``, on sets with environments (those of ``OTDRO_DATA/shift`` and of held_out.py): the
source is a default fit to at most 600 rows of the other environments; one environment gives n
training rows, and the rest as test. Columns are in units of the spreads of the source rows.
``members``, on the tables of held_out.py: a mix of the default and the default with
``cost="linf"``. One line per draw is appended to experiments/results/mix.csv; lines that are there
are not computed again. ``first`` is the loss of the default alone, ``other`` that of the source
(its intercept refitted) or of the sparse model. --report prints the tables of reports/mix.md.
"""

from __future__ import annotations

import argparse
import csv
import warnings
import zlib
from pathlib import Path

import held_out
import numpy as np
import pandas as pd
import sources
from sklearn.model_selection import KFold, StratifiedKFold

import otdro.mix
from otdro import DROClassifier, DRORegressor, MixClassifier, MixRegressor

SIZES = {"sources": (10, 20, 50, 100), "members": (50, 150)}
SOURCE_ROWS = 600
#: Weights of the pooled source rows, relative to a target row, that folds choose among.
POOLED = (0.0, 0.03, 0.1, 0.3, 1.0)
#: The weights of the other model at which other rules integrate.
GRID = (np.arange(400) + 0.5) / 400
SHIFT = ("bike_hour", "communities_crime", "eeg_eye", "elec2", "heart4", "room_occupancy",
         "wine_quality")  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "mix.csv"


def losses(scores, y, regression):
    """Return the squared or the logistic loss of every row."""
    return (y - scores) ** 2 if regression else np.logaddexp(0, -y * scores)


def scores(model, X):
    """Return the predictions of a regression, the scores of a classifier."""
    classifier = hasattr(model, "decision_function")
    return model.decision_function(X) if classifier else model.predict(X)


def posterior(risks, n, regression, exponent):
    """Return the posterior mean of the weight on GRID, the prior (1 - v)^exponent."""
    unit = 2 * risks.min() if regression else 1.0
    log_p = exponent * np.log(1 - GRID) - n * risks / unit
    p = np.exp(log_p - log_p.max())
    return float(GRID @ p / p.sum())


def exponential(ends, n, regression, temperature):
    """Return the weight of the other model proportional to exp(-n L / temperature)."""
    unit = 2 * min(ends) if regression else 1.0
    return 1 / (1 + np.exp(np.clip(n * (ends[1] - ends[0]) / unit / temperature, -700, 700)))


def with_rules(line, out_of_fold, y, share, n, tests, truth, regression, against):
    """Return a line with the test losses of the rules for the weight of the other model.

    ``out_of_fold`` and ``tests`` hold the scores of the first and of the other model; the former
    rule had the exponent n/25 ``against`` sources, and 0 for members.
    """

    def mixed(pair, v):
        return (1 - v) * pair[0] + v * pair[1]

    risks = np.array([share @ losses(mixed(out_of_fold, v), y, regression) for v in GRID])
    ends = [share @ losses(z, y, regression) for z in out_of_fold]
    weights = {
        "e^(-nL)": exponential(ends, n, regression, 1),
        "e^(-nL/10)": exponential(ends, n, regression, 10),
        "better one": float(ends[1] < ends[0]),
        "no prior": posterior(risks, n, regression, 0.0),
        "former": posterior(risks, n, regression, n / 25 if against else 0.0),
        "mix": line["weight"],
        "first": 0.0,
        "other": 1.0,
    }
    for name, v in weights.items():
        line[name] = f"{losses(mixed(tests, v), truth, regression).mean():.6g}"
    return line


def fitted(mix, X, y):
    """Return a fitted mixture, and what its weights were computed from."""
    seen = []
    weigh = otdro.mix.mixing_weights

    def recorded(rows, scores, n):
        seen.extend((scores[..., 0], rows.y[rows.tested], rows.share, n))
        return weigh(rows, scores, n)

    otdro.mix.mixing_weights = recorded
    try:
        return mix.fit(X, y), seen
    finally:
        otdro.mix.mixing_weights = weigh


def draw(rng, y, env, n, regression):
    """Return source rows, target rows and test rows; None where no environment is large enough."""
    for target in rng.permutation(np.unique(env)):
        own = np.flatnonzero(env == target)
        others = np.flatnonzero(env != target)
        if len(own) < n + 40:
            continue
        some = rng.permutation(own)
        train, test = some[:n], some[n : n + 2000]
        source = rng.permutation(others)[:SOURCE_ROWS]
        if regression:
            return source, train, test
        if min(np.sum(y[train] < 0), np.sum(y[train] > 0)) >= 2 and np.ptp(y[source]) > 0:
            return source, train, test
    return None


def pooled(kind, X, y, source, train, seed):
    """Return a fit to source and target rows, the weight of the former chosen by folds."""
    regression = kind is DRORegressor
    splitter = KFold if regression else StratifiedKFold
    counts = len(train) if regression else min(np.unique(y[train], return_counts=True)[1])
    folds = list(
        splitter(min(5, counts), shuffle=True, random_state=seed).split(X[train], y[train])
    )

    def fit(own, w):
        rows = np.concatenate([own, source]) if w > 0 else own
        weights = np.where(np.arange(len(rows)) < len(own), 1.0, w)
        return kind(cost="euclidean").fit(X[rows], y[rows], weights)

    def risk(w):
        parts = [(fit(train[a], w), train[b]) for a, b in folds]
        return np.mean([losses(scores(m, X[b]), y[b], regression).mean() for m, b in parts])

    return fit(train, POOLED[int(np.argmin([risk(w) for w in POOLED]))])


def sets(part):
    """Yield (half, name, X, y, env, task) of every table of a part."""
    if part == "sources":
        for name in SHIFT:
            yield ("design", name, *sources.environments(name))
    for task in ("classification", "regression"):
        lists = {"classification": held_out.CLASSIFICATION, "regression": held_out.REGRESSION}
        lines = held_out.ENVIRONMENTS[task] if part == "sources" else lists[task]
        for line in lines.strip().splitlines():
            name = line.split()[0]
            half = "held-out" if held_out.held_out(name) else "design"
            table = held_out.prepared(line, task, environments=part == "sources")
            yield (half, name, *table, task)


def study(part, draws):
    """Append one line per table, number of rows and draw."""
    keys = ("part", "set", "task", "n", "draw")
    known = set()
    if RESULTS.exists():
        with RESULTS.open() as file:
            known = {tuple(line[key] for key in keys) for line in csv.DictReader(file)}
    one = with_source if part == "sources" else with_members
    for half, name, X, y, env, task in sets(part):
        for n in SIZES[part]:
            for r in range(draws):
                if (part, name, task, str(n), str(r)) in known:
                    continue
                line = {"part": part, "half": half, "set": name, "task": task, "n": n, "draw": r}
                line = one(line, X, y, env)
                if line is not None:
                    append(line)


def with_source(line, X, y, env):
    """Return the losses of one draw of source, target and test rows."""
    regression = line["task"] == "regression"
    kind, mix = (DRORegressor, MixRegressor) if regression else (DROClassifier, MixClassifier)
    seed = zlib.crc32(f"{line['set']} {line['n']} {line['draw']}".encode())
    rows = draw(np.random.default_rng(seed), y, env, line["n"], regression)
    if rows is None:
        return None
    source, train, test = rows
    spread = X[source].std(axis=0)
    Z = (X - X[source].mean(axis=0)) / np.where(spread > 0, spread, 1)
    published = kind().fit(Z[source], y[source])
    model, seen = fitted(mix(sources=[published]), Z[train], y[train])
    alone = mix([], [published]).fit(Z[train], y[train])
    [member] = model.members_.values()
    line |= {"weight": model.weights_["source"], "pooled": ""}
    if X.shape[1] < 60:
        other = pooled(kind, Z, y, source, train, line["draw"])
        line["pooled"] = f"{losses(scores(other, Z[test]), y[test], regression).mean():.6g}"
    tests = [scores(each, Z[test]) for each in (member, alone)]
    return with_rules(line, *seen, tests, y[test], regression, against=True)


def with_members(line, X, y, _):
    """Return the losses of one draw of training and test rows."""
    n, regression = line["n"], line["task"] == "regression"
    if len(y) < n + 100:
        return None
    kind, mix = (DRORegressor, MixRegressor) if regression else (DROClassifier, MixClassifier)
    Z, t, new, truth = sources.split(X, y, n, line["draw"], line["task"], test=2000)
    model, seen = fitted(mix([("dense", kind()), ("sparse", kind(cost="linf"))]), Z, t)
    line |= {"weight": model.weights_["sparse"], "pooled": ""}
    tests = [scores(model.members_[name], new) for name in ("dense", "sparse")]
    return with_rules(line, *seen, tests, truth, regression, against=False)


def append(line):
    """Add one line to the file of results."""
    line["weight"] = f"{line['weight']:.4f}"
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        if new:
            writer.writeheader()
        writer.writerow(line)


RULES = ("mix", "former", "no prior", "e^(-nL/10)", "e^(-nL)", "better one", "other")


def cells(*values):
    """Return a line of a table."""
    return "| " + " | ".join(v if isinstance(v, str) else f"{v:.3f}" for v in values) + " |"


def report():
    """Return the tables of reports/mix.md."""
    table = pd.read_csv(RESULTS)
    lines = [
        "| half | over target-only | 10 | 20 | 50 | 100 | largest from 50 | over pooling: 10 | 20 "
        "| 50 | 100 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    some = table[table.part == "sources"]
    for half in ("design", "held-out"):
        part = some[some.half == half]
        means = part.groupby(["set", "task", "n"]).mean(numeric_only=True)
        both = part.dropna(subset=["pooled"]).groupby(["set", "task", "n"]).mean(numeric_only=True)
        for name in (*RULES, "pooled"):
            ratio = (means if name != "pooled" else both).eval(f"`{name}` / first")
            over = both.eval(f"`{name}` / pooled").groupby("n").mean()
            largest = ratio[ratio.index.get_level_values("n") >= 50].max()
            shown = {"other": "source"}.get(name, name)
            lines.append(cells(half, shown, *ratio.groupby("n").mean(), largest, *over))
    lines += [
        "",
        "| half | over the dense model | log-loss 50 | 150 | largest | worse / better / of "
        "| squared error 50 | 150 | largest | worse / better / of |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    some = table[table.part == "members"]
    for half in ("design", "held-out"):
        for name in RULES:
            line = [half, {"other": "sparse alone"}.get(name, name)]
            for task in ("classification", "regression"):
                groups = some[(some.half == half) & (some.task == task)].groupby(["set", "n"])
                means = groups.mean(numeric_only=True)
                ratio = means[name] / means["first"]
                gap = groups.apply(lambda g, name=name: g[name] - g["first"], include_groups=False)
                parts = gap.groupby(level=["set", "n"])
                t = parts.mean() / np.maximum(parts.std() / np.sqrt(parts.count()), 1e-12)
                line += [*ratio.groupby("n").mean(), ratio.max(),
                         f"{(t > 2).sum()} / {(t < -2).sum()} / {len(t)}"]  # fmt: skip
            lines.append(cells(*line))
    return "\n".join(lines) + "\n"


def main():
    """Run the studies, or print the tables of the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--part", choices=tuple(SIZES))
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.report:
        print(report())
        return
    for part in SIZES if asked.part is None else [asked.part]:
        study(part, asked.draws)


if __name__ == "__main__":
    main()
