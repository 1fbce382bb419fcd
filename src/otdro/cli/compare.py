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
    rounds,
    summarise,
    verdict,
)
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
#: Training rows of a split of the demo.
TRAIN = 60
#: Test rows of a split of the demo, at most.
TEST = 600
#: Rows and columns of the simulated table of the demo.
ROWS = 1_000
COLUMNS = 100
#: The noise of a sensor, in standard deviations of the gas.
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


def tested(options: Learning) -> str:
    """Return in words on which rows models are compared."""
    if options.groups is None:
        return "five folds"
    if options.forward:
        return f"trained on the past, tested on the next {options.groups}"
    return f"each {options.groups} left out in turn"


def show_scores(scores: list[Summary], sentence: str) -> None:
    """Print means and paired differences to this model for every measure, and the verdict."""
    for measure in dict.fromkeys(s.measure for s in scores):
        body = [
            [
                s.method,
                f"{s.mean:.4g} ± {s.se:.2g}",
                "" if s.method == OWN else f"{s.difference:+.3g} ± {s.difference_se:.2g}",
            ]
            for s in scores
            if s.measure == measure
        ]
        printing.grid([measure, "mean ± se", "minus otdro"], body)
        printing.say()
    printing.say(f"Verdict: {sentence}", "bold")


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
        "comparison": [vars(score) for score in summaries],
        "verdict": verdict(summaries, options.cost),
        "notes": data.notes,
        "plot": None if plot is None else str(plot),
    }
    printing.tell(lambda: document, lambda: _show(document, summaries))


def _show(document: dict[str, Any], scores: list[Summary]) -> None:
    """Print the comparison for a person."""
    printing.heading(document["tested"][:1].upper() + document["tested"][1:])
    show_scores(scores, document["verdict"])
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
    if options.reps < 2:
        raise UserError(f"--reps must be at least 2 for a standard error, got {options.reps}.")
    printing.heading(f"1. Simulated: an electronic nose, {COLUMNS} cheap sensors of one gas")
    printing.say(
        "Chosen because a learned cost should win there: every sensor answers to the gas "
        f"with a gain of its own, under noise {NOISE:g} times as large, and the label says "
        "whether there is too much of it. What the sensors share is all that matters."
    )
    _demonstrate(sensors(options.seed), options)
    printing.heading("2. Real: breast cancer, chosen because scikit-learn carries it")
    cancer = load_breast_cancer(as_frame=True)
    y = cancer.target_names[cancer.target]
    _demonstrate(Labelled(cancer.data, y, "classification"), options)
    printing.say("\nYour own table:  otdro fit DATA.csv --target COLUMN --save model.skops")


def sensors(seed: int) -> Labelled:
    r"""Return simulated rows :math:`x = f a + 3e`, labelled by the concentration f.

    Every cheap sensor answers to one gas with a gain a of its own, under its own noise. No sensor
    says much, and what they say together lies along a, so that moves along a should be expensive,
    and others cheap.
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    gas = rng.standard_normal((ROWS, 1))
    gains = rng.standard_normal((1, COLUMNS))
    X = gas @ gains + NOISE * rng.standard_normal((ROWS, COLUMNS))
    measured = gas[:, 0] + LABEL_NOISE * rng.standard_normal(ROWS)
    table = pd.DataFrame(X, columns=[f"sensor {j + 1}" for j in range(COLUMNS)])
    return Labelled(table, np.where(measured > 0, "alarm", "calm"), "classification")


def _demonstrate(data: Labelled, options: DemoOptions) -> None:
    """Print what a fit to a split has learned, and compare with other models on all splits."""
    reps, seed = options.reps, options.seed
    test = min(TEST, len(data.y) - TRAIN)
    splitter = StratifiedShuffleSplit(reps, train_size=TRAIN, test_size=test, random_state=seed)
    splits = list(splitter.split(data.X, data.y))
    first = data.part(splits[0][0])
    setting = Setting(cv=inner_folds(first.y, data.task, seed), seed=seed)
    model = Pipeline([("columns", scaler()), ("model", default_model(data.task, setting))])
    model.fit(first.X, first.y)
    report = described_model(model[-1], column_groups(None, list(data.X.columns)), "cv")
    methods = [name for name in METHODS if name != CONSTANT]
    fits = comparison.compare(data, scaler(), splits, methods=methods, seed=seed)
    scores = summarise(list(printing.tracked(fits, len(splits) * len(methods), "comparing models")))
    printing.say()
    printing.pairs([*directions_told(report), *risks_told(report)])
    printing.say(f"\n{reps} random splits: {TRAIN} rows to learn from, {test} others for the test")
    show_scores(scores, verdict(scores))
