"""Plain SVG: a frame with scales, and the few shapes that the page draws."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .markup import ISOLATE, POP, number

Array = NDArray[Any]

#: Where a mark is out of sight.
AWAY = -20.0
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
    left: float = 52.0
    right: float = 12.0
    top: float = 12.0
    bottom: float = 42.0
    logarithmic: bool = False

    @property
    def inner_width(self) -> float:
        """The width that is drawn on."""
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> float:
        """The height that is drawn on."""
        return self.height - self.top - self.bottom

    def px(self, x: Any) -> Any:
        """Return places from left to right."""
        low, high = self.x
        return self.left + (np.asarray(x) - low) / (high - low) * self.inner_width

    def py(self, y: Any) -> Any:
        """Return places from top to bottom."""
        low, high = self.y
        return self.top + (high - np.asarray(y)) / (high - low) * self.inner_height

    def axes(self, x_label: str, y_label: str) -> str:
        """Return ticks, grid lines and labels of both axes."""
        return (
            f'<g class="axis axis-x">{self._x_ticks()}{self._x_label(x_label)}</g>'
            f'<g class="axis axis-y">{self._y_ticks()}{self._y_label(y_label)}</g>'
        )

    def _x_ticks(self) -> str:
        base = self.top + self.inner_height
        return "".join(
            f'<line x1="{p:.1f}" x2="{p:.1f}" y1="{self.top:g}" y2="{base:g}"/>'
            f'<text x="{p:.1f}" y="{base + 15:g}" text-anchor="middle">{self._x_text(tick)}</text>'
            for tick, p in ((tick, float(self.px(tick))) for tick in ticks(*self.x))
        )

    def _x_text(self, tick: float) -> str:
        return number(10**tick) if self.logarithmic else written(tick)

    def _y_ticks(self) -> str:
        end = self.left + self.inner_width
        return "".join(
            f'<line x1="{self.left:g}" x2="{end:g}" y1="{p:.1f}" y2="{p:.1f}"/>'
            f'<text x="{self.left - 6:g}" y="{p + 4:.1f}" text-anchor="end">{written(tick)}</text>'
            for tick, p in ((tick, float(self.py(tick))) for tick in ticks(*self.y))
        )

    def _x_label(self, label: str) -> str:
        middle = self.left + self.inner_width / 2
        return (
            f'<text class="label" x="{middle:g}" y="{self.height - 6:g}" text-anchor="middle">'
            f"{escape(self.across(label))}</text>"
        )

    def across(self, label: str) -> str:
        """Return a label as there is room for it below the frame."""
        return fitted(label, self.inner_width)

    def up(self, label: str) -> str:
        """Return a label as there is room for it beside the frame."""
        return fitted(label, self.inner_height)

    def _y_label(self, label: str) -> str:
        middle = self.top + self.inner_height / 2
        return (
            f'<text class="label" transform="translate(12 {middle:g}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.up(label))}</text>'
        )

    def curve(self, x: Array, y: Array, kind: str) -> str:
        """Return a line through points; it breaks where a value is not finite."""
        parts: list[str] = []
        pen = "M"
        for px, py in zip(self.px(x), self.py(y), strict=True):
            if not np.isfinite(py):
                pen = "M"
                continue
            parts.append(f"{pen}{px:.1f} {py:.1f}")
            pen = "L"
        return f'<path class="curve {kind}" d="{"".join(parts)}"/>'

    def upright(self, x: float, kind: str) -> str:
        """Return a line from top to bottom."""
        p, base = float(self.px(x)), self.top + self.inner_height
        return f'<line class="{kind}" x1="{p:.1f}" x2="{p:.1f}" y1="{self.top:g}" y2="{base:g}"/>'

    def level(self, y: float, kind: str) -> str:
        """Return a line from left to right."""
        p, end = float(self.py(y)), self.left + self.inner_width
        return f'<line class="{kind}" x1="{self.left:g}" x2="{end:g}" y1="{p:.1f}" y2="{p:.1f}"/>'


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
    span = high - low
    if not (np.isfinite(span) and span > 0):
        return [low]
    power = 10.0 ** np.floor(np.log10(span / most))
    step = next(power * k for k in (1, 2, 5, 10) if span / (power * k) <= most)
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


def picture(width: float, height: float, title: str, content: str, extra: str = "") -> str:
    """Return an SVG with a title for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}" {extra}>'
        f"{content}</svg>"
    )
