"""``otdro compare``: repeated splits of a table, all methods, a table and a plot."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from ..experiment import MEASURES, Score, summarise
from ..experiment import compare as run
from . import printing
from .errors import UserError
from .fit import Options, check_writable, prepared, show_scores
from .preparing import pipeline


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
    methods = 5
    scores: list[Score] = []
    start = perf_counter()
    with printing.progress(splits * methods, as_json) as tell:
        found = run(
            pipeline(data, options.scale),
            data.X,
            data.y,
            data.task,
            repeats=splits,
            seed=options.seed,
        )
        for k, score in enumerate(found, 1):
            scores.append(score)
            # every method once is the least that an estimate can stand on
            rest = (perf_counter() - start) * (splits * methods - k) / k if k >= methods else None
            tell(k, rest)
    summaries = summarise(scores)
    if as_json:
        printing.machine([vars(s) for s in summaries])
    else:
        printing.heading(f"{splits} random splits, one fifth of the rows for testing")
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
