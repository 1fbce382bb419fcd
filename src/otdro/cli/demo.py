"""``otdro demo``: a made-up table that suits a learned cost and a real one, in under a minute."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from ..comparison import (
    Labelled,
    Setting,
    compare,
    default_model,
    inner_folds,
    on_the_cost,
    summarise,
    verdict,
)
from ..costs.directions import principal_directions
from ..scaling import scaler
from . import printing
from .describing import Features
from .fit import described_model, tracked
from .showing import directions_told, risks_told, show_scores

Array = NDArray[Any]

METHODS = ["ours", "Wasserstein", "L2", "L1", "plain"]
#: Training rows of a split, and test rows at most.
TRAIN, TEST = 60, 600
#: Coefficients that are shown.
SHOWN = 4
#: The made-up table: rows, columns, and the noise of a sensor beside the unit spread of the gas.
ROWS, COLUMNS, NOISE = 1_000, 100, 3.0
#: The error of the reference that says whether there was too much of the gas.
LABEL_NOISE = 0.3


def sensors(seed: int) -> tuple[Labelled, Array]:
    r"""Return made-up rows :math:`x = f a + 3e`, labelled by the concentration f, and the gains a.

    An electronic nose: every cheap sensor answers to one gas with a gain of its own, beneath its
    own noise. No sensor says much, and what they say together lies along a, so that moves along a
    should be expensive, and others cheap.
    """
    rng = np.random.default_rng(seed)
    gas = rng.standard_normal((ROWS, 1))
    gains = rng.standard_normal((1, COLUMNS))
    X = gas @ gains + NOISE * rng.standard_normal((ROWS, COLUMNS))
    measured = gas[:, 0] + LABEL_NOISE * rng.standard_normal(ROWS)
    names = [f"sensor {j + 1}" for j in range(COLUMNS)]
    return _labelled(X, names, np.where(measured > 0, "alarm", "calm")), gains[0]


def patients() -> Labelled:
    """Return the breast cancer data that scikit-learn carries."""
    found = load_breast_cancer()
    return _labelled(found.data, found.feature_names, found.target_names[found.target])


def _labelled(X: Array, names: Any, y: Array) -> Labelled:
    import pandas as pd

    return Labelled(pd.DataFrame(X, columns=names), y, "classification")


def demo(reps: int, seed: int) -> None:
    """Show what is learned and whether it pays, where it should and on a real table."""
    made, gains = sensors(seed)
    printing.heading(f"1. Made up: an electronic nose, {COLUMNS} cheap sensors of one gas")
    printing.say(
        "Chosen because a learned cost should win there: every sensor answers to the gas "
        f"with a gain of its own, under noise {NOISE:g} times as large, and the label says "
        "whether there is too much of it. What the sensors share is all that matters."
    )
    printing.say()
    printing.pairs(_learned(made, gains, seed))
    _beside(made, reps, seed)
    printing.heading("2. Real: breast cancer, chosen because scikit-learn carries it")
    _beside(patients(), reps, seed)
    printing.say("Your own table:  otdro fit DATA.csv --target COLUMN --save model.skops")


def _learned(data: Labelled, gains: Array, seed: int) -> list[tuple[str, str]]:
    """Return what a fit to the first rows has learned, beside what is true."""
    X, y = data.X[:TRAIN], data.y[:TRAIN]
    setting = Setting(cv=inner_folds(y, data.task, seed), seed=seed)
    pipe = Pipeline([("columns", scaler()), ("model", default_model(data.task, setting))])
    model = pipe.fit(X, y)[-1]
    report = described_model(model, Features(list(X.columns)), str(model.delta))
    # a column that is divided by its scale has its gain divided as well
    true = gains / X.std(ddof=0).to_numpy()
    large = list(report["coefficients"].items())[:SHOWN]
    right = float((pipe.predict(data.X[TRAIN:]) == data.y[TRAIN:]).mean())
    return [
        ("data", f"{TRAIN} rows x {COLUMNS} columns, {ROWS - TRAIN} other rows for the test"),
        *directions_told(report),
        *_recovered(model.cost_, true),
        *risks_told(report),
        ("largest coefficients", ", ".join(f"{name} {value:+.2f}" for name, value in large)),
        ("right on the others", f"{right:.1%}"),
    ]


def _recovered(cost: Any, true: Array) -> list[tuple[str, str]]:
    """Return how much of the most expensive direction is what the gas moves."""
    if cost.geometry != "euclidean":
        return []
    found = principal_directions(cost, COLUMNS).vectors[:, -1]
    share = float(true @ found) ** 2 / float(true @ true)
    text = f"{share:.0%} of its most expensive direction is what the gas moves"
    return [("  true structure", f"{text}; by chance {1 / COLUMNS:.0%}")]


def _beside(data: Labelled, reps: int, seed: int) -> None:
    """Compare with other models on random splits, and print what came of it."""
    test = min(TEST, len(data.y) - TRAIN)
    splitter = StratifiedShuffleSplit(reps, train_size=TRAIN, test_size=test, random_state=seed)
    splits = list(splitter.split(data.X, data.y))
    found = compare(data, scaler(), splits, methods=METHODS, seed=seed)
    scores = summarise(tracked(found, len(splits), len(METHODS)))
    printing.say()
    printing.say(f"{reps} random splits: {TRAIN} rows to learn from, {test} others for the test")
    show_scores(scores)
    printing.say(f"Verdict: {verdict(scores)}", "bold")
    printing.say(on_the_cost(scores), "bold")
    printing.say()
