"""``otdro demo``: a made-up table that suits a learned cost and a real one, in under a minute."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from ..costs.directions import principal_directions
from ..experiment import Setting, compare, default_model, summarise
from ..experiment.comparison import inner_folds
from ..scaling import scaler
from . import printing
from .describing import Features
from .fit import described_model, tracked
from .showing import directions_told, risks_told, show_scores
from .verdict import on_the_cost, verdict

Array = NDArray[Any]

METHODS = ["ours", "Wasserstein", "L2", "L1", "plain"]
#: Training rows of a split, and test rows at most.
TRAIN, TEST = 40, 600
#: Coefficients that are shown.
SHOWN = 4
#: The made-up table: rows, columns, hidden causes, and the noise of a column beside a cause's 1.
ROWS, COLUMNS, CAUSES, NOISE = 1_000, 40, 2, 2.0
#: How much each cause says of the label, and the noise of the label.
WEIGHTS, LABEL_NOISE = (2.0, 0.7), 0.5


class Example(NamedTuple):
    """A table of the demonstration."""

    names: list[str]
    X: Array
    y: Array


def sensors(seed: int) -> tuple[Example, Array]:
    r"""Return made-up rows :math:`x = A'f + 2e` with labels of the causes f, and A.

    Every sensor sees a mixture of the causes and its own noise. Differences of sensors are mostly
    noise, so that moves along the span of A should be expensive, and others cheap.
    """
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((ROWS, CAUSES))
    A = rng.standard_normal((CAUSES, COLUMNS))
    X = causes @ A + NOISE * rng.standard_normal((ROWS, COLUMNS))
    says = causes @ np.array(WEIGHTS) + LABEL_NOISE * rng.standard_normal(ROWS)
    names = [f"sensor {j + 1}" for j in range(COLUMNS)]
    return Example(names, X, np.where(says > 0, "alarm", "calm")), A


def patients() -> Example:
    """Return the breast cancer data that scikit-learn carries."""
    found = load_breast_cancer()
    names = [str(name) for name in found.feature_names]
    return Example(names, found.data, found.target_names[found.target])


def demo(reps: int = 10, seed: int = 0, *, quiet: bool = False) -> None:
    """Show what is learned and whether it pays, where it should and on a real table."""
    made, A = sensors(seed)
    if not quiet:
        printing.heading(f"1. Made up: {COLUMNS} sensors that see {CAUSES} hidden causes")
        printing.say(
            "Chosen because its structure is known and suits a learned cost: moves along what "
            "the sensors share change the label, and differences of sensors are mostly noise."
        )
        printing.say()
        printing.pairs(_learned(made, A, seed))
    _beside(made, reps, seed, quiet)
    if not quiet:
        printing.heading("2. Real: breast cancer, chosen because scikit-learn carries it")
    _beside(patients(), reps, seed, quiet)
    if not quiet:
        printing.say("Your own table:  otdro fit DATA.csv --target COLUMN --save model.skops")
        printing.say("The paper's:     otdro table1 --reps 20")


def _learned(data: Example, A: Array, seed: int) -> list[tuple[str, str]]:
    """Return what a fit to the first rows has learned, beside what is true."""
    X, y = data.X[:TRAIN], data.y[:TRAIN]
    setting = Setting(cv=inner_folds(y, "classification", seed), seed=seed)
    pipe = Pipeline([("columns", scaler()), ("model", default_model("classification", setting))])
    model = pipe.fit(X, y)[-1]
    report = described_model(model, Features(data.names), str(model.delta))
    large = list(report["coefficients"].items())[:SHOWN]
    right = float((pipe.predict(data.X[TRAIN:]) == data.y[TRAIN:]).mean())
    return [
        ("data", f"{TRAIN} rows x {COLUMNS} columns, {ROWS - TRAIN} other rows for the test"),
        *directions_told(report),
        *_recovered(model.cost_, A, X),
        *risks_told(report),
        ("largest coefficients", ", ".join(f"{name} {value:+.2f}" for name, value in large)),
        ("right on the others", f"{right:.1%}"),
    ]


def _recovered(cost: Any, A: Array, X: Array) -> list[tuple[str, str]]:
    """Return how much of the most expensive directions lies in the span of the true mixtures."""
    if cost.geometry != "euclidean":
        return []
    found = principal_directions(cost, COLUMNS).vectors[:, -CAUSES:]
    # a column that is divided by its scale has its mixture divided as well
    span = np.linalg.qr((A / X.std(axis=0)).T)[0]
    share = float((span.T @ found) ** 2 @ np.ones(CAUSES) @ np.ones(CAUSES)) / CAUSES
    text = f"{share:.0%} of its {CAUSES} most expensive directions are what the causes move"
    return [("  true structure", f"{text}; by chance {CAUSES / COLUMNS:.0%}")]


def _beside(data: Example, reps: int, seed: int, quiet: bool) -> None:
    """Compare with other models on random splits, and print what came of it."""
    import pandas as pd

    test = min(TEST, len(data.y) - TRAIN)
    splitter = StratifiedShuffleSplit(reps, train_size=TRAIN, test_size=test, random_state=seed)
    splits = list(splitter.split(data.X, data.y))
    X = pd.DataFrame(data.X, columns=data.names)
    found = compare(scaler(), X, data.y, "classification", splits, methods=METHODS, seed=seed)
    scores = summarise(tracked(found, len(splits), len(METHODS), quiet))
    if quiet:
        return
    printing.say()
    printing.say(f"{reps} random splits: {TRAIN} rows to learn from, {test} others for the test")
    show_scores(scores)
    printing.say(f"Verdict: {verdict(scores)}", "bold")
    printing.say(on_the_cost(scores), "bold")
    printing.say()
