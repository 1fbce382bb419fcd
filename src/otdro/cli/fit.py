"""``otdro fit``, ``otdro compare`` and ``otdro demo``: learn from a table, say what was learned.

The model that is compared with others on splits of the table is the one that is fitted and saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from .. import comparison
from ..chunks import Chunk, Chunks
from ..comparison import (
    AGAINST,
    CONSTANT,
    EUCLIDEAN,
    METHODS,
    MIX,
    OWN,
    Labelled,
    Score,
    Setting,
    Summary,
    default_model,
    fit_model,
    inner_folds,
    prepare,
    rounds,
    summarise,
    verdict,
)
from ..files import replacing
from ..inspection import Stability, audit, stability
from ..persistence import check_name
from ..persistence import save as write_model
from ..scaling import AUTO, scaler
from . import printing
from .describing import (
    attack,
    attack_told,
    coefficients_told,
    described,
    directions_told,
    risks_told,
)
from .errors import UserError
from .options import (
    CompareOptions,
    DemoOptions,
    FitOptions,
    Learning,
    asked,
    check_outputs,
    parameters,
    with_drift,
)
from .preparing import IN_MEMORY, Array, Prepared, columns_as, pipeline, prepared
from .reading import PIECE, Source, pieces
from .source import Published, published
from .values import required_numbers

#: Training rows of a split of the demo.
TRAIN = 60
#: Rows and columns of the simulated table of the demo.
ROWS = 1_000
COLUMNS = 100
#: The noise of a sensor, in standard deviations of the gas.
NOISE = 3.0


class Task(NamedTuple):
    """What ``fit`` and ``compare`` start from: the table, parameters of our model, its source."""

    options: Any
    data: Prepared
    ours: dict[str, Any]
    source: Published | None
    origin: str | None

    def columns(self) -> Any:
        """Return the unfitted preparation of the columns."""
        if self.source is None:
            return pipeline(self.data, self.options.scale)
        return self.source.preparation(self.data, self.options.scale)


def started(options: Learning) -> Task:
    """Read the table; take delta and the published model from where the options say."""
    options, origin = with_drift(options)
    ours = parameters(options)
    with printing.working("reading"):
        data = prepared(options)
    if origin is not None:
        data.notes.insert(0, f"delta = {float(options.delta):.4g} is {origin}.")
    source = published(options.source, data)
    if source is not None and source.saved is None and options.scale == "auto":
        options = replace(options, scale="standard")
    return Task(options, data, ours, source, origin)


# otdro fit


def fit(options: FitOptions) -> None:
    """Fit, compare, print, save and write the page of the fit."""
    save, page = options.save, options.report
    if save is not None:
        check_name(save)
    check_outputs({"--save": save, "--report": page}, *options.inputs)
    task = started(options)
    options, data = task.options, task.data
    with printing.working("fitting"):
        model, notes = fitted(task)
    scores = []
    if options.compare and options.is_of_quantile:
        notes.append("models of the mean cannot be compared with a quantile, so none is fitted.")
    elif options.compare:
        scores = compared(task)
    if save is not None:
        write_model(model, save)
    stable = None
    if options.refits is not None:
        with printing.working(f"fitting again, {options.refits} times"):
            stable = stability(
                model, data.X, data.y, refits=options.refits, random_state=options.seed
            )
    result = audit(model, data.X, data.y, random_state=options.seed)
    if page is not None:
        from ..report import write

        with printing.working("writing the page"):
            write(
                page,
                result,
                model=model,
                scores=scores,
                stability=stable,
                title=f"{options.target} from {Path(options.data).name}",
                notes=[*data.notes, *notes],
                training=True,
                held_out=tested(options),
                row_names=[str(row) for row in data.X.index],
            )
    classes = getattr(model[-1], "classes_", ())
    report = {
        **asked("fit", options, "data", "target"),
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.kinds),
        "features": len(result.names),
        "classes": [str(c) for c in classes],
        "counts": [int((data.y == c).sum()) for c in classes],
        "scale": AUTO if options.scale == "auto" else options.scale,
        "environments": None if data.groups is None else len(set(data.groups)),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        "tested": tested(options),
        **described(model[-1], result, task.origin or options.delta),
        "attack": attack(model[-1], result, data),
        "comparison": [vars(score) for score in scores],
        "verdict": verdict(scores, options.cost) if scores else None,
        "stability": None if stable is None else stable.to_dict(),
        "notes": data.notes + notes,
        "saved": None if save is None else str(save),
        "report": None if page is None else str(page),
    }
    printing.tell(report, lambda: show(report, scores, stable))


def fitted(task: Task) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and notes; a folder of many rows is read in pieces.

    With a published model the last step is its average with our model.
    """
    options, data, source = task.options, task.data, task.source
    columns, notes = task.columns(), []
    cv = inner_folds(data.y, data.task, options.seed, data.groups) if data.folder is None else 5
    setting = Setting(cv=cv, seed=options.seed)
    model = default_model(data.task, setting).set_params(**task.ours)
    with warnings.catch_warnings(record=True, action="always") as caught:
        if data.folder is not None:
            columns.fit(data.X, data.y)
            chunks = FolderRows(data.folder, data, options.target, columns)
            model.fit(chunks, None)
            notes.append(
                f"the model is fitted to all {chunks.n} rows, in pieces; columns are prepared from "
                f"{len(data.y)} random ones, and counts and comparisons are of these."
            )
        else:
            rows = prepare(columns, data)
            if source is not None:
                model = source.models(columns, model, data)[MIX]
            fit_model(model, rows)
    if source is not None:
        notes.append(model.message_)
        if source.saved is not None:
            notes.append(f"columns of {source.file} are prepared as it prepares them.")
    if np.size(model.robust_risk_) > 1:
        notes.append(
            f"each of the {len(model.classes_)} classes is fitted against the rest: the model of "
            "all classes at once is for 3 to 20 of them, the logistic loss and order 1."
        )
    notes += dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    return Pipeline([("columns", columns), ("model", model)]), notes


class FolderRows(Chunks):
    """The rows of a folder of Parquet files, their features made by ``columns``, in pieces."""

    def __init__(self, source: Source, data: Prepared, target: str, columns: Any) -> None:
        self.source = source
        self.data = data
        self.target = target
        self.transformer = columns
        self.n = sum(int(piece[target].notna().sum()) for piece in pieces(source, PIECE))
        self.d = len(columns.get_feature_names_out())
        self.dtype = np.dtype(float)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the pieces in the order of the rows; rows without a target are left out."""
        number = start = 0
        for piece in pieces(self.source, PIECE):
            rows = piece[piece[self.target].notna()]
            if len(rows):
                X = self.transformer.transform(columns_as(rows, self.data.kinds))
                yield Chunk(number, start, np.asarray(X, dtype=float), self._targets(rows))
                number, start = number + 1, start + len(rows)

    def _targets(self, rows: Any) -> Array:
        """Return the target in the type that the prepared rows gave it."""
        column, kind = rows[self.target], self.data.y.dtype
        if kind.kind in "US":
            return np.asarray(column.astype(str).tolist(), dtype=str)
        return required_numbers(column).astype(kind)


def show(report: dict[str, Any], scores: list[Summary], stable: Stability | None) -> None:
    """Print the report for a person."""
    counts = [f"{c} {n}" for c, n in zip(report["classes"], report["counts"], strict=True)]
    kind = f"{len(counts)} classes" if counts else "a number"
    printing.heading("Data")
    lines = [
        ("rows, columns", f"{report['rows']}, {report['columns']} ({report['features']} features)"),
        ("task", f"{report['task']} ({kind}; --task overrides)"),
        ("scaling", f"{report['scale']} (--scale overrides)"),
    ]
    printing.pairs(lines + ([("classes", ", ".join(counts))] if counts else []))
    printing.heading("What was learned")
    printing.pairs([("loss", report["loss"]), *directions_told(report), *risks_told(report)])
    if report["weights"] is not None:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in report["weights"].items())
        printing.pairs([("average of", shares)])
    printing.heading("Coefficients, largest first (all: --json)")
    printing.pairs(coefficients_told(report))
    if report["attack"]:
        printing.heading("What the adversary attacks")
        printing.pairs(attack_told(report["attack"]))
    if scores:
        printing.heading(f"Beside other models ({report['tested']}; mean, standard error)")
        show_scores(scores, report["verdict"])
    if stable is not None:
        first_line, *others = stable.summary().splitlines()
        printing.heading(first_line)
        for line in others:
            printing.say(line[:1].upper() + line[1:] + ".")
    printing.remark(report["notes"])
    if report["report"] is not None:
        printing.say(f"\nthe page is {report['report']}")
    if report["saved"] is not None:
        printing.say(f"\nsaved as {report['saved']}")


# otdro compare


def compare(options: CompareOptions) -> None:
    """Compare on random splits and print; draw if a file is named."""
    splits, plot = options.splits, options.plot
    check_outputs({"--plot": plot}, *options.inputs)
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{plot} must end in .png, .svg or .pdf.")
    if options.is_of_quantile:
        raise UserError(
            "models of the mean cannot be compared with a quantile; use another --loss."
        )
    against = [name.strip() for name in (options.against or "").split(",") if name.strip()]
    for name in against:
        if name not in AGAINST:
            raise UserError(f"--against must name some of {', '.join(AGAINST)}, got {name!r}.")
    task = started(options)
    options, data = task.options, task.data
    methods = [*METHODS, *(AGAINST[name] for name in dict.fromkeys(against))]
    scores = scores_of(task, splits, methods)
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

    def show() -> None:
        printing.heading(document["tested"][:1].upper() + document["tested"][1:])
        show_scores(summaries, document["verdict"])
        printing.remark(data.notes)
        if plot is not None:
            printing.say(f"drawn as {plot}")

    printing.tell(document, show)


def scores_of(task: Task, repeats: int | None, methods: list[str]) -> list[Score]:
    """Return the scores of the methods on all splits; a bar shows how far the fits are."""
    options, data, source = task.options, task.data, task.source
    splits = rounds(data.y, data.task, repeats, options.seed, data.groups, options.forward)
    fits = comparison.compare(
        data,
        task.columns(),
        splits,
        methods=methods,
        seed=options.seed,
        ours=task.ours,
        published=None if source is None else partial(source.models, data=data),
    )
    count = len(splits) * (len(methods) + (0 if source is None else 3))
    scores = list(printing.tracked(fits, count, "comparing models"))
    # a loss without probabilities has no log-loss
    kept = [m for m, v in scores[0].values.items() if not np.isnan(v)]
    return [replace(s, values={m: s.values[m] for m in kept}) for s in scores]


def compared(task: Task) -> list[Summary]:
    """Return five-fold scores of the model as it is fitted beside the usual ones."""
    data = task.data
    if len(data.y) > IN_MEMORY:
        order = np.random.default_rng(task.options.seed).permutation(len(data.y))
        data.notes.append(f"methods are compared on {IN_MEMORY} random rows.")
        task = task._replace(data=data.part(np.sort(order[:IN_MEMORY])))
    return summarise(scores_of(task, None, [m for m in METHODS if m != EUCLIDEAN]))


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
    rng = np.random.default_rng(seed)
    gas = rng.standard_normal((ROWS, 1))
    gains = rng.standard_normal((1, COLUMNS))
    X = gas @ gains + NOISE * rng.standard_normal((ROWS, COLUMNS))
    table = pd.DataFrame(X, columns=[f"sensor {j + 1}" for j in range(COLUMNS)])
    return Labelled(table, np.where(gas[:, 0] > 0, "alarm", "calm"), "classification")


def _demonstrate(data: Labelled, options: DemoOptions) -> None:
    """Print what a fit to a split has learned, and compare with other models on all splits."""
    reps, seed = options.reps, options.seed
    splitter = StratifiedShuffleSplit(reps, train_size=TRAIN, random_state=seed)
    splits = list(splitter.split(data.X, data.y))
    first = data.part(splits[0][0])
    setting = Setting(cv=inner_folds(first.y, data.task, seed), seed=seed)
    model = Pipeline([("columns", scaler()), ("model", default_model(data.task, setting))])
    model.fit(first.X, first.y)
    report = described(model[-1], audit(model, first.X, first.y), "cv")
    methods = [name for name in METHODS if name != CONSTANT]
    fits = comparison.compare(data, scaler(), splits, methods=methods, seed=seed)
    scores = summarise(list(printing.tracked(fits, len(splits) * len(methods), "comparing models")))
    printing.say()
    printing.pairs([*directions_told(report), *risks_told(report)])
    printing.say(f"\n{reps} random splits: {TRAIN} rows to learn from, all others for the test")
    show_scores(scores, verdict(scores))
