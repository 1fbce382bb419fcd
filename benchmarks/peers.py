"""This package, scikit-learn and two public peers on the same problems in one run.

    python benchmarks/peers.py [--limit SECONDS] [--sizes 2000x50,20000x100] [--environments FOLDER]

The peers, `skwdro` and `dro`, get an environment each, made on the first run (a few GB with torch).
All use one thread, and seconds are those of the processor, so that other work on the machine
counts little; a peer that is not done after ``--limit`` seconds by the clock is stopped. The
objective is our exact `robust_risk` at the returned coefficients, for everybody; ours comes with a
gap besides, which bounds how far above the optimum it is. The table and the figure go to
`benchmarks/results/`.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import sklearn
from exact import labelled
from sklearn.linear_model import LogisticRegression, Ridge

import otdro
from otdro import Ball, DROClassifier, DRORegressor, robust_risk
from otdro.costs import Norm

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
#: The build of torch that both peers get: the release for processors.
TORCH = "torch==2.13.0"
#: Who can state which problem.
PROBLEMS = {
    # the entropic solver of skwdro has no sampler for order 1
    ("logistic", 1): ["dro", "skwdro-dedicated"],
    ("logistic", 2): ["skwdro"],
    ("squared", 2): ["dro", "skwdro"],
}
DELTA = {1: 0.05, 2: 0.01}
#: Ours must be this many times faster than either peer, by rows.
BARS = {2_000: 100, 20_000: 1_000}


def environment(folder: Path, peer: str) -> Path:
    """Return the Python of a peer's environment, made if it is not there."""
    python = folder / peer / "bin" / "python"
    if not (folder / peer / "complete").exists():
        print(f"making an environment for {peer} in {folder / peer}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / peer], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, TORCH], check=True)
        subprocess.run([*pip, TORCH, peer], check=True)
        (folder / peer / "complete").touch()
    return python


def problem(n, d, loss):
    """Return rows of correlation 0.5 with labels, or targets with noise of deviation 1."""
    X, y = labelled(n, d, 0.5)
    if loss == "squared":
        rng = np.random.default_rng(1)
        y = X @ rng.standard_normal(d) / np.sqrt(d) + rng.standard_normal(n)
    return X, y


def by_peer(python, peer, given, limit):
    """Return a peer's answer, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "problem.npz", Path(folder) / "answer.json"
        np.savez(question, **given)
        command = [python, HERE / "peer.py", peer, question, answer]
        used = _seconds_of_children()
        try:
            done = subprocess.run(
                command, timeout=limit, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            spent = _seconds_of_children() - used
            return {"failed": f"stopped after {limit:g} s by the clock", "seconds": spent}
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return {"failed": f"{last[:160]}"}
        return json.loads(answer.read_text(encoding="utf-8"))


def _seconds_of_children():
    """Return the processor seconds of ended processes that this one has started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(run, repeats=5):
    """Return the median processor seconds of a few runs, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds)), result


def by_us(X, y, loss, order, delta):
    """Return our exact fit."""
    kind = DROClassifier if loss == "logistic" else DRORegressor
    seconds, model = timed(
        lambda: kind(loss=loss, cost="euclidean", order=order, delta=delta, tol=1e-9).fit(X, y)
    )
    return {
        "seconds": seconds,
        "coef": model.coef_.ravel(),
        "intercept": float(np.ravel(model.intercept_)[0]),
        "gap": float(model.gap_),
        "version": otdro.__version__,
    }


def by_scikit_learn(X, y, loss, delta, order, ours):
    """Return the ridge fit whose penalty has our minimiser, if it has one: no robust problem."""
    size, n = np.linalg.norm(ours["coef"]), len(y)
    if (loss, order) == ("logistic", 1):
        model = LogisticRegression(C=size / (delta * n), tol=1e-6)
    elif loss == "squared":
        # d/dbeta (root mean square + sqrt(delta) |beta|)^2 = 0 in ridge form
        root = np.sqrt(np.mean((y - X @ ours["coef"] - ours["intercept"]) ** 2))
        model = Ridge(alpha=n * np.sqrt(delta) * root / size, solver="cholesky")
    else:
        return {"failed": "no such penalty"}
    seconds, fitted = timed(lambda: model.fit(X, y))
    return {
        "seconds": seconds,
        "coef": fitted.coef_.ravel(),
        "intercept": float(np.ravel(fitted.intercept_)[0]),
        "version": sklearn.__version__,
    }


def compare(n, d, loss, order, pythons, limit):
    """Return the rows of the table for one problem."""
    X, y = problem(n, d, loss)
    delta = DELTA[order]
    ball = Ball(Norm(2), delta, order)
    given = {"X": X, "y": y, "delta": delta, "loss": loss, "order": order}
    answers = {"otdro": by_us(X, y, loss, order, delta)}
    answers["scikit-learn"] = by_scikit_learn(X, y, loss, delta, order, answers["otdro"])
    for peer in PROBLEMS[loss, order]:
        answers[peer] = by_peer(pythons[peer.split("-")[0]], peer, given, limit)
    rows = []
    for who, answer in answers.items():
        row = {"loss": loss, "order": order, "n": n, "d": d, "delta": delta, "who": who}
        row |= {key: answer.get(key) for key in ("seconds", "gap", "version", "failed")}
        if "coef" in answer:
            row["objective"] = float(
                robust_risk(X, y, np.asarray(answer["coef"]), answer["intercept"], loss, ball)
            )
        print(line(row, rows[0] if rows else row), flush=True)
        rows.append(row)
    return rows


def line(row, ours):
    """Return a row of the table, its time and objective beside ours."""
    work = f"{row['loss']}, order {row['order']}, {row['n']:,} x {row['d']}"
    known = row["seconds"] is not None
    seconds = f"{row['seconds']:.3g}" if known else "-"
    times = f"{row['seconds'] / ours['seconds']:,.0f}" if known else "-"
    if known and row["failed"]:
        times = f"> {times}"
    if "objective" not in row:
        return f"| {work} | {row['who']} | {seconds} | {times} | {row['failed']} | - |"
    excess = row["objective"] - ours["objective"]
    proof = "-" if row["gap"] is None else f"gap {row['gap']:.0e}"
    return (
        f"| {work} | {row['who']} {row['version']} | {seconds} | {times} "
        f"| {row['objective']:.8f} ({excess:+.1e}) | {proof} |"
    )


HEAD = (
    "| problem | by | seconds | times ours | worst-case risk (above ours) | certificate |\n"
    "|---|---|---|---|---|---|\n"
)


def verdicts(rows):
    """Yield a line for every bar: the least factor over the peers that gave a robust fit."""
    for n, bar in BARS.items():
        for who in ("dro", "skwdro", "skwdro-dedicated"):
            theirs = [r for r in rows if r["n"] == n and r["who"] == who and r["seconds"]]
            for row in theirs:
                ours = next(
                    r
                    for r in rows
                    if r["who"] == "otdro" and all(r[k] == row[k] for k in ("n", "loss", "order"))
                )
                factor = row["seconds"] / ours["seconds"]
                same = row.get("objective", np.inf) >= ours["objective"] - 1e-9
                word = "met" if factor >= bar and same else "**missed**"
                more = "more than " if row["failed"] else ""
                yield (
                    f"* {row['loss']}, order {row['order']}, {n:,} rows, {who}: "
                    f"{more}{factor:,.0f} times (bar {bar:,}), {word}"
                )


def draw(rows, path):
    """Draw excess of the objective against time, one panel for each problem."""
    keys = list(dict.fromkeys((r["loss"], r["order"], r["n"], r["d"]) for r in rows))
    columns = len(PROBLEMS)
    lines = -(-len(keys) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.2 * columns, 3.2 * lines), sharey=True, squeeze=False
    )
    colours = dict(
        zip(("otdro", "scikit-learn", "dro", "skwdro", "skwdro-dedicated"), "kgbrm", strict=True)
    )
    for ax, key in zip(axes.flat, keys, strict=False):
        some = [r for r in rows if (r["loss"], r["order"], r["n"], r["d"]) == key]
        ours = some[0]["objective"]
        for r in some:
            if "objective" in r:
                excess = max(r["objective"] / ours - 1, 1e-10)
                ax.loglog(r["seconds"], excess, "o", color=colours[r["who"]], label=r["who"])
            elif r["seconds"] is not None:
                ax.axvline(r["seconds"], color=colours[r["who"]], ls=":", label=f"{r['who']}: none")
        ax.set_title(f"{key[0]}, order {key[1]}\n{key[2]:,} x {key[3]}", fontsize=9)
        ax.set_xlabel("seconds")
        ax.legend(fontsize=7)
    for ax in axes[:, 0]:
        ax.set_ylabel("excess worst-case risk over ours,\nrelative (1e-10: none)")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main():
    """Run the comparison and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a peer may take")
    parser.add_argument("--sizes", default="2000x50,20000x100")
    parser.add_argument("--environments", type=Path, default=HERE / ".environments")
    options = parser.parse_args()
    pythons = {peer: environment(options.environments, peer) for peer in ("dro", "skwdro")}
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(
        head, cwd=HERE, capture_output=True, text=True, check=True
    ).stdout.strip()
    print(HEAD, end="", flush=True)
    rows = []
    for size in options.sizes.split(","):
        n, d = map(int, size.split("x"))
        for loss, order in PROBLEMS:
            rows += compare(n, d, loss, order, pythons, options.limit)
    RESULTS.mkdir(exist_ok=True)
    about = {"commit": commit.strip(), "python": platform.python_version(), "threads": 1}
    (RESULTS / "peers.json").write_text(
        json.dumps({"about": about, "date": time.strftime("%Y-%m-%d"), "rows": rows}, indent=1)
    )
    some_ours = {(r["loss"], r["order"], r["n"]): r for r in rows if r["who"] == "otdro"}
    body = "\n".join(line(r, some_ours[r["loss"], r["order"], r["n"]]) for r in rows)
    text = f"{HEAD}{body}\n\n" + "\n".join(verdicts(rows)) + f"\n\nCommit {commit.strip()}.\n"
    (RESULTS / "peers.md").write_text(text)
    draw(rows, RESULTS / "peers.png")
    print("\n".join(verdicts(rows)))


if __name__ == "__main__":
    main()
