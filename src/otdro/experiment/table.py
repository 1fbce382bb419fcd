"""Rows -> the tables of the experiment beside the paper's numbers, in text, Markdown and LaTeX."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.table import Grid
from .comparison import standard_error
from .rows import Row
from .splits import SIZES

Array = NDArray[Any]
NOT_RUN = "-"
#: Columns of a terminal.
WIDTH = 80


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of short texts; the first column names the row."""

    title: str
    head: list[str]
    body: list[list[str]]

    def text(self) -> str:
        """Return the table in fixed columns."""
        grid = Grid(self.head, self.body)
        lines = grid.lines()
        lines = lines if max(map(len, lines)) <= WIDTH else grid.lines(" ")
        rule = "-" * max(map(len, lines))
        return "\n".join([self.title, rule, lines[0], rule, *lines[1:], rule])

    def markdown(self) -> str:
        """Return the table in Markdown."""
        marks = ["---", *["---:"] * (len(self.head) - 1)]
        lines = [self.head, marks, *self.body]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(x)} |" for x in lines)])

    def latex(self) -> str:
        """Return the table as a LaTeX table."""
        lines = [" & ".join(_tex(cell) for cell in line) + r" \\" for line in self.body]
        return "\n".join(
            [
                r"\begin{table}[ht]",
                r"\centering",
                rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
                " & ".join(_tex(cell) for cell in self.head) + r" \\ \hline",
                *lines,
                r"\end{tabular}",
                rf"\caption{{{_tex(self.title)}}}",
                r"\end{table}",
            ]
        )


def _tex(text: str) -> str:
    text = text.replace("%", r"\%").replace("_", r"\_").replace("±", r"$\pm$")
    return f"${text[0]}${text[1:]}" if text[:1] in ("-", "+") and len(text) > 1 else text


def paper_numbers() -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return the paper's mean and standard deviation by (set, method) and measure."""
    text = files(__package__).joinpath("paper_table1.csv").read_text()
    return {
        (line["set"], line["method"]): {
            name: (float(line[f"{name}_mean"]), float(line[f"{name}_sd"]))
            for name in ("train", "test", "accuracy")
        }
        for line in csv.DictReader(text.splitlines())
    }


def tables(rows: list[Row], sets: list[str] | None = None) -> list[Table]:
    """Return every table of the experiment; a set without rows is shown as not run."""
    results = Results(rows, sets or list(SIZES))
    found = [
        results.beside_paper("test", "Test log-loss, mean ± standard deviation", "test_loss"),
        results.beside_paper("accuracy", "Test accuracy, mean ± standard deviation", "accuracy"),
        results.medians(),
        results.beside_paper("train", "Train log-loss, mean ± standard deviation", "train_loss"),
    ]
    if "ours" in results.methods and len(results.methods) > 1:
        found += [
            results.paired("test log-loss, mean ± standard error", "test_loss", _mean_se),
            results.paired("accuracy, mean ± standard error", "accuracy", _mean_se),
            results.paired("test log-loss, median", "test_loss", _signed_median),
        ]
    return [*found, results.seconds()]


class Results:
    """Rows by set and method, each an array over the replications in order."""

    def __init__(self, rows: list[Row], sets: list[str]) -> None:
        self.sets = sets
        self.methods = list(dict.fromkeys(row.method for row in rows))
        self.cells: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.rep):
            self.cells.setdefault((row.set, row.method), []).append(row)

    def values(self, name: str, method: str, measure: str) -> Array:
        """Return the measure over the replications."""
        return np.array([getattr(row, measure) for row in self.cells.get((name, method), [])])

    def beside_paper(self, key: str, title: str, measure: str) -> Table:
        """Return means and standard deviations, the paper's under ours."""
        paper = paper_numbers()
        body = []
        for method in self.methods:
            body.append([method, *self._cells(method, measure, _mean_sd)])
            if any((name, method) in paper for name in self.sets):
                theirs = [paper.get((name, method)) for name in self.sets]
                shown = [_pair(*numbers[key]) if numbers else NOT_RUN for numbers in theirs]
                body.append(["  in the paper", *shown])
        return Table(title, ["", *self.sets], body)

    def medians(self) -> Table:
        """Return the median test log-loss: a mean may hang on a few splits."""
        body = [
            [m, *self._cells(m, "test_loss", lambda v: number(np.median(v)))] for m in self.methods
        ]
        return Table("Test log-loss, median", ["", *self.sets], body)

    def seconds(self) -> Table:
        """Return the processor seconds a fit, and those of all fits of a method."""
        body = []
        for m in self.methods:
            cells = self._cells(m, "seconds", lambda v: f"{np.mean(v):.3f}")
            total = sum(self.values(name, m, "seconds").sum() for name in self.sets)
            body.append([m, *cells, f"{total:.0f}"])
        return Table("Processor seconds a fit, and of all fits", ["", *self.sets, "all"], body)

    def paired(self, of: str, measure: str, show: Callable[[Array], str]) -> Table:
        """Return differences, ours minus the method, on the same splits."""
        body = []
        for method in self.methods:
            if method == "ours":
                continue
            pairs = [
                (self.values(name, "ours", measure), self.values(name, method, measure))
                for name in self.sets
            ]
            shown = [_shown(a - b, show) if len(a) == len(b) else NOT_RUN for a, b in pairs]
            body.append([method, *shown])
        return Table(f"Ours minus the method, {of}", ["", *self.sets], body)

    def _cells(self, method: str, measure: str, show: Callable[[Array], str]) -> list[str]:
        return [_shown(self.values(name, method, measure), show) for name in self.sets]


def _shown(values: Array, show: Callable[[Array], str]) -> str:
    values = values[~np.isnan(values)]
    return show(values) if len(values) else NOT_RUN


def _mean_sd(values: Array) -> str:
    return _pair(float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1))))


def _mean_se(values: Array) -> str:
    se = standard_error(values) if len(values) > 1 else 0.0
    return f"{number(float(np.mean(values)), signed=True)}±{number(se)}"


def _signed_median(values: Array) -> str:
    return number(float(np.median(values)), signed=True)


def _pair(mean: float, sd: float) -> str:
    return f"{number(mean)}±{number(sd)}"


def number(value: float, *, signed: bool = False) -> str:
    """Return three significant figures as the paper writes them: .119, 8.75, 35.5."""
    size = abs(value)
    digits = 3 if size < 0.9995 else 2 if size < 9.995 else 1 if size < 99.95 else 0
    text = f"{size:.{digits}f}" if size < 99_999.5 else f"{size:.0e}".replace("e+0", "e")
    text = text.removeprefix("0") if text.startswith("0.") else text
    sign = "-" if value < 0 and text.strip(".0") else "+" if signed else ""
    return sign + text


def notes(rows: list[Row]) -> list[str]:
    """Say how many fits failed or warned, by method."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.note:
            kind = row.note.split(":")[-1].strip() if "warnings" in row.note else row.note
            found[row.method, kind] = found.get((row.method, kind), 0) + 1
    return [f"{m}: {n} of the fits: {kind}" for (m, kind), n in sorted(found.items())]
