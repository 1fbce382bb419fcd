"""Texts and numbers as HTML: whatever a column or a class is called, it is text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..costs.table import shorten

#: Letters of a name that a table or an axis shows.
LONGEST = 48
#: Around a name inside a sentence without markup: its direction stays its own.
ISOLATE, POP = "\u2068", "\u2069"
#: Numbers below this are written without a power of ten.
MOST_WRITTEN = 1e7


def plain(value: Any, longest: int = LONGEST) -> str:
    """Return a short text without control characters or halves of characters."""
    text = "".join(_visible(letter) for letter in str(value)[: longest + 1])
    return shorten(text, longest)


def _visible(letter: str) -> str:
    if unicodedata.category(letter) in ("Cc", "Cs"):
        return " " if letter.isspace() else "\ufffd"
    return letter


def isolated(value: Any, longest: int = LONGEST) -> str:
    """Return a name for places that hold no markup: options, SVG texts, sentences."""
    return f"{ISOLATE}{plain(value, longest)}{POP}"


def name(value: Any, longest: int = LONGEST) -> str:
    """Return a name as HTML, with the whole of it (to a limit) as its title if it was cut."""
    short = plain(value, longest)
    whole = plain(value, 400)
    title = f' title="{escape(whole)}"' if whole != short else ""
    return f"<bdi{title}>{escape(short)}</bdi>"


def number(value: Any) -> str:
    """Return three significant digits; an endless value is a sign."""
    value = float(value)
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.3g}"
    if "e+" in text and abs(value) < MOST_WRITTEN:
        text = f"{float(text):,.0f}"
    return text.replace("-", "−")


def percent(value: Any) -> str:
    """Return a share with three significant digits."""
    # what is left of a sum that should be 0 is not worth a power of ten
    value = round(float(value), 9) + 0.0
    return "–" if np.isnan(value) else f"{100 * value:.3g}%"


def table(
    head: Sequence[str], body: Sequence[Sequence[str]], caption: str = "", words: int = 1
) -> str:
    """Return a table of cells that are HTML already; the first ``words`` columns are texts."""
    if not body:
        return ""
    top = "".join(f'<th scope="col"{_kind(j, words)}>{cell}</th>' for j, cell in enumerate(head))
    lines = [
        "<tr>" + "".join(_cell(j, cell, words) for j, cell in enumerate(row)) + "</tr>"
        for row in body
    ]
    title = f"<caption>{caption}</caption>" if caption else ""
    inner = f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{caption}">{inner}</div>'


def _kind(j: int, words: int) -> str:
    return "" if j < words else ' class="n"'


def _cell(j: int, cell: str, words: int) -> str:
    if j == 0:
        return f'<th scope="row">{cell}</th>'
    return f"<td{_kind(j, words)}>{cell}</td>"


def bar(share: float, text: str) -> str:
    """Return a bar of a share of the cell's width, with its value beside it."""
    width = 100 * float(np.clip(np.nan_to_num(share), 0, 1))
    return f'<span class="bar" style="--w:{width:.1f}%"></span><span>{text}</span>'


def json_script(value: Any) -> str:
    """Return JSON that no HTML parser can leave early."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def rounded(values: Any, digits: int = 5) -> Any:
    """Return an array as nested lists of numbers with so many digits, null for what is endless."""
    if np.ndim(values):
        return [rounded(part, digits) for part in values]
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None
