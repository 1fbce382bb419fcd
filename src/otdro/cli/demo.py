"""``otdro demo``: the whole story on data that scikit-learn carries, in under a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from ..datasets import load
from ..experiment import METHODS, SIZES, Plan, Row, Setting, run, seed_of, split
from ..experiment.comparison import inner_folds
from ..losses import Logistic
from ..scaling import AUTO
from . import printing
from .describing import Features
from .fit import described_model
from .showing import directions_told, risks_told

METHODS_SHOWN = ["ours", "LR", f"LRL1+{AUTO}", f"L2+{AUTO}"]


def demo(reps: int = 10, seed: int = 0) -> None:
    """Fit to 40 patients, look at the cost that was learned, then compare on fresh splits."""
    printing.heading("Breast cancer: learn from 40 patients, be tested on 329 others")
    data = load("BC")
    _one_fit(seed)
    plan = Plan({"BC": data}, METHODS_SHOWN, reps, seed)
    printing.heading(f"The same on {reps} random splits, all methods on the same rows")
    with tempfile.TemporaryDirectory() as folder, printing.progress(reps * 4) as tell:
        rows = run(plan, Path(folder), report=lambda now: tell(now.done, now.remaining))
    _scores(rows)
    printing.say("Your own table:  otdro fit DATA.csv --target COLUMN --save model.skops")
    printing.say("The paper's:     otdro table1 --reps 20")


def _one_fit(seed: int) -> None:
    data = load("BC")
    names = [str(name) for name in load_breast_cancer().feature_names]
    parts = split(data.y, SIZES["BC"], seed_of(seed, "BC", 0))
    y = data.y[parts.train]
    setting = Setting(cv=inner_folds(y, "classification", seed), seed=seed)
    model = METHODS["ours"].pipeline(setting).fit(data.X[parts.train], y)
    report = described_model(model[-1], Features(names), str(model[-1].delta))
    right = float((model.predict(data.X[parts.test]) == data.y[parts.test]).mean())
    Z = model[:-1].transform(data.X[parts.train])
    n, d = Z.shape
    lines = [
        ("data", f"{n} rows x {d} columns, {len(parts.test)} rows kept for the test"),
        ("loss", str(model[-1].loss)),
        *directions_told(report),
        *risks_told(report),
        *_moves(model[-1], Z, y, names, parts.train),
        ("right on the others", f"{right:.1%}"),
    ]
    printing.pairs(lines)


def _moves(
    model: Any, Z: Any, y: Any, names: list[str], rows: Any, shown: int = 4
) -> list[tuple[str, str]]:
    """Return the largest coefficients, and the rows on which a small move raises the loss most.

    Those are the rows an adversary moves first: its gain there is the slope of the loss.
    """
    coef = model.coef_[0]
    large = np.argsort(-np.abs(coef))[:shown]
    labels = np.where(y == model.classes_[1], 1.0, -1.0)
    slope = np.abs(Logistic().derivative(model.decision_function(Z), labels))
    first = np.argsort(-slope)[:shown]
    return [
        ("largest coefficients", ", ".join(f"{names[j]} {coef[j]:+.2f}" for j in large)),
        ("moved first", ", ".join(f"row {rows[i]} (slope {slope[i]:.2f})" for i in first)),
    ]


def _scores(rows: list[Row]) -> None:
    words = {
        "ours": "ours",
        "LR": "no penalty",
        f"LRL1+{AUTO}": "L1, tuned",
        f"L2+{AUTO}": "L2, tuned",
    }
    loss = {m: np.array([r.test_loss for r in rows if r.method == m]) for m in words}
    right = {m: np.array([r.accuracy for r in rows if r.method == m]) for m in words}
    errors = {m: float(v.std(ddof=1) / np.sqrt(len(v))) for m, v in loss.items()}
    picture = printing.intervals([float(v.mean()) for v in loss.values()], list(errors.values()))
    body = [
        [words[m], f"{loss[m].mean():.3f} ± {errors[m]:.3f}", f"{right[m].mean():.3f}", line]
        for m, line in zip(words, picture, strict=True)
    ]
    printing.grid(["method", "test log-loss ± se", "accuracy", "log-loss"], body, (0, 3))
    printing.say()
    best = min((m for m in words if m != "ours"), key=lambda m: float(loss[m].mean()))
    gain = loss[best] - loss["ours"]
    error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
    ahead = "lower" if gain.mean() >= 2 * error else "no lower"
    ahead = "higher" if gain.mean() <= -2 * error else ahead
    printing.say(
        f"The log-loss of ours is {ahead} than that of the best other ({words[best]}): paired "
        f"difference {gain.mean():+.3f} ± {error:.3f}."
    )
    printing.say()
