"""``otdro fit``, ``otdro compare`` and ``otdro demo``: learn from a table, say what was learned.

The model that is compared with others on splits of the table is the one that is fitted and saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from .. import comparison
from ..chunks import Chunk, Chunks
from ..comparison import AGAINST, METHODS, Labelled, Score, Setting, Summary, summarise, verdict
from ..costs.table import Grid, cost_name
from ..design import WRITTEN_UP_TO
from ..estimators.columns import PARTS, ColumnGroups
from ..estimators.summary import cost_in_words
from ..files import replacing
from ..inspection import Audit, Stability, audit, stability
from ..inspection.summary import SHOWN
from ..persistence import check_name
from ..persistence import save as write_model
from ..scaling import AUTO, scaler
from . import preparing, printing
from .errors import UserError, in_options
from .options import CompareOptions, DemoOptions, FitOptions, Learning
from .preparing import Array, Prepared
from .reading import PIECE, Source, pieces, required_numbers

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
    source: preparing.Published | None
    origin: str | None

    def columns(self) -> Any:
        """Return the unfitted preparation of the columns."""
        if self.source is None:
            return preparing.pipeline(self.data, self.options.scale)
        return self.source.preparation(self.data, self.options.scale)


def started(options: Learning) -> Task:
    """Read the table; take delta and the published model from where the options say."""
    options, origin = preparing.with_drift(options)
    ours = preparing.parameters(options)
    with printing.working("reading"):
        data = preparing.prepared(options)
    if origin is not None:
        data.notes.insert(0, f"delta = {float(options.delta):.4g} is {origin}.")
    source = preparing.published(options.source, data)
    if source is not None and source.saved is None and options.scale == "auto":
        options = replace(options, scale="standard")
    return Task(options, data, ours, source, origin)


def shared_document(
    task: Task, command: str, scores: list[Summary], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the documents of ``fit`` and ``compare`` share."""
    options, data = task.options, task.data
    return {
        **printing.asked(command, options, "data", "target"),
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.kinds),
        "tested": tested(options),
        "comparison": [vars(score) for score in scores],
        "verdict": verdict(scores, options.cost) if scores else None,
        "notes": [*data.notes, *notes],
    }


# otdro fit


def fit(options: FitOptions) -> None:
    """Fit, compare, print, save and write the page of the fit."""
    save, page = options.save, options.report
    if save is not None:
        check_name(save)
    printing.check_outputs({"--save": save, "--report": page}, *options.inputs)
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
        **shared_document(task, "fit", scores, notes),
        "features": len(result.names),
        "classes": [str(c) for c in classes],
        "counts": [int((data.y == c).sum()) for c in classes],
        "scale": AUTO if options.scale == "auto" else options.scale,
        "environments": None if data.groups is None else len(set(data.groups)),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        **described(model[-1], result, task.origin or options.delta),
        "attack": attack(model[-1], result, data),
        "stability": None if stable is None else stable.to_dict(),
        "saved": save,
        "report": page,
    }
    printing.tell(report, lambda: show(report, scores, stable))


def fitted(task: Task) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and notes; a folder of many rows is read in pieces.

    With a published model the last step is its average with our model.
    """
    options, data, source = task.options, task.data, task.source
    columns, notes = task.columns(), []
    setting = Setting(seed=options.seed)
    if data.folder is None:
        cv = comparison.inner_folds(data.y, data.task, options.seed, data.groups)
        setting = replace(setting, cv=cv)
    model = comparison.default_model(data.task, setting).set_params(**task.ours)
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
            rows = comparison.prepare(columns, data)
            if source is not None:
                model = source.models(columns, model, data)[comparison.MIX]
            comparison.fit_model(model, rows)
    if source is not None:
        notes.append(model.message_)
        if source.saved is not None:
            notes.append(f"columns of {source.file} are prepared as it prepares them.")
    if np.size(model.robust_risk_) > 1:
        notes.append(
            f"each of the {len(model.classes_)} classes is fitted against the rest: the model of "
            "all classes at once is for 3 to 20 of them, the logistic loss and order 1."
        )
    notes += dict.fromkeys(" ".join(in_options(str(w.message)).split()) for w in caught)
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
                X = self.transformer.transform(preparing.columns_as(rows, self.data.kinds))
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


# A fitted model in numbers: prices, coefficients, delta, what the adversary attacks.


def directions(
    cost: Any, features: ColumnGroups, scale: Array, most: int = 3
) -> dict[str, list[dict[str, Any]]]:
    """Return the cheapest and the most expensive directions that a row can move in, each once.

    The unit is one standard deviation of a column of numbers, ``scale`` (d,), or one switch in a
    column of categories: its indicators sum to one, so that only directions in which they sum to
    zero are moves.
    """
    # directions take the cube of the features
    if cost.matrix is None or len(features.names) > WRITTEN_UP_TO:
        return {}
    found = features.directions(cost, scale)
    priced = [
        {"price": float(price), "along": features.along(vector, scale)}
        for price, vector in zip(found.prices, found.vectors.T, strict=True)
    ]
    few = min(most, (len(priced) + 1) // 2)
    return {"cheapest": priced[:few], "most_expensive": priced[few:][::-1][:most]}


def switches(cost: Any, features: ColumnGroups) -> dict[str, dict[str, float]]:
    """Return the prices of all switches of each text column, the cheapest first."""
    if cost.matrix is None:
        return {}
    unit = np.eye(len(features.names))
    priced = {}
    for column, values in features.categories.items():
        own = zip(values, unit[features.indices[column]], strict=True)
        prices = sorted(
            (float(cost.norm(end - start)), f"{before} <-> {after}")
            for (before, start), (after, end) in combinations(own, 2)
        )
        if prices:
            priced[column] = {name: price for price, name in prices}
    return priced


def coefficients(model: Any, features: ColumnGroups) -> dict[str, Any]:
    """Return all coefficients by column, largest first; of several classes, by class.

    Of a column of categories they are {category: coefficient}.
    """
    by_class = []
    for row in np.atleast_2d(model.coef_):
        columns: dict[str, Any] = {}
        for column, own in features.indices.items():
            values = row[own].tolist()
            known = features.categories.get(column)
            named = None if known is None else dict(zip(known, values, strict=True))
            columns[column] = values[0] if named is None else _largest_first(named)
        by_class.append(_largest_first(columns))
    if len(by_class) == 1:
        return by_class[0]
    return {str(c): columns for c, columns in zip(model.classes_, by_class, strict=True)}


def _largest_first(values: dict[str, Any]) -> dict[str, Any]:
    """Return coefficients by their size; that of a column is the largest of its categories."""

    def size(name: str) -> float:
        value = values[name]
        return max(map(abs, value.values())) if isinstance(value, dict) else abs(value)

    return {name: values[name] for name in sorted(values, key=size, reverse=True)}


def attack(model: Any, audited: Audit, data: Prepared) -> dict[str, Any]:
    """Return the rows that are cheapest to make wrong, and the columns of the worst-case loss.

    Rows are those of the index of ``data.X`` with the price of their move, as in an audit. A
    column's share is of the change of the score; of a column of categories, ``switches`` has the
    largest switch and its mass in rows: a row may go a part of the way. Of several models the
    columns are those of the class whose risk rises most. A model that was fitted to more rows than
    are at hand is attacked on those that are.
    """
    class_, coef = None, np.atleast_2d(model.coef_)
    if np.ndim(model.robust_risk_) > 0:
        rise = np.ravel(model.robust_risk_) - np.ravel(model.empirical_risk_)
        class_ = model.classes_[rise.argmax()]
        coef = coef[[rise.argmax()]]
    # an average of models has no worst case of its own
    if not (hasattr(model, "worst_case") and model.delta_ > 0 and np.any(model.coef_)):
        return {}
    Z, features = audited.X, audited.model.groups
    worst = model.worst_case(class_, rows=None if data.folder is None else (Z, data.y))
    moved = worst.points - Z[worst.origin]
    if len(coef) > 1:
        # of the softmax model: the difference of the two classes whose scores part most
        change = moved @ coef.T
        coef = coef[change.argmax(axis=1)] - coef[change.argmin(axis=1)]
    changes = features.sums(worst.weights @ np.abs(moved * coef))
    total = sum(changes.values())
    shares = {column: change / total for column, change in changes.items() if change > 0}
    columns = dict(list(_largest_first(shares).items())[:SHOWN])
    switched = {}
    for column in columns:
        if column in features.categories:
            switch = features.switch(column, worst.weights @ moved)
            mass = worst.weights @ np.abs(moved[:, features.indices[column]]).sum(axis=1) / 2
            switched[column] = {"from": switch.before, "to": switch.after, "rows": float(mass)}
    movable = (audited.price > 0) & np.isfinite(audited.price)
    cheapest = [i for i in np.argsort(audited.price, kind="stable") if movable[i]][:SHOWN]
    return {
        "class": None if class_ is None else str(class_),
        "rows": [{"row": str(data.X.index[i]), "price": float(audited.price[i])} for i in cheapest],
        "columns": columns,
        "switches": switched,
        "shortfall": float(worst.shortfall),
    }


def described(model: Any, audited: Audit, delta_by: str) -> dict[str, Any]:
    """Return what there is to say of our estimator, audited on the rows that it was fitted to."""
    cost, features = model.cost_, audited.model.groups
    return {
        "loss": str(getattr(model, "loss", type(getattr(model, "loss_", None)).__name__.lower())),
        "cost": cost_name(cost),
        "cost_in_words": cost_in_words(cost),
        "order": int(model.ball_.order),
        "delta": float(model.delta_),
        "delta_by": delta_by,
        "delta_in_words": audited.in_words(float(model.delta_)),
        "deviations_of": audited.model.deviations_of,
        # an average of models has no certificate of its own
        "empirical_risk": getattr(model, "empirical_risk_", None),
        "robust_risk": model.robust_risk_,
        "gap": getattr(model, "gap_", None),
        "directions": directions(cost, features, audited.scale),
        "switches": switches(cost, features),
        "coefficients": coefficients(model, features),
        "weights": getattr(model, "weights_", None),
    }


# The same in words.


def directions_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the cost in words, with the prices of moves and switches if it has a matrix."""
    found = report["directions"]
    if not found:
        return [("cost", report["cost_in_words"])]
    unit = "one standard deviation of a number, or one switch of a category"
    lines = [("cost", f"{report['cost_in_words']}; price of a unit move ({unit}) along")]
    for name, title in (("cheapest", "  cheapest"), ("most_expensive", "  most expensive")):
        for way in found[name]:
            along = ", ".join(f"{value:+.2f} {key}" for key, value in way["along"].items())
            lines.append((title, f"{way['price']:.3g}: {along}"))
            title = ""
    for column, prices in list(report["switches"].items())[:SHOWN]:
        told = [f"{name} {price:.3g}" for name, price in prices.items()]
        # those of three categories are three
        if len(told) > PARTS:
            told = [told[0], told[-1], f"and {len(told) - 2} between"]
        lines.append((f"  switch {column}", ", ".join(told)))
    return lines


def coefficients_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the largest coefficients, a line per column; of several classes a line per class."""
    by_column = report["coefficients"]
    if len(report["classes"]) <= 2:
        return [
            (column, first(value.items(), "+.4g") if isinstance(value, dict) else f"{value:+.4g}")
            for column, value in list(by_column.items())[:SHOWN]
        ]
    lines = []
    for label, columns in by_column.items():
        flat: dict[str, float] = {}
        for column, value in columns.items():
            if isinstance(value, dict):
                flat |= {f"{column}={category}": own for category, own in value.items()}
            else:
                flat[column] = value
        lines.append((label, first(_largest_first(flat).items(), "+.3g")))
    return lines


def attack_told(worst: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the columns and rows that the adversary attacks."""
    lines = [] if worst["class"] is None else [("class", worst["class"])]
    columns = first(worst["columns"].items(), ".0%")
    lines.append(("columns", f"{columns} (shares of the change of the score in the worst loss)"))
    if worst["switches"]:
        moved = [
            f"{column}: {switch['from']} -> {switch['to']}, {switch['rows']:.1%} of rows' worth"
            for column, switch in worst["switches"].items()
        ]
        unit = "means over rows, each of which may go a part of the way"
        lines.append(("switches", f"{'; '.join(moved)} ({unit})"))
    if worst["rows"]:
        rows = first([(f"row {line['row']}", line["price"]) for line in worst["rows"]], ".3g")
        lines.append(("rows", f"{rows} (cheapest to make wrong, and at which cost)"))
    return lines


def first(values: Collection[tuple[str, float]], form: str, most: int = 4) -> str:
    """Return the first names with their values, and how many there are more."""
    text = ", ".join(f"{name} {value:{form}}" for name, value in list(values)[:most])
    return text + (f" and {len(values) - most} more" if len(values) > most else "")


def risks_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return delta and its meaning, and the risks with their certificate."""
    by = report["delta_by"]
    if not by.startswith("the "):
        by = {"cv": "chosen by folds", "theory": "chosen by theory"}.get(by, "as given")
    lines = [
        ("delta", f"{report['delta']:.4g}, {by} ({report['delta_in_words']})"),
        ("deviations", f"standard deviations {report['deviations_of']}"),
    ]
    classes = report.get("classes", [])
    robust = _risk(report["robust_risk"], classes)
    if report["gap"] is None:
        return [*lines, ("robust risk", f"{robust} (of the average)")]
    gap = float(np.max(report["gap"]))
    certified = f"certified to {gap:.1g}" if gap > 0 else "exact up to rounding"
    lines.append(("empirical risk", _risk(report["empirical_risk"], classes)))
    return [*lines, ("robust risk", f"{robust} ({certified})")]


def _risk(value: Any, classes: list[str]) -> str:
    """Return a number, or one for every class with its name."""
    values = np.ravel(value)
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return ", ".join(f"{name} {v:.4g}" for name, v in zip(classes, values, strict=True))


# otdro compare


def compare(options: CompareOptions) -> None:
    """Compare on random splits and print; draw if a file is named."""
    splits, plot = options.splits, options.plot
    printing.check_outputs({"--plot": plot}, *options.inputs)
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
    methods = [*METHODS, *(AGAINST[name] for name in dict.fromkeys(against))]
    scores = scores_of(task, splits, methods)
    if plot is not None:
        _draw(scores, plot)
    summaries = summarise(scores)
    document = {**shared_document(task, "compare", summaries), "plot": plot}

    def show() -> None:
        printing.heading(document["tested"][:1].upper() + document["tested"][1:])
        show_scores(summaries, document["verdict"])
        printing.remark(task.data.notes)
        if plot is not None:
            printing.say(f"drawn as {plot}")

    printing.tell(document, show)


def scores_of(task: Task, repeats: int | None, methods: list[str]) -> list[Score]:
    """Return the scores of the methods on all splits; a bar shows how far the fits are."""
    options, data, source = task.options, task.data, task.source
    splits = comparison.rounds(
        data.y, data.task, repeats, options.seed, data.groups, options.forward
    )
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
    if len(data.y) > preparing.IN_MEMORY:
        order = np.random.default_rng(task.options.seed).permutation(len(data.y))
        data.notes.append(f"methods are compared on {preparing.IN_MEMORY} random rows.")
        task = task._replace(data=data.part(np.sort(order[: preparing.IN_MEMORY])))
    scores = scores_of(task, None, [m for m in METHODS if m != comparison.EUCLIDEAN])
    # the model that is fitted comes first, and the others are compared with it
    this = comparison.OWN if task.source is None else comparison.MIX
    return summarise(sorted(scores, key=lambda score: score.method != this))


def tested(options: Learning) -> str:
    """Return in words on which rows models are compared."""
    if options.groups is None:
        splits = getattr(options, "splits", None)
        random = f"{splits} random splits, one fifth of the rows for testing"
        return "five folds" if splits is None else random
    if options.forward:
        return f"trained on the past, tested on the next {options.groups}"
    return f"each {options.groups} left out in turn"


def show_scores(scores: list[Summary], sentence: str) -> None:
    """Print means and paired differences to this model for every measure, and the verdict."""
    for measure in dict.fromkeys(s.measure for s in scores):
        own = [s for s in scores if s.measure == measure]
        body = [[s.method, s.value, "" if s is own[0] else s.minus] for s in own]
        printing.grid(Grid([measure, "mean ± se", f"minus {own[0].method}"], body))
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
    setting = Setting(cv=comparison.inner_folds(first.y, data.task, seed), seed=seed)
    model = Pipeline(
        [("columns", scaler()), ("model", comparison.default_model(data.task, setting))]
    )
    model.fit(first.X, first.y)
    report = described(model[-1], audit(model, first.X, first.y), "cv")
    methods = [name for name in METHODS if name != comparison.CONSTANT]
    fits = comparison.compare(data, scaler(), splits, methods=methods, seed=seed)
    scores = summarise(list(printing.tracked(fits, len(splits) * len(methods), "comparing models")))
    printing.say()
    printing.pairs([*directions_told(report), *risks_told(report)])
    printing.say(f"\n{reps} random splits: {TRAIN} rows to learn from, all others for the test")
    show_scores(scores, verdict(scores))
