"""``otdro compare``: repeated splits of a table, all methods, a table and a plot."""

from __future__ import annotations

from pathlib import Path

from ..experiment import MEASURES, Score, summarise
from . import printing
from .errors import UserError
from .fit import CONTENDERS, Options, check_writable, prepared, scores_of, show_scores, tested

METHODS = [*CONTENDERS, "Wasserstein"]


def compare(
    options: Options, *, splits: int = 20, plot: Path | None = None, as_json: bool = False
) -> None:
    """Compare on random splits and print; draw if a file is named."""
    if splits < 2:
        raise UserError(f"--splits must be at least 2 for a standard error, got {splits}.")
    if plot is not None:
        check_writable(plot)
        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"{plot} must end in .png, .svg or .pdf.")
    data = prepared(options)
    scores = scores_of(data, options, splits, METHODS, as_json)
    summaries = summarise(scores)
    if as_json:
        printing.machine([vars(s) for s in summaries])
    else:
        random = f"{splits} random splits, one fifth of the rows for testing"
        printing.heading(random if options.groups is None else tested(options).capitalize())
        show_scores(summaries)
        for text in data.notes:
            printing.note(text)
    if plot is not None:
        _draw(scores, next(iter(MEASURES[data.task])), plot)
        if not as_json:
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
