"""``otdro compare``: repeated splits of a table, all methods, a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..comparison import Score, Summary, summarise
from ..files import replacing
from . import printing
from .errors import UserError
from .fit import (
    CONTENDERS,
    asked,
    check_writable,
    parameters,
    prepared,
    scores_of,
    tested,
    told,
)
from .options import Chosen, Options
from .showing import show_scores

METHODS = [*CONTENDERS, "Wasserstein"]


def compare(
    options: Options,
    chosen: Chosen,
    *,
    splits: int = 20,
    plot: Path | None = None,
) -> None:
    """Compare on random splits and print; draw if a file is named."""
    if splits < 2:
        raise UserError(f"--splits must be at least 2 for a standard error, got {splits}.")
    if plot is not None:
        check_writable(plot)
        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"{plot} must end in .png, .svg or .pdf.")
    ours = parameters(chosen)
    if chosen.loss == "quantile":
        raise UserError(
            "models of the mean cannot be compared with a quantile; use another --loss."
        )
    with printing.working("reading"):
        data = prepared(options)
    scores = scores_of(data, options, splits, METHODS, ours)
    summaries = summarise(scores)
    if plot is not None:
        _draw(scores, next(iter(scores[0].values)), plot)
    random = f"{splits} random splits, one fifth of the rows for testing"
    document = {
        **asked("compare", options, "data", "target"),
        "task": data.task,
        "rows": len(data.y),
        "columns": len(data.numbers) + len(data.texts),
        "tested": random if options.groups is None else tested(options),
        **told(summaries, chosen),
        "notes": data.notes,
        "plot": None if plot is None else str(plot),
    }
    printing.tell(lambda: document, lambda: show(document, summaries))


def show(document: dict[str, Any], scores: list[Summary]) -> None:
    """Print the comparison for a person."""
    tested_on = document["tested"]
    printing.heading(tested_on[:1].upper() + tested_on[1:])
    show_scores(scores)
    printing.say(f"Verdict: {document['verdict']}", "bold")
    printing.remark(document["notes"])
    if document["plot"] is not None:
        printing.say(f"drawn as {document['plot']}")


def _draw(scores: list[Score], measure: str, path: Path) -> None:
    from matplotlib.figure import Figure

    from ..plot import comparison

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    comparison(figure.subplots(), scores, measure)
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)
