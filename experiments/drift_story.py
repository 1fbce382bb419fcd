"""A model, its audit, and what came next: writes the tables of experiments/reports/drift.md.

Two stories from the folder ``shift`` of OTDRO_DATA: hospitals (heart4: three are known, the fourth
is new) and quarters of an electricity market (elec2: two are known, nine follow). One half of the
known rows fits the model, the other half is the reference of audit and drift. The power of the
p-value against a shift of the mean is measured on Gaussian rows.

    OTDRO_DATA=FOLDER python experiments/drift_story.py [--draws 200]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from otdro import DROClassifier, audit
from otdro.costs import Norm
from otdro.inspection.drifting import match, permutation_p_value

PAGE = Path(__file__).parent / "reports" / "drift.md"
MODELS = {"otdro": DROClassifier(random_state=0), "plain": LogisticRegression()}
HEAD = (
    "| new rows | n | promised | verdict | accuracy before | after | lost | by shares | by moves | "
    "score bound (chance) | transport (chance) | certified at it | promise kept |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)
SHIFTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)


def table(name: str) -> pd.DataFrame:
    """Return a set of the folder ``shift``."""
    folder = os.environ.get("OTDRO_DATA")
    if not folder or not (path := Path(folder) / "shift" / f"{name}.csv.gz").exists():
        sys.exit(f"set OTDRO_DATA to a folder with shift/{name}.csv.gz.")
    return pd.read_csv(path)


def apart(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Return features and labels."""
    return rows.drop(columns=["env", "y"]), rows.y


def line(name, model, reference, new) -> str:
    """Return one row of a table: the promise, what drifted, and what happened."""
    found = audit(model, *apart(reference), new=apart(new), random_state=0)
    drift = found.drift
    promised, right = found.accuracy(drift.delta), drift.accuracy
    lost = right["reference"] - right["new"]
    by_shares = right["reference"] - right["reweighted"]
    cells = [
        name,
        f"{len(new)}",
        f"{promised:.3f} at {drift.delta:.3g}",
        drift.verdict,
        f"{right['reference']:.3f}",
        f"{right['new']:.3f}",
        f"{lost:+.3f}",
        f"{by_shares:+.3f}",
        f"{lost - by_shares:+.3f}",
        f"{drift.lower_bounds['score']:.3g} ({drift.bound_noise['score']:.2g})",
        f"{drift.estimate:.3g} ({drift.noise_floor:.3g})",
        f"{drift.certified_accuracy:.3f}",
        "yes" if right["new"] >= promised else "**no**",
    ]
    return "| " + " | ".join(cells) + " |"


def halves(rows: pd.DataFrame):
    """Return one half of the rows to fit to and one to audit."""
    return train_test_split(rows, test_size=0.5, random_state=0, stratify=rows.y)


def hospitals(kind: str) -> list[str]:
    """Return a line for each hospital, left out in turn."""
    rows, lines = table("heart4"), [HEAD]
    for env in rows.env.unique():
        fit, reference = halves(rows[rows.env != env])
        model = make_pipeline(StandardScaler(), MODELS[kind]).fit(*apart(fit))
        lines.append(line(env, model, reference, rows[rows.env == env]))
    return lines


def quarters(kind: str) -> list[str]:
    """Return a line for rows of the same quarters, and one for each that follows."""
    rows, lines = table("elec2"), [HEAD]
    known = rows[rows.env.isin(rows.env.unique()[:2])]
    old, control = train_test_split(known, test_size=0.3, random_state=1, stratify=known.y)
    fit, reference = halves(old)
    model = make_pipeline(StandardScaler(), MODELS[kind]).fit(*apart(fit))
    lines.append(line("the same two", model, reference, control))
    for env in rows.env.unique()[2:]:
        lines.append(line(env, model, reference, rows[rows.env == env]))
    return lines


def power(draws: int) -> list[str]:
    """Return the share of p-values of at most 5% for shifts of one column."""
    lines = ["| rows, columns | " + " | ".join(f"{s:g}" for s in SHIFTS) + " |"]
    lines.append("|---|" + "---|" * len(SHIFTS))
    for n, d in [(50, 5), (200, 5), (200, 50)]:
        rng = np.random.default_rng([n, d])
        cells = []
        for shift in SHIFTS:
            count = 0
            for _ in range(draws):
                U, V = rng.normal(size=(n, d)), rng.normal(size=(n, d))
                V[:, 0] += shift
                samples = match(U, np.zeros(n, dtype=int), V, np.zeros(n, dtype=int))
                count += permutation_p_value(samples, Norm(2), np.random.RandomState(0)) <= 0.05
            cells.append(f"{count / draws:.2f}")
        lines.append(f"| {n} + {n}, {d} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Make the tables and put them between their marks in the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200, help="samples behind each power")
    draws = parser.parse_args().draws
    text = PAGE.read_text()
    for name, lines in {
        "hospitals": hospitals("otdro"),
        "hospitals, plain": hospitals("plain"),
        "quarters": quarters("otdro"),
        "power": power(draws),
    }.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        text = before + start + "\n".join(lines) + "\n" + end + rest.split(end)[1]
        print("\n".join([name, *lines, ""]))
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
