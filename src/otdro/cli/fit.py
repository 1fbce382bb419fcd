"""``otdro fit``: from a table to a model, and what was learned on the way."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from .. import __version__
from ..comparison import (
    Score,
    Setting,
    Summary,
    compare,
    default_model,
    fit_pipeline,
    inner_folds,
    rounds,
    summarise,
    verdict,
)
from ..losses import Quantile
from ..persistence import check_name
from ..persistence import save as write_model
from ..scaling import AUTO
from . import printing
from .describing import (
    Features,
    attack,
    coefficients,
    cost_in_words,
    cost_name,
    delta_in_words,
    directions,
    features_of,
    switches,
)
from .errors import UserError
from .folders import count, fitted_to_folder, messages
from .options import Chosen, Options, Reading
from .preparing import Prepared, pipeline, prepare, unlabelled_of
from .reading import locate, read
from .showing import show

#: Rows on which methods are compared; more would take long and change little.
MOST = 20_000


def prepared(options: Options) -> Prepared:
    """Read the table and split it into features and target."""
    if options.task not in ("auto", "classification", "regression"):
        raise UserError(f"--task must be auto, classification or regression, got {options.task!r}.")
    source = locate(options.data, options.decimal)
    # more rows of a folder are for the model alone
    sample = MOST if source.kind == "folder" and options.sample is None else options.sample
    table = read(source, sample=sample, seed=options.seed)
    if options.forward and options.groups is None:
        raise UserError("--forward needs --groups COL, the column of the environments in order.")
    chosen = (options.drop, options.categorical, options.groups, options.keep)
    data = prepare(table, options.target, options.task, *chosen)
    if options.unlabelled is None:
        return data
    more = read(locate(options.unlabelled, options.decimal))
    return replace(data, unlabelled=unlabelled_of(more, data))


def parameters(chosen: Chosen, quantile: float | None = None) -> dict[str, Any]:
    """Return what was chosen as parameters of the estimator, without those left at defaults."""
    found: dict[str, Any] = {"delta": _delta(chosen.delta)} if chosen.delta != "cv" else {}
    if chosen.order not in ("auto", "1", "2"):
        raise UserError(f"--order must be 1, 2 or auto, got {chosen.order!r}.")
    if chosen.order != "auto":
        found["order"] = int(chosen.order)
    named = {"cost": chosen.cost, "rule": chosen.rule, "loss": chosen.loss}
    found |= {name: value for name, value in named.items() if value is not None}
    if quantile is not None:
        if chosen.loss not in (None, "quantile"):
            raise UserError(f"--quantile is for --loss quantile, not {chosen.loss}.")
        if not 0 < quantile < 1:
            raise UserError(f"--quantile must lie between 0 and 1, got {quantile:g}.")
        found["loss"] = Quantile(tau=quantile)
    return found


def fit(
    options: Options,
    chosen: Chosen,
    *,
    quantile: float | None = None,
    save: Path | None = None,
    page: Path | None = None,
    against: bool = True,
) -> None:
    """Fit, compare, print, save and write the page of the fit."""
    if save is not None:
        check_name(save)
    for file in (save, page):
        if file is not None:
            check_writable(file)
    ours = parameters(chosen, quantile)
    with printing.working("reading") as doing:
        data = prepared(options)
        doing("fitting")
        model, caught = _fitted_to_all(data, options, ours)
    if against and (quantile is not None or chosen.loss == "quantile"):
        # models of the mean are no comparison
        against = False
        caught.append("models of the mean cannot be compared with a quantile, so none is fitted.")
    scores = compared(data, options, ours) if against else []
    if save is not None:
        write_model(model, save)
    if page is not None:
        with printing.working("writing the page"):
            write_page(page, model, data, options, scores, caught)
    report = {
        **asked("fit", options, "data", "target"),
        **described(data, model, options, chosen.delta),
        **told(scores, chosen),
        "notes": data.notes + caught,
        "saved": None if save is None else str(save),
        "report": None if page is None else str(page),
    }
    printing.tell(lambda: report, lambda: show(report, scores))


def asked(command: str, options: Reading, *names: str) -> dict[str, Any]:
    """Return the part of a document that says what was asked, and of which version."""
    values = {name: getattr(options, name) for name in names}
    said = {name: None if value is None else str(value) for name, value in values.items()}
    return {"command": command, "version": __version__, **said}


def told(scores: list[Summary], chosen: Chosen) -> dict[str, Any]:
    """Return the part of a document on the comparison with other models, where there is one."""
    return {
        "comparison": [vars(score) for score in scores],
        "verdict": verdict(scores, chosen.cost) if scores else None,
    }


def write_page(
    file: Path,
    model: Any,
    data: Prepared,
    options: Options,
    scores: list[Summary],
    caught: list[str],
) -> None:
    """Audit the fitted pipeline on its own rows and write the HTML page."""
    from ..inspection import audit
    from ..report import write

    title = f"{options.target} from {Path(options.data).name}"
    notes = [*data.notes, *caught, "The audit is of the rows that the model was fitted on."]
    found = audit(model, data.X, data.y, random_state=options.seed)
    write(file, found, model=model, scores=scores, title=title, notes=notes)


def _delta(text: str) -> Any:
    if text in ("cv", "theory"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (np.isfinite(value) and value >= 0):
        raise UserError(f"--delta must be a number >= 0, cv or theory, got {text!r}.")
    return value


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written before the work is done, not after."""
    import os

    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it.")
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; make it first.")
    if not os.access(folder, os.W_OK):
        raise UserError(f"no permission to write in {folder}. Choose another place.")


def fitted(
    data: Prepared, options: Options, ours: dict[str, Any] | None = None
) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and the warnings as notes."""
    cv = inner_folds(data.y, data.task, options.seed, data.groups)
    model = default_model(data.task, Setting(cv=cv, seed=options.seed)).set_params(**(ours or {}))
    pipe = Pipeline([("columns", pipeline(data, options.scale)), ("model", model)])
    with warnings.catch_warnings(record=True, action="always") as caught:
        fit_pipeline(pipe, data)
    return pipe, messages(caught)


def _fitted_to_all(data: Prepared, options: Options, ours: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and the warnings; a folder of many rows is read in pieces."""
    source = locate(options.data, options.decimal) if options.data != "-" else None
    if source is None or source.kind != "folder" or options.sample is not None:
        return fitted(data, options, ours)
    if count(source) <= MOST:
        return fitted(data, options, ours)
    for name, value in (("--groups", options.groups), ("--unlabelled", options.unlabelled)):
        if value is not None:
            raise UserError(f"{name} is for tables that fit into memory; add --sample N.")
    return fitted_to_folder(source, data, options.target, options.scale, options.seed, ours)


def compared(data: Prepared, options: Options, ours: dict[str, Any] | None = None) -> list[Summary]:
    """Return five-fold scores of the model as it is fitted beside the usual ones."""
    if len(data.y) > MOST:
        rows = np.sort(np.random.default_rng(options.seed).permutation(len(data.y))[:MOST])
        data.notes.append(f"methods are compared on {MOST} random rows.")
        data = data.part(rows)
    return summarise(scores_of(data, options, None, CONTENDERS, ours))


def scores_of(
    data: Prepared,
    options: Options,
    repeats: int | None,
    methods: list[str],
    ours: dict[str, Any] | None = None,
) -> list[Score]:
    """Return the scores of the methods on all splits, telling how far they are."""
    splits = rounds(data.y, data.task, repeats, options.seed, data.groups, options.forward)
    found = compare(
        data,
        pipeline(data, options.scale),
        splits,
        methods=methods,
        seed=options.seed,
        ours=ours,
    )
    scores = tracked(found, len(splits), len(methods))
    # a loss without probabilities has no log-loss
    kept = [m for m, v in scores[0].values.items() if not np.isnan(v)]
    return [replace(s, values={m: s.values[m] for m in kept}) for s in scores]


def tracked(found: Iterator[Score], splits: int, methods: int) -> list[Score]:
    """Return the scores of ``methods`` models on every split, telling how far they are."""
    total, start = splits * methods, perf_counter()
    scores: list[Score] = []
    with printing.progress(total) as tell:
        for k, score in enumerate(found, 1):
            scores.append(score)
            # every method once is the least that an estimate can stand on
            rest = (perf_counter() - start) * (total - k) / k if k >= methods else None
            tell(k, rest)
    return scores


CONTENDERS = ["ours", "L2", "L1", "plain", "constant"]


def described(data: Prepared, model: Any, options: Options, delta: str) -> dict[str, Any]:
    """Return what there is to say of the data and the fitted pipeline."""
    found = features_of(model[0])
    Z = np.asarray(model[:-1].transform(data.X), dtype=float)
    classes = getattr(model[-1], "classes_", None)
    return {
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.numbers) + len(data.texts),
        "features": len(found.names),
        "classes": [] if classes is None else [str(c) for c in classes],
        "counts": [] if classes is None else [int((data.y == c).sum()) for c in classes],
        "scale": AUTO if options.scale == "auto" else options.scale,
        "environments": None if data.groups is None else len(set(data.groups)),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        "tested": tested(options),
        **described_model(model[-1], found, delta),
        "delta_in_words": delta_in_words(model[-1], Z, found),
        "attack": attack(model[-1], Z, found, data.y),
    }


def tested(options: Options) -> str:
    """Return in words on which rows models are compared."""
    if options.groups is None:
        return "five folds"
    if options.forward:
        return f"trained on the past, tested on the next {options.groups}"
    return f"each {options.groups} left out in turn"


def described_model(model: Any, features: Features, delta: str) -> dict[str, Any]:
    """Return what there is to say of our estimator, with the names of its features."""
    return {
        "loss": str(model.loss),
        "cost": cost_name(model.cost_),
        "cost_in_words": cost_in_words(model.cost_),
        "order": int(model.ball_.order),
        "delta": float(model.delta_),
        "delta_by": delta,
        "empirical_risk": model.empirical_risk_,
        "robust_risk": model.robust_risk_,
        "gap": model.gap_,
        "directions": directions(model.cost_, features),
        "switches": switches(model.cost_, features),
        "coefficients": coefficients(model, features.names),
    }
