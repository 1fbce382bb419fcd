"""``otdro fit``: from a table to a model, and what was learned on the way."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..chunks import Chunk, Chunks
from ..comparison import (
    MIX,
    Setting,
    Summary,
    default_model,
    fit_model,
    inner_folds,
    prepare,
    verdict,
)
from ..inspection import Stability, audit, stability
from ..persistence import check_name
from ..persistence import save as write_model
from ..scaling import AUTO
from . import printing
from .compare import compared, show_scores, tested
from .describing import (
    attack,
    attack_told,
    coefficients_told,
    delta_in_words,
    described_model,
    directions_told,
    features_of,
    risks_told,
)
from .errors import UserError
from .options import FitOptions, asked, check_outputs, parameters, with_drift
from .preparing import Array, Prepared, columns_as, pipeline, prepared
from .reading import PIECE, Source, pieces
from .source import Published, published
from .values import required_numbers


def fit(options: FitOptions) -> None:
    """Fit, compare, print, save and write the page of the fit."""
    save, page = options.save, options.report
    if save is not None:
        check_name(save)
    read = (options.data, options.unlabelled, options.delta_from, options.source)
    check_outputs({"--save": save, "--report": page}, *read)
    options, origin = with_drift(options)
    ours = parameters(options, options.quantile)
    if options.refits is not None and options.refits < 2:
        raise UserError(f"--refits must be at least 2, got {options.refits}.")
    with printing.working("reading") as doing:
        data = prepared(options)
        if origin is not None:
            data.notes.insert(0, f"delta = {float(options.delta):.4g} is {origin}.")
        source = published(options.source, data)
        if source is not None and source.saved is None and options.scale == "auto":
            options = replace(options, scale="standard")
        doing("fitting")
        model, notes = fitted(data, options, ours, source)
    scores = []
    if options.compare and (options.quantile is not None or options.loss == "quantile"):
        notes.append("models of the mean cannot be compared with a quantile, so none is fitted.")
    elif options.compare:
        scores = compared(data, options, ours, source)
    if save is not None:
        write_model(model, save)
    stable = None
    if options.refits is not None:
        with printing.working(f"fitting again, {options.refits} times"):
            stable = stability(
                model, data.X, data.y, refits=options.refits, random_state=options.seed
            )
    if page is not None:
        from ..report import write

        with printing.working("writing the page"):
            write(
                page,
                audit(model, data.X, data.y, random_state=options.seed),
                model=model,
                scores=scores,
                stability=stable,
                title=f"{options.target} from {Path(options.data).name}",
                notes=[*data.notes, *notes],
                training=True,
                held_out=tested(options),
                row_names=[str(row) for row in data.X.index],
            )
    report = {
        **asked("fit", options, "data", "target"),
        **described(data, model, options),
        "delta_by": origin or options.delta,
        "comparison": [vars(score) for score in scores],
        "verdict": verdict(scores, options.cost) if scores else None,
        "stability": None if stable is None else stable.to_dict(),
        "notes": data.notes + notes,
        "saved": None if save is None else str(save),
        "report": None if page is None else str(page),
    }
    printing.tell(lambda: report, lambda: show(report, scores, stable))


def fitted(
    data: Prepared, options: FitOptions, ours: dict[str, Any], source: Published | None
) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and notes; a folder of many rows is read in pieces.

    With a published model the last step is its average with our model.
    """
    columns = pipeline(data, options.scale)
    cv = inner_folds(data.y, data.task, options.seed, data.groups) if data.folder is None else 5
    model = default_model(data.task, Setting(cv=cv, seed=options.seed)).set_params(**ours)
    notes = []
    with warnings.catch_warnings(record=True, action="always") as caught:
        if data.folder is not None:
            columns.fit(data.X, data.y)
            chunks = FolderRows(data.folder, data, options.target, columns)
            model.fit(chunks, None)
            notes.append(
                f"the model is fitted to all {chunks.n} rows, in pieces; columns are prepared from "
                f"{len(data.y)} random ones, and counts and comparisons are of these."
            )
        elif source is None:
            fit_model(model, prepare(columns, data))
        else:
            columns = source.preparation(data, options.scale)
            rows = prepare(columns, data)
            model = source.models(columns, model, data)[MIX]
            fit_model(model, rows)
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


def described(data: Prepared, model: Any, options: FitOptions) -> dict[str, Any]:
    """Return what there is to say of the data and the fitted pipeline."""
    features = features_of(model[0])
    Z = np.asarray(model[:-1].transform(data.X), dtype=float)
    classes = getattr(model[-1], "classes_", ())
    return {
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.kinds),
        "features": len(features.names),
        "classes": [str(c) for c in classes],
        "counts": [int((data.y == c).sum()) for c in classes],
        "scale": AUTO if options.scale == "auto" else options.scale,
        "environments": None if data.groups is None else len(set(data.groups)),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        "tested": tested(options),
        **described_model(model[-1], features, options.delta),
        "delta_in_words": delta_in_words(model[-1], Z, features),
        "weights": getattr(model[-1], "weights_", None),
        "attack": attack(model[-1], Z, features, data),
    }


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
