"""Comparison with other models: ``otdro compare``, ``otdro demo`` and a part of ``otdro fit``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from .. import comparison
from ..comparison import (
    AGAINST,
    CONSTANT,
    EUCLIDEAN,
    METHODS,
    OWN,
    Labelled,
    Score,
    Setting,
    Summary,
    default_model,
    inner_folds,
    on_the_cost,
    rounds,
    summarise,
    verdict,
)
from ..costs.table import principal_directions
from ..estimators.columns import column_groups
from ..files import replacing
from ..scaling import scaler
from . import printing
from .describing import described_model, directions_told, risks_told
from .errors import UserError
from .options import (
    CompareOptions,
    DemoOptions,
    Learning,
    asked,
    check_outputs,
    parameters,
    with_drift,
)
from .preparing import Prepared, pipeline, prepared
from .source import Published, published

Array = NDArray[Any]

#: Rows on which ``otdro fit`` compares; more would take long and change little.
COMPARED_ROWS = 20_000
#: A column that alone has more than this balanced accuracy, or R², is named.
LEAK = 0.99
#: Rows on which that is looked for at most.
LEAK_ROWS = 1_000
#: Nearest rows by one column that predict another row.
NEIGHBOURS = 3
#: Training rows of a split of the demo.
TRAIN = 60
#: Test rows of a split of the demo, at most.
TEST = 600
#: Rows of the made-up table of the demo.
ROWS = 1_000
#: Columns of the made-up table.
COLUMNS = 100
#: The noise of a sensor beside the unit spread of the gas.
NOISE = 3.0
#: The error of the reference that says whether there was too much of the gas.
LABEL_NOISE = 0.3


# Scores and what they say.


def scores_of(
    data: Prepared,
    options: Learning,
    repeats: int | None,
    methods: list[str],
    ours: dict[str, Any],
    source: Published | None = None,
) -> list[Score]:
    """Return the scores of the methods on all splits; a bar shows how far the fits are."""
    splits = rounds(data.y, data.task, repeats, options.seed, data.groups, options.forward)
    columns = pipeline(data, options.scale)
    more = None
    if source is not None:
        columns = source.preparation(data, options.scale)
        more = partial(source.models, data=data)
    fits = comparison.compare(
        data,
        columns,
        splits,
        methods=methods,
        seed=options.seed,
        ours=ours,
        published=more,
    )
    count = len(splits) * (len(methods) + (0 if source is None else 3))
    scores = list(printing.tracked(fits, count, "comparing models"))
    # a loss without probabilities has no log-loss
    kept = [m for m, v in scores[0].values.items() if not np.isnan(v)]
    return [replace(s, values={m: s.values[m] for m in kept}) for s in scores]


def compared(
    data: Prepared, options: Learning, ours: dict[str, Any], source: Published | None
) -> list[Summary]:
    """Return five-fold scores of the model as it is fitted beside the usual ones."""
    if len(data.y) > COMPARED_ROWS:
        order = np.random.default_rng(options.seed).permutation(len(data.y))
        data.notes.append(f"methods are compared on {COMPARED_ROWS} random rows.")
        data = data.part(np.sort(order[:COMPARED_ROWS]))
    return summarise(
        scores_of(data, options, None, [m for m in METHODS if m != EUCLIDEAN], ours, source)
    )


def leaks(data: Prepared, seed: int) -> list[str]:
    """Return notes on columns that alone tell the target of rows left out one by one.

    A row is predicted by the ``NEIGHBOURS`` other rows whose value of the column is nearest.
    """
    from sklearn.neighbors import NearestNeighbors

    order = np.random.default_rng(seed).permutation(len(data.y))
    data = data.part(np.sort(order[:LEAK_ROWS]))
    classes, code = np.unique(data.y, return_inverse=True)
    votes = np.eye(len(classes))[code] if data.task == "classification" else None
    notes = []
    for name, kind in data.kinds.items():
        column = data.X[name]
        values = column.astype("category").cat.codes if kind == "texts" else column
        search = NearestNeighbors(n_neighbors=NEIGHBOURS)
        search.fit(values.fillna(values.median()).to_numpy(dtype=float)[:, None])
        near = search.kneighbors(return_distance=False)
        if votes is None:
            error = data.y - data.y[near].mean(axis=1)
            measure, told = "R²", 1 - float(np.mean(error**2) / np.var(data.y))
        else:
            right = votes[near].sum(axis=1).argmax(axis=1) == code
            by_class = np.bincount(code, right) / np.bincount(code)
            measure, told = "balanced accuracy", float(by_class.mean())
        if told > LEAK:
            notes.append(
                f"column {name!r} alone tells the target of rows left out ({measure} {told:.3f}): "
                f"if it is known only after the target, leave it out by --drop {name}."
            )
    return notes


def tested(options: Learning) -> str:
    """Return in words on which rows models are compared."""
    if options.groups is None:
        return "five folds"
    if options.forward:
        return f"trained on the past, tested on the next {options.groups}"
    return f"each {options.groups} left out in turn"


def judged(scores: list[Summary], cost: str | None) -> dict[str, Any]:
    """Return the part of a document on the comparison with other models, where there is one."""
    return {
        "comparison": [vars(score) for score in scores],
        "verdict": verdict(scores, cost) if scores else None,
    }


def show_scores(scores: list[Summary]) -> None:
    """Print means, paired differences to this model, and a picture, for every measure."""
    for measure in dict.fromkeys(s.measure for s in scores):
        lines = {s.method: s for s in scores if s.measure == measure}
        # a constant far from the others would leave no room for them in the picture
        drawn = {name: s for name, s in lines.items() if name != CONSTANT}
        bars = printing.intervals([s.mean for s in drawn.values()], [s.se for s in drawn.values()])
        pictures = dict(zip(drawn, bars, strict=True))
        body = [
            [
                name,
                f"{line.mean:.4g} ± {_error(line.se)}",
                "" if name == OWN else difference(line),
                pictures.get(name, ""),
            ]
            for name, line in lines.items()
        ]
        printing.grid([measure, "mean ± se", "minus otdro", ""], body, (0, 3))
        printing.say()


def difference(score: Summary) -> str:
    """Return a difference of means with its error; what rounding left of 0 is 0."""
    return f"{round(score.difference, 12) + 0.0:+.3g} ± {_error(score.difference_se)}"


def _error(value: float) -> str:
    """Return a standard error; what rounding left of 0 is 0."""
    return f"{round(value, 12) + 0.0:.2g}"


# otdro compare


def compare(options: CompareOptions) -> None:
    """Compare on random splits and print; draw if a file is named."""
    splits, plot = options.splits, options.plot
    if splits < 2:
        raise UserError(f"--splits must be at least 2 for a standard error, got {splits}.")
    check_outputs(
        {"--plot": plot}, options.data, options.unlabelled, options.delta_from, options.source
    )
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{plot} must end in .png, .svg or .pdf.")
    options, origin = with_drift(options)
    ours = parameters(options)
    if options.loss == "quantile":
        raise UserError(
            "models of the mean cannot be compared with a quantile; use another --loss."
        )
    against = [name.strip() for name in (options.against or "").split(",") if name.strip()]
    for name in against:
        if name not in AGAINST:
            raise UserError(f"--against must name some of {', '.join(AGAINST)}, got {name!r}.")
    with printing.working("reading"):
        data = prepared(options)
    data.notes[:0] = leaks(data, options.seed)
    if origin is not None:
        data.notes.insert(0, f"delta = {float(options.delta):.4g} is {origin}.")
    source = published(options.source, data)
    methods = [*METHODS, *(AGAINST[name] for name in dict.fromkeys(against))]
    scores = scores_of(data, options, splits, methods, ours, source)
    if plot is not None:
        _draw(scores, plot)
    random = f"{splits} random splits, one fifth of the rows for testing"
    summaries = summarise(scores)
    document = {
        **asked("compare", options, "data", "target"),
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.kinds),
        "tested": random if options.groups is None else tested(options),
        **judged(summaries, options.cost),
        "notes": data.notes,
        "plot": None if plot is None else str(plot),
    }
    printing.tell(lambda: document, lambda: _show(document, summaries))


def _show(document: dict[str, Any], scores: list[Summary]) -> None:
    """Print the comparison for a person."""
    printing.heading(document["tested"][:1].upper() + document["tested"][1:])
    show_scores(scores)
    printing.say(f"Verdict: {document['verdict']}", "bold")
    printing.remark(document["notes"])
    if document["plot"] is not None:
        printing.say(f"drawn as {document['plot']}")


def _draw(scores: list[Score], path: Path) -> None:
    from matplotlib.figure import Figure

    from .. import plot

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    plot.comparison(figure.subplots(), scores, next(iter(scores[0].values)))
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)


# otdro demo


def demo(options: DemoOptions) -> None:
    """Show what is learned and whether it pays, where it should and on a real table."""
    reps, seed = options.reps, options.seed
    if reps < 2:
        raise UserError(f"--reps must be at least 2 for a standard error, got {reps}.")
    made, gains = sensors(seed)
    printing.heading(f"1. Made up: an electronic nose, {COLUMNS} cheap sensors of one gas")
    printing.say(
        "Chosen because a learned cost should win there: every sensor answers to the gas "
        f"with a gain of its own, under noise {NOISE:g} times as large, and the label says "
        "whether there is too much of it. What the sensors share is all that matters."
    )
    printing.say()
    printing.pairs(_learned(made, gains, seed))
    _demo_scores(made, reps, seed)
    printing.heading("2. Real: breast cancer, chosen because scikit-learn carries it")
    cancer = load_breast_cancer()
    y = cancer.target_names[cancer.target]
    _demo_scores(_labelled(cancer.data, cancer.feature_names, y), reps, seed)
    printing.say("Your own table:  otdro fit DATA.csv --target COLUMN --save model.skops")


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


def _labelled(X: Array, names: Any, y: Array) -> Labelled:
    import pandas as pd

    return Labelled(pd.DataFrame(X, columns=names), y, "classification")


def _learned(data: Labelled, gains: Array, seed: int) -> list[tuple[str, str]]:
    """Return what a fit to the first rows has learned, beside what is true."""
    X, y = data.X[:TRAIN], data.y[:TRAIN]
    setting = Setting(cv=inner_folds(y, data.task, seed), seed=seed)
    pipe = Pipeline([("columns", scaler()), ("model", default_model(data.task, setting))])
    model = pipe.fit(X, y)[-1]
    report = described_model(model, column_groups(None, list(X.columns)), str(model.delta))
    recovered = []
    if model.cost_.geometry == "euclidean":
        # a column that is divided by its scale has its gain divided as well
        true = gains / X.std(ddof=0).to_numpy()
        expensive = principal_directions(model.cost_, COLUMNS).vectors[:, -1]
        share = float(true @ expensive) ** 2 / float(true @ true)
        text = f"{share:.0%} of its most expensive direction is what the gas moves"
        recovered = [("  true structure", f"{text}; by chance {1 / COLUMNS:.0%}")]
    largest = list(report["coefficients"].items())[:4]
    right = float((pipe.predict(data.X[TRAIN:]) == data.y[TRAIN:]).mean())
    return [
        ("data", f"{TRAIN} rows x {COLUMNS} columns, {ROWS - TRAIN} other rows for the test"),
        *directions_told(report),
        *recovered,
        *risks_told(report),
        ("largest coefficients", ", ".join(f"{name} {value:+.2f}" for name, value in largest)),
        ("right on the others", f"{right:.1%}"),
    ]


def _demo_scores(data: Labelled, reps: int, seed: int) -> None:
    """Compare with other models on random splits, and print what came of it."""
    test = min(TEST, len(data.y) - TRAIN)
    splitter = StratifiedShuffleSplit(reps, train_size=TRAIN, test_size=test, random_state=seed)
    splits = list(splitter.split(data.X, data.y))
    methods = [name for name in METHODS if name != CONSTANT]
    fits = comparison.compare(data, scaler(), splits, methods=methods, seed=seed)
    scores = summarise(list(printing.tracked(fits, len(splits) * len(methods), "comparing models")))
    printing.say()
    printing.say(f"{reps} random splits: {TRAIN} rows to learn from, {test} others for the test")
    show_scores(scores)
    printing.say(f"Verdict: {verdict(scores)}", "bold")
    printing.say(on_the_cost(scores), "bold")
    printing.say()
