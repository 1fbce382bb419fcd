"""HTML and SVG of the page: texts, numbers, tables, and a frame with scales to draw in.

Whatever a column or a class is called, it is text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.table import shorten

Array = NDArray[Any]

#: Letters of a name that a table or an axis shows.
LONGEST = 48
#: Around a name inside a sentence without markup: its direction stays its own.
ISOLATE, POP = "\u2068", "\u2069"
#: Control characters and halves of characters.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: Numbers below this are written without a power of ten.
MOST_WRITTEN = 1e7
#: The width of a character of an axis label, at the size of the style for telephones.
CHARACTER = 10.0
#: Markers of classes, around the origin; the style has as many colours.
MARKERS = [
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.2l4 7.2h-8z",
    "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
    "M0 4.2l4-7.2h-8z",
    "M-1.4-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
]


def plain(value: Any, longest: int = LONGEST) -> str:
    """Return a short text without control characters or halves of characters."""
    text = str(value)[: longest + 1]
    return shorten(HIDDEN.sub(lambda c: " " if c[0].isspace() else "\ufffd", text), longest)


def isolated(value: Any, longest: int = LONGEST) -> str:
    """Return a name for places that hold no markup: options, SVG texts, sentences."""
    return f"{ISOLATE}{plain(value, longest)}{POP}"


def name(value: Any) -> Html:
    """Return a name as HTML, with the whole of it (to a limit) as its title if it was cut."""
    short, whole = plain(value), plain(value, 400)
    title = f' title="{escape(whole)}"' if whole != short else ""
    return Html(f"<bdi{title}>{escape(short)}</bdi>")


def number(value: Any, digits: int = 4) -> str:
    """Return four significant digits, as print does; an infinite value is a sign."""
    text = f"{float(value):,.{digits}g}"
    if "e+" in text and abs(value) < MOST_WRITTEN:
        text = f"{float(text):,.0f}"
    return text.replace("-", "−").replace("nan", "–").replace("inf", "∞")


class Html(str):
    """Text that is HTML already; whatever else a table holds is only text."""


def table(
    head: Sequence[str], body: Sequence[Sequence[str]], caption: str, words: int = 1, total: int = 0
) -> str:
    """Return a table; the first ``words`` columns are texts, the first of them names.

    Of ``total`` lines that there are, those left out are counted below.
    """
    if not body:
        return ""
    kind = ["" if j < words else ' class="n"' for j in range(len(head))]
    top = "".join(
        f'<th scope="col"{of}>{_cell(cell)}</th>' for of, cell in zip(kind, head, strict=True)
    )
    lines = [
        f'<tr><th scope="row">{row[0] if isinstance(row[0], Html) else name(row[0])}</th>'
        + "".join(f"<td{of}>{_cell(cell)}</td>" for of, cell in zip(kind[1:], row[1:], strict=True))
        + "</tr>"
        for row in body
    ]
    title = escape(caption)
    more = f'<p class="note">{total - len(body):,} more are not shown.</p>'
    # the title stands outside of what scrolls, so that a phone shows all of it
    return (
        f'<div class="titled"><p class="caption" aria-hidden="true">{title}</p>'
        f'<div class="scroll" tabindex="0" role="group" aria-label="{title}">'
        f'<table aria-label="{title}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{more if total > len(body) else ''}</div>"
    )


def _cell(value: str) -> str:
    return value if isinstance(value, Html) else escape(plain(value, 400))


def bar(share: float, text: str) -> Html:
    """Return a bar of a share of the cell's width, with its value beside it."""
    width = 100 * float(np.clip(np.nan_to_num(share), 0, 1))
    return Html(f'<span class="bar" style="--w:{width:.1f}%"></span><span>{escape(text)}</span>')


def json_script(value: Any) -> str:
    """Return JSON that no HTML parser can leave early."""
    # all that is not ASCII is escaped by json
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(values: Any, digits: int = 5) -> Any:
    """Return an array as nested lists of numbers with so many digits, null where it is infinite."""
    if np.ndim(values):
        return [rounded(part, digits) for part in values]
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None


def marker(k: int) -> str:
    """Return colour and shape of the k-th class; pairs repeat after 36 classes."""
    size = len(MARKERS)
    return f'class="c{k % size}" d="{MARKERS[(k + k // size) % size]}"'


@dataclass(frozen=True, eq=False)
class Frame:
    """A rectangle of the picture, in its units, and the ranges that it shows.

    ``logarithmic``: x is the logarithm to base 10 of what the axis names.
    """

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 60.0
    margin: float = 12.0
    below: float = 42.0
    logarithmic: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of what is drawn on."""
        width, height = self.width - self.left - self.margin, self.height - self.margin - self.below
        return self.left, self.margin, width, height

    def px(self, x: Any) -> Any:
        """Return places from left to right."""
        (low, high), (left, _, width, _) = self.x, self.box
        return left + (np.asarray(x) - low) / (high - low) * width

    def py(self, y: Any) -> Any:
        """Return places from top to bottom."""
        (low, high), (_, top, _, height) = self.y, self.box
        return top + (high - np.asarray(y)) / (high - low) * height

    def axes(self, x_label: str, y_label: str) -> str:
        """Return ticks, grid lines and labels of both axes."""
        left, top, width, height = self.box
        base, marks, levels = top + height, ticks(*self.x), ticks(*self.y)
        across = "".join(
            f'<line x1="{p:.1f}" x2="{p:.1f}" y1="{top:g}" y2="{base:g}"/>'
            f'<text x="{p:.1f}" y="{base + 15:g}" text-anchor="middle">'
            f"{number(10**tick, 3) if self.logarithmic else written(tick)}</text>"
            for tick, p in zip(marks, self.px(marks), strict=True)
        )
        up = "".join(
            f'<line x1="{left:g}" x2="{left + width:g}" y1="{p:.1f}" y2="{p:.1f}"/>'
            f'<text x="{left - 6:g}" y="{p + 4:.1f}" text-anchor="end">{written(tick)}</text>'
            for tick, p in zip(levels, self.py(levels), strict=True)
        )
        x, y = left + width / 2, top + height / 2
        return (
            f'<g class="axis axis-x">{across}<text class="label" x="{x:g}" '
            f'y="{self.height - 6:g}" text-anchor="middle">{escape(fitted(x_label, width))}</text>'
            f'</g><g class="axis axis-y">{up}<text class="label" transform="translate(15 {y:g}) '
            f'rotate(-90)" text-anchor="middle">{escape(fitted(y_label, height))}</text></g>'
        )

    def curve(self, x: Array, y: Array, kind: str) -> str:
        """Return a line through points; it breaks where a value is not finite."""
        parts: list[str] = []
        pen = "M"
        for px, py in zip(self.px(x), self.py(y), strict=True):
            if np.isfinite(py):
                parts.append(f"{pen}{px:.1f} {py:.1f}")
            pen = "L" if np.isfinite(py) else "M"
        return f'<path class="curve {kind}" d="{"".join(parts)}"/>'


def fitted(label: str, room: float) -> str:
    """Return a label, its end left out where it is longer than ``room``."""
    # the letters of some scripts are as wide as two of others; marks have no width
    widths = [
        2 if unicodedata.east_asian_width(c) in "WF" else c not in (ISOLATE, POP) for c in label
    ]
    most = int(room / CHARACTER)
    if sum(widths) <= most:
        return label
    kept = label[: int(np.searchsorted(np.cumsum(widths), most))].rstrip() + "…"
    return kept + POP * (kept.count(ISOLATE) - kept.count(POP))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers in the range: steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10((high - low) / most))
    step = next(power * k for k in (1, 2, 5, 10) if (high - low) / (power * k) <= most)
    first = np.ceil(low / step - 1e-9)
    last = np.floor(high / step + 1e-9)
    # + 0.0: no negative zero
    return [float(f"{k * step:.12g}") + 0.0 for k in np.arange(first, last + 1)]


def written(value: float) -> str:
    """Return a round number with all its digits."""
    return f"{value:.7g}".replace("-", "−")


def spread(values: Array, margin: float = 0.06) -> tuple[float, float]:
    """Return the range of the finite values with some room, never empty."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = margin * (high - low) if high > low else max(abs(high), 1.0) * margin
    return low - room, high + room


def picture(frame: Frame, title: str, content: str, extra: str = "") -> str:
    """Return an SVG with a title for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {frame.width:g} {frame.height:g}" role="img" '
        f'aria-label="{escape(title)}" {extra}>{content}</svg>'
    )
