"""``otdro compare``: repeated splits of a table, all methods, a table and a plot."""

from __future__ import annotations

from pathlib import Path

from ..experiment import Score, summarise
from . import printing
from .errors import UserError
from .fit import (
    CONTENDERS,
    Chosen,
    Options,
    check_writable,
    prepared,
    scores_of,
    tested,
)
from .showing import show_scores
from .verdict import verdict

METHODS = [*CONTENDERS, "Wasserstein"]


def compare(
    options: Options,
    chosen: Chosen | None = None,
    *,
    splits: int = 20,
    plot: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Compare on random splits and print; draw if a file is named."""
    if splits < 2:
        raise UserError(f"--splits must be at least 2 for a standard error, got {splits}.")
    if plot is not None:
        check_writable(plot)
        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"{plot} must end in .png, .svg or .pdf.")
    chosen = chosen or Chosen()
    ours = chosen.parameters()
    if chosen.of_a_quantile:
        raise UserError("models of the mean are no comparison for a quantile; use another --loss.")
    data = prepared(options)
    scores = scores_of(data, options, splits, METHODS, as_json or quiet, ours)
    summaries = summarise(scores)
    if as_json:
        printing.machine([vars(s) for s in summaries])
    elif not quiet:
        random = f"{splits} random splits, one fifth of the rows for testing"
        printing.heading(random if options.groups is None else tested(options).capitalize())
        show_scores(summaries)
        printing.say(f"Verdict: {verdict(summaries, chosen.cost)}", "bold")
        for text in data.notes:
            printing.note(text)
    if plot is not None:
        _draw(scores, next(iter(scores[0].values)), plot)
        if not (as_json or quiet):
            printing.say(f"drawn as {plot}")


def _draw(scores: list[Score], measure: str, path: Path) -> None:
    import io

    from matplotlib.figure import Figure

    from ..experiment import write_atomic
    from ..plot import comparison

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    comparison(figure.subplots(), scores, measure)
    out = io.BytesIO()
    figure.savefig(out, format=path.suffix[1:], dpi=150)
    write_atomic(path, out.getvalue())
