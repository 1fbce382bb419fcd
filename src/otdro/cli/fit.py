"""``otdro fit``: from a table to a model, and what was learned on the way."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..experiment import Score, Setting, Summary, compare, default_model, rounds, summarise
from ..experiment.comparison import fit_pipeline, inner_folds
from ..persistence import check_name
from ..persistence import save as write_model
from ..scaling import AUTO
from . import printing
from .errors import UserError
from .preparing import Prepared, pipeline, prepare, unlabelled_of
from .reading import locate, read

#: Rows on which methods are compared; more would take long and change little.
MOST = 20_000


@dataclass(frozen=True)
class Options:
    """The options that ``fit`` and ``compare`` share."""

    data: str
    target: str
    task: str = "auto"
    scale: str = "auto"
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    sample: int | None = None
    seed: int = 0
    unlabelled: str | None = None
    groups: str | None = None
    forward: bool = False


def prepared(options: Options) -> Prepared:
    """Read the table and split it into features and target."""
    if options.task not in ("auto", "classification", "regression"):
        raise UserError(f"--task must be auto, classification or regression, got {options.task!r}.")
    table = read(locate(options.data), sample=options.sample, seed=options.seed)
    if options.forward and options.groups is None:
        raise UserError("--forward needs --groups COL, the column of the environments in order.")
    data = prepare(
        table, options.target, options.task, options.drop, options.categorical, options.groups
    )
    if options.unlabelled is None:
        return data
    return replace(data, unlabelled=unlabelled_of(read(locate(options.unlabelled)), data))


def fit(
    options: Options,
    *,
    delta: str = "cv",
    cost: str | None = None,
    save: Path | None = None,
    page: Path | None = None,
    against: bool = True,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Fit, compare, print, save and write the page of the fit."""
    if save is not None:
        check_name(save)
    for file in (save, page):
        if file is not None:
            check_writable(file)
    data = prepared(options)
    model, caught = fitted(data, options, _delta(delta), cost)
    scores = compared(data, options, quiet or as_json) if against else []
    report = {**described(data, model, options, delta), "comparison": [vars(s) for s in scores]}
    report["notes"] = data.notes + caught
    if save is not None:
        write_model(model, save)
        report["saved"] = str(save)
    if page is not None:
        write_page(page, model, data, options, scores, caught)
        report["report"] = str(page)
    if as_json:
        printing.machine(report)
    elif not quiet:
        show(report, scores)


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
    data: Prepared, options: Options, delta: Any = "cv", cost: str | None = None
) -> tuple[Any, list[str]]:
    """Return the fitted pipeline and the warnings as notes."""
    cv = inner_folds(data.y, data.task, options.seed, data.groups)
    setting = Setting(cv=cv, seed=options.seed)
    model = default_model(data.task, setting)
    if delta != "cv":
        model.set_params(delta=delta)
    if cost is not None:
        model.set_params(cost=cost)
    pipe = Pipeline([("columns", pipeline(data, options.scale)), ("model", model)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_pipeline(pipe, data.X, data.y, data.groups, data.unlabelled)
    return pipe, list(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))


def compared(data: Prepared, options: Options, quiet: bool) -> list[Summary]:
    """Return five-fold scores of ours beside plain, L1 and L2 models."""
    if len(data.y) > MOST:
        rows = np.sort(np.random.default_rng(options.seed).permutation(len(data.y))[:MOST])
        groups = None if data.groups is None else data.groups[rows]
        data.notes.append(f"methods are compared on {MOST} random rows.")
        data = replace(data, X=data.X.iloc[rows], y=data.y[rows], groups=groups)
    return summarise(scores_of(data, options, None, CONTENDERS, quiet))


def scores_of(
    data: Prepared, options: Options, repeats: int | None, methods: list[str], quiet: bool
) -> list[Score]:
    """Return the scores of the methods on all splits, telling how far they are."""
    splits = rounds(data.y, data.task, repeats, options.seed, data.groups, options.forward)
    total, start = len(splits) * len(methods), perf_counter()
    scores: list[Score] = []
    with printing.progress(total, quiet) as tell:
        found = compare(
            pipeline(data, options.scale),
            data.X,
            data.y,
            data.task,
            splits,
            methods=methods,
            seed=options.seed,
            groups=data.groups,
            unlabelled=data.unlabelled,
        )
        for k, score in enumerate(found, 1):
            scores.append(score)
            # every method once is the least that an estimate can stand on
            rest = (perf_counter() - start) * (total - k) / k if k >= len(methods) else None
            tell(k, rest)
    return scores


CONTENDERS = ["ours", "plain", "L1", "L2"]


def described(data: Prepared, model: Any, options: Options, delta: str) -> dict[str, Any]:
    """Return what there is to say of the data and the fitted pipeline."""
    names = [str(name) for name in model[:-1].get_feature_names_out()]
    return {
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.numbers) + len(data.texts),
        "features": len(names),
        "classes": [str(c) for c in getattr(model[-1], "classes_", [])],
        "scale": AUTO if options.scale == "auto" else options.scale,
        "environments": None if data.groups is None else len(set(data.groups)),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        "tested": tested(options),
        **described_model(model[-1], names, delta),
    }


def tested(options: Options) -> str:
    """Return in words on which rows models are compared."""
    if options.groups is None:
        return "five folds"
    if options.forward:
        return f"trained on the past, tested on the next {options.groups}"
    return f"each {options.groups} left out in turn"


def described_model(model: Any, names: list[str], delta: str) -> dict[str, Any]:
    """Return what there is to say of our estimator, with the names of its features."""
    return {
        "loss": str(model.loss),
        "cost": cost_name(model.cost_),
        "order": int(model.ball_.order),
        "delta": float(model.delta_),
        "delta_by": delta,
        "empirical_risk": model.empirical_risk_,
        "robust_risk": model.robust_risk_,
        "gap": model.gap_,
        "directions": directions(model.cost_, names),
        "coefficients": _coefficients(model, names),
    }


def cost_name(cost: Any) -> str:
    """Return the name of a cost for a reader."""
    norms: dict[Any, str] = {1: "l1 norm", 2: "Euclidean", np.inf: "l-infinity norm"}
    return norms.get(getattr(cost, "p", None), type(cost).__name__)


def directions(cost: Any, names: list[str], most: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return the directions in which the adversary moves most cheaply and at the highest price."""
    matrix = getattr(cost, "matrix", None)
    if matrix is None:
        return {}
    values, vectors = np.linalg.eigh(np.asarray(matrix, dtype=float))
    told = [
        {"price": float(np.sqrt(value)), "along": _along(vector, names)}
        for value, vector in zip(values, vectors.T, strict=True)
    ]
    count = min(most, len(told))
    return {"cheapest": told[:count], "most_expensive": told[::-1][:count]}


def _along(vector: Any, names: list[str], most: int = 3) -> dict[str, float]:
    order = np.argsort(-np.abs(vector))[:most]
    sign = np.sign(vector[order[0]]) or 1.0
    return {names[j]: round(float(sign * vector[j]), 3) for j in order if abs(vector[j]) > 0.05}


def _coefficients(model: Any, names: list[str]) -> dict[str, Any]:
    rows = np.atleast_2d(model.coef_)
    keys = [str(c) for c in model.classes_] if len(rows) > 1 else [""]
    told = {
        k: dict(zip(names, row.tolist(), strict=True)) for k, row in zip(keys, rows, strict=True)
    }
    return told if len(rows) > 1 else told[""]


def show(report: dict[str, Any], scores: list[Summary]) -> None:
    """Print the report for a person."""
    kind = f"{len(report['classes'])} classes" if report["classes"] else "a number"
    printing.heading("Data")
    printing.pairs(
        [
            ("rows, columns", f"{report['rows']}, {report['columns']}"),
            ("task", f"{report['task']} ({kind}; --task overrides)"),
            ("scaling", f"{report['scale']} (--scale overrides)"),
        ]
    )
    printing.heading("What was learned")
    printing.pairs([*_directions(report), *_risks(report)])
    if scores:
        printing.heading(f"Beside other models ({report['tested']}; mean, standard error)")
        show_scores(scores)
    for text in report["notes"]:
        printing.note(text)
    if "report" in report:
        printing.say(f"\nthe page is {report['report']}")
    if "saved" in report:
        printing.say(f"\nsaved as {report['saved']}")


def _directions(report: dict[str, Any]) -> list[tuple[str, str]]:
    found = report["directions"]
    if not found:
        return [("cost", f"{report['cost']}: a move costs the same in every direction")]
    lines = [("cost", f"{report['cost']}; price of a unit move along")]
    for name in ("cheapest", "most_expensive"):
        for k, way in enumerate(found[name]):
            along = " ".join(f"{value:+.2f} {key}" for key, value in way["along"].items())
            lines.append(
                (f"  {name.replace('_', ' ')}" if k == 0 else "", f"{way['price']:.3g}: {along}")
            )
    return lines


def _risks(report: dict[str, Any]) -> list[tuple[str, str]]:
    words = {"cv": "chosen by folds", "theory": "chosen by theory"}
    by = words.get(report["delta_by"], "as given")
    return [
        ("delta", f"{report['delta']:.4g}, {by} (bound on the mean cost, order {report['order']})"),
        ("empirical risk", _risk(report["empirical_risk"])),
        (
            "robust risk",
            f"{_risk(report['robust_risk'])} (certified to {np.max(report['gap']):.1g})",
        ),
    ]


def _risk(value: Any) -> str:
    return ", ".join(f"{v:.4g}" for v in np.ravel(value)[:6])


def show_scores(scores: list[Summary]) -> None:
    """Print means, paired differences to ours, and a picture, for every measure."""
    for measure in dict.fromkeys(s.measure for s in scores):
        found = [s for s in scores if s.measure == measure]
        picture = printing.intervals([s.mean for s in found], [s.se for s in found])
        body = [
            [
                s.method,
                f"{s.mean:.4g} ± {s.se:.2g}",
                "" if s.method == "ours" else f"{s.difference:+.3g} ± {s.difference_se:.2g}",
                line,
            ]
            for s, line in zip(found, picture, strict=True)
        ]
        printing.grid([measure, "mean ± se", "minus ours", ""], body, (0, 3))
        printing.say()
