"""The report of a fit, printed for a person."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..comparison import NAMES, Summary
from . import printing
from .describing import SHOWN


def show(report: dict[str, Any], scores: list[Summary]) -> None:
    """Print the report for a person."""
    counts = [f"{c} {n}" for c, n in zip(report["classes"], report["counts"], strict=True)]
    printing.heading("Data")
    kind = f"{len(counts)} classes" if counts else "a number"
    lines = [
        ("rows, columns", f"{report['rows']}, {report['columns']} ({report['features']} features)"),
        ("task", f"{report['task']} ({kind}; --task overrides)"),
        ("scaling", f"{report['scale']} (--scale overrides)"),
    ]
    printing.pairs(lines + ([("classes", ", ".join(counts))] if counts else []))
    printing.heading("What was learned")
    printing.pairs([("loss", report["loss"]), *directions_told(report), *risks_told(report)])
    printing.heading("Coefficients, largest first (all: --json)")
    printing.pairs(_coefficients(report))
    if report["attack"]:
        printing.heading("What the adversary attacks")
        printing.pairs(_attack(report["attack"]))
    if scores:
        printing.heading(f"Beside other models ({report['tested']}; mean, standard error)")
        show_scores(scores)
        printing.say(f"Verdict: {report['verdict']}", "bold")
    printing.remark(report["notes"])
    if report["report"] is not None:
        printing.say(f"\nthe page is {report['report']}")
    if report["saved"] is not None:
        printing.say(f"\nsaved as {report['saved']}")


def _coefficients(report: dict[str, Any]) -> list[tuple[str, str]]:
    found = report["coefficients"]
    if not any(isinstance(value, dict) for value in found.values()):
        return [(name, f"{value:+.4g}") for name, value in list(found.items())[:SHOWN]]
    return [
        (label, ", ".join(f"{name} {value:+.3g}" for name, value in list(row.items())[:4]))
        for label, row in found.items()
    ]


def _attack(found: dict[str, Any]) -> list[tuple[str, str]]:
    def listed(shares: dict[str, float], word: str = "") -> str:
        return ", ".join(f"{word}{name} {share:.0%}" for name, share in list(shares.items())[:4])

    lines = [] if found["class"] is None else [("class", found["class"])]
    return [
        *lines,
        ("columns", f"{listed(found['columns'])} (shares of the change of the score)"),
        ("rows", f"{listed(found['rows'], 'row ')} (shares of its budget)"),
    ]


def directions_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the cost in words, with the prices of moves and switches if it has a matrix."""
    found = report["directions"]
    if not found:
        return [("cost", report["cost_in_words"])]
    lines = [("cost", f"{report['cost']}; price of a unit move along")]
    for name in ("cheapest", "most_expensive"):
        for k, way in enumerate(found[name]):
            along = ", ".join(f"{value:+.2f} {key}" for key, value in way["along"].items())
            lines.append(
                (f"  {name.replace('_', ' ')}" if k == 0 else "", f"{way['price']:.3g}: {along}")
            )
    for column, prices in list(report["switches"].items())[:SHOWN]:
        told = ", ".join(f"{pair} {price:.3g}" for pair, price in prices.items())
        lines.append((f"  switch {column}", told))
    return lines


def risks_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return delta and its meaning, and the risks with their certificate."""
    words = {"cv": "chosen by folds", "theory": "chosen by theory"}
    by = words.get(report["delta_by"], "as given")
    unit = report.get("delta_in_words")
    meaning = unit or f"bound on the mean cost, order {report['order']}"
    classes = report.get("classes", [])
    return [
        ("delta", f"{report['delta']:.4g}, {by} ({meaning})"),
        ("empirical risk", _risk(report["empirical_risk"], classes)),
        (
            "robust risk",
            f"{_risk(report['robust_risk'], classes)} (certified to {np.max(report['gap']):.1g})",
        ),
    ]


def _risk(value: Any, classes: list[str]) -> str:
    """Return a number, or one for every class with its name."""
    values = np.ravel(value)
    if len(values) == 1:
        return f"{values[0]:.4g}"
    names = classes if len(classes) == len(values) else [str(k) for k in range(len(values))]
    return ", ".join(f"{name} {v:.4g}" for name, v in zip(names, values, strict=True))


def difference(value: float, se: float) -> str:
    """Return a difference of means with its error; what rounding left of 0 is 0."""
    return f"{round(value, 12) + 0.0:+.3g} ± {se:.2g}"


def show_scores(scores: list[Summary]) -> None:
    """Print means, paired differences to this model, and a picture, for every measure."""
    for measure in dict.fromkeys(s.measure for s in scores):
        found = [s for s in scores if s.measure == measure]
        # a constant far from the others would leave no room for them
        shown = [s for s in found if s.method != "constant"]
        picture = printing.intervals([s.mean for s in shown], [s.se for s in shown])
        body = [
            [
                NAMES.get(s.method, s.method),
                f"{s.mean:.4g} ± {s.se:.2g}",
                "" if s.method == "ours" else difference(s.difference, s.difference_se),
                line,
            ]
            for s, line in zip(shown + found[len(shown) :], [*picture, ""], strict=False)
        ]
        printing.grid([measure, "mean ± se", "minus otdro", ""], body, (0, 3))
        printing.say()
