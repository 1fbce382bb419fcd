"""The centre of the page: rows, where the adversary takes them, and the boundary, in two axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import as_dense
from ..inspection import Audit
from ..inspection.counterfactuals import Change, changes
from .axes import Axis, Section, axes_of, boundary_lines, default_axes, section
from .markup import isolated, number, percent, plain, rounded
from .stops import Stops
from .svg import Frame, marker, picture, spread, ticks, written

Array = NDArray[Any]

#: Rows that are drawn, and those among them that the adversary moves first.
SHOWN, FIRST = 600, 40
#: Columns that the text of a row tells.
TOLD = 3
WIDTH, HEIGHT = 600.0, 440.0


@dataclass(frozen=True, eq=False)
class View:
    """An audit as the page draws it: a sample of its rows, its stops, its axes."""

    audit: Audit
    stops: Stops
    seed: int = 0

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes to choose from."""
        return axes_of(self.audit)

    @cached_property
    def chosen(self) -> tuple[int, int]:
        """The axes at first."""
        return default_axes(self.axes, len(self.audit.names))

    @cached_property
    def order(self) -> Array:
        """The numbers of all rows, the cheapest to make wrong first."""
        return np.argsort(self.audit.price, kind="stable")

    @cached_property
    def first_moved(self) -> Array:
        """The numbers of all rows that can be moved to the wrong side, the cheapest first."""
        price = self.audit.price[self.order]
        return self.order[(price > 0) & np.isfinite(price)]

    @cached_property
    def rows(self) -> Array:
        """The numbers of the rows that are drawn, rising."""
        n = len(self.audit.weights)
        if n <= SHOWN:
            return np.arange(n)
        early = self.first_moved[:FIRST]
        others = np.setdiff1d(np.arange(n), early)
        rng = np.random.default_rng(self.seed)
        return np.sort(np.append(early, rng.choice(others, SHOWN - len(early), replace=False)))

    @cached_property
    def sample(self) -> Audit:
        """The audit of the drawn rows alone: their counterfactuals are all that is needed of it."""
        parts = {name: getattr(self.audit, name)[self.rows] for name in ("X", "target", "weights")}
        return replace(self.audit, **parts, groups=None, drift=None)

    @cached_property
    def center(self) -> Array:
        """The mean of all rows, (d,)."""
        return np.asarray(self.audit.weights @ self.audit.X, dtype=float).ravel()

    @cached_property
    def directions(self) -> Array:
        """The axes as rows, (m, d)."""
        return np.stack([axis.direction for axis in self.axes])

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """Where the drawn rows are and where they are taken, (m, n) each, along every axis."""
        before = np.asarray(as_dense(self.sample.X), dtype=float)
        return self.directions @ before.T, self.directions @ self.sample.counterfactuals.T

    @cached_property
    def ranges(self) -> list[tuple[float, float]]:
        """What each axis shows: all drawn rows, and where they go by the last stop."""
        going = self.shares(float(self.stops.deltas[-1])) > 0
        before, after = self.places
        return [spread(np.append(u, v[going])) for u, v in zip(before, after, strict=True)]

    @cached_property
    def all_budgets(self) -> tuple[Array, Array]:
        """The budget spent before each row is moved, and what moving all of it costs."""
        price, weights = self.audit.price[self.order], self.audit.weights[self.order]
        spend = np.where(np.isfinite(price), price * weights, np.inf)
        found = np.empty((2, len(price)))
        found[:, self.order] = np.append(0.0, np.cumsum(spend)[:-1]), spend
        return found[0], found[1]

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The same of the drawn rows."""
        before, spend = self.all_budgets
        return before[self.rows], spend[self.rows]

    def wrong(self, delta: float) -> int:
        """Return how many rows the adversary of budget delta makes wrong, in part or wholly."""
        before, spend = self.all_budgets
        touched = (spend == 0) | ((before < delta) & np.isfinite(spend))
        return int(np.count_nonzero(touched & (self.audit.weights > 0)))

    def shares(self, delta: float) -> Array:
        """Return the part of each drawn row that the adversary of budget delta makes wrong."""
        before, spend = self.budgets
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip((delta - before) / spend, 0, 1)
        return np.where(spend == 0, 1.0, np.nan_to_num(share))

    @cached_property
    def marks(self) -> Array:
        """The number of the class of each drawn row; 0 for regression."""
        own = self.audit.target[self.rows]
        return own if self.audit.classes is not None else np.zeros(len(own), dtype=int)

    def frame(self) -> Frame:
        """Return the frame of the two axes at first."""
        i, j = self.chosen
        return Frame(WIDTH, HEIGHT, self.ranges[i], self.ranges[j])

    def section(self, coef: Array, intercept: Array) -> Section:
        """Return the scores of a model in the plane of the two axes at first."""
        first, second = (self.directions[k] for k in self.chosen)
        return section(coef, coef @ self.center + intercept, first, second)

    def _lines(self, coef: Array, intercept: Array, frame: Frame) -> str:
        if self.audit.classes is None:
            return ""
        found = self.section(coef, intercept)
        box = np.array([[frame.x[0], frame.y[0]], [frame.x[1], frame.y[1]]])
        center = self.directions[list(self.chosen)] @ self.center
        return "".join(
            '<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>'.format(
                *(v for x, y in segment for v in (float(frame.px(x)), float(frame.py(y))))
            )
            for segment in boundary_lines(found, center, box)
        )

    def svg(self) -> str:
        """Return the picture at the first stop, which the script goes on from."""
        frame = self.frame()
        i, j = self.chosen
        stop = self.stops.first
        model = self.audit.model
        refit = self.refit_at(stop)
        dashed = self._lines(refit.coef, refit.intercept, frame) if refit is not None else ""
        clip = (
            f'<defs><clipPath id="inside"><rect x="{frame.left:g}" y="{frame.top:g}" '
            f'width="{frame.inner_width:g}" height="{frame.inner_height:g}"/></clipPath></defs>'
        )
        content = (
            f"{clip}{frame.axes(self.axes[i].label, self.axes[j].label)}"
            f'<g clip-path="url(#inside)">{self._points(frame, float(self.stops.deltas[stop]))}'
            f'<g id="refit-lines">{dashed}</g>'
            f'<g id="own-lines">{self._lines(model.coef, model.intercept, frame)}</g>'
            '<circle id="ring" r="8" cx="-20" cy="-20"/></g>'
        )
        title = "Rows in two axes, where the adversary takes them, and the boundary of the model"
        return picture(
            WIDTH, HEIGHT, title, content, 'id="view" tabindex="0" aria-describedby="row-says"'
        )

    def _points(self, frame: Frame, delta: float) -> str:
        i, j = self.chosen
        before, after = self.places
        x, y = frame.px(before[i]), frame.py(before[j])
        u, v = (np.nan_to_num(p, nan=-20.0) for p in (frame.px(after[i]), frame.py(after[j])))
        share = self.shares(delta)
        moves, starts, ends = [], [], []
        for k, c in enumerate(self.marks):
            mark = marker(int(c))
            seen = "visible" if share[k] > 0 else "hidden"
            moves.append(
                f'<line x1="{x[k]:.1f}" y1="{y[k]:.1f}" x2="{u[k]:.1f}" y2="{v[k]:.1f}" '
                f'visibility="{seen}"/>'
            )
            starts.append(
                f'<path {mark} transform="translate({x[k]:.1f} {y[k]:.1f})" '
                f'opacity="{1 - 0.7 * share[k]:.2f}"/>'
            )
            ends.append(
                f'<path {mark} transform="translate({u[k]:.1f} {v[k]:.1f})" '
                f'opacity="{share[k]:.2f}"/>'
            )
        groups = (("moves", moves), ("starts", starts), ("ends", ends))
        return "".join(f'<g id="{name}">{"".join(parts)}</g>' for name, parts in groups)

    def refit_at(self, stop: int) -> Any:
        """Return the best model against the delta of a stop, None at 0 or where there is none."""
        refits = self.stops.refits
        if refits is None or self.stops.deltas[stop] == 0:
            return None
        return refits[stop - (len(self.stops.deltas) - len(refits))]

    @cached_property
    def texts(self) -> list[dict[str, str]]:
        """What the page prints at every stop."""
        n = len(self.audit.weights)
        found = []
        for k, delta in enumerate(self.stops.deltas):
            refit = self.refit_at(k)
            found.append(
                {
                    "delta": number(delta),
                    "words": plain(self.audit.in_words(float(delta)), 160),
                    "accuracy": percent(self.stops.accuracy[k]),
                    "risk": number(self.stops.risk[k]),
                    "wrong": f"{self.wrong(float(delta)):,} of {n:,}",
                    "refit-accuracy": "–" if refit is None else percent(refit.accuracy),
                    "refit-risk": "–" if refit is None else number(refit.robust_risk),
                    "refit-plain": "–" if refit is None else number(refit.empirical_risk),
                }
            )
        return found

    def row_texts(self) -> list[str]:
        """Return one line per drawn row: what it is, how far from a flip, and what flips it."""
        return [self.row_text(int(k)) for k in self.rows]

    def row_text(self, k: int) -> str:
        """Return one line on a drawn row."""
        distance = float(self.audit.distance[k])
        head = f"Row {k}, {self.label(k)}"
        if distance == 0:
            return f"{head}: wrong without any move."
        if not np.isfinite(distance):
            return f"{head}: no move makes it wrong."
        turn = number(self.all_budgets[0][k])
        return (
            f"{head}: {number(distance)} from a flip, moved above delta {turn}; "
            f"{self.change_text(k)}."
        )

    def label(self, k: int) -> str:
        """Return the class or the target of a row."""
        if self.audit.classes is None:
            return f"target {number(self.audit.target[k])}"
        return isolated(self.audit.classes[int(self.audit.target[k])])

    def change_text(self, k: int, most: int = TOLD) -> str:
        """Return what the counterfactual of a drawn row changes, largest first."""
        i = int(np.searchsorted(self.rows, k))
        before = np.asarray(as_dense(self.sample.X[[i]]), dtype=float)[0]
        after = self.sample.counterfactuals[i]
        changed = changes(before, after, self.audit.names, self.audit.scale)
        parts = [f"{isolated(c.column, 24)} {_step(c)}" for c in changed[:most]]
        rest = len(changed) - len(parts)
        return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")

    def data(self, cursors: dict[str, list[list[float]]]) -> dict[str, Any]:
        """Return all that the script needs, in lists, numbers and strings."""
        frame = self.frame()
        before, after = self.places
        budget, spend = self.budgets
        model = self.audit.model
        drawn = self.audit.classes is not None
        refits = [self.refit_at(k) for k in range(len(self.stops.deltas))]
        return {
            "frame": [frame.left, frame.top, frame.inner_width, frame.inner_height],
            "axes": [self._axis(k) for k in range(len(self.axes))],
            "gram": rounded(self.directions @ self.directions.T),
            "own": self._projected(model.coef, model.intercept) if drawn else None,
            "refits": [
                self._projected(r.coef, r.intercept) if drawn and r is not None else None
                for r in refits
            ],
            "deltas": self.stops.deltas.tolist(),
            "texts": self.texts,
            "before": rounded(before),
            "after": rounded(after),
            "budget": [float(f"{v:.8g}") if np.isfinite(v) else None for v in budget],
            "spend": [float(f"{v:.8g}") if np.isfinite(v) else None for v in spend],
            "rows": self.rows.tolist(),
            "says": self.row_texts(),
            "cursors": cursors,
        }

    def _axis(self, k: int) -> dict[str, Any]:
        low, high = self.ranges[k]
        return {
            "label": self.axes[k].label,
            "low": low,
            "high": high,
            "ticks": ticks(low, high),
            "says": [written(tick) for tick in ticks(low, high)],
            "center": float(self.directions[k] @ self.center),
        }

    def _projected(self, coef: Array, intercept: Array) -> dict[str, Any]:
        at_center = coef @ self.center + intercept
        return {"at": at_center.tolist(), "slopes": (coef @ self.directions.T).tolist()}

    def options(self, chosen: int) -> str:
        """Return the choices of a list of axes, by kind."""
        kinds = list(dict.fromkeys(axis.kind for axis in self.axes))
        parts = []
        for kind in kinds:
            inner = "".join(
                f'<option value="{k}"{" selected" if k == chosen else ""}>{escape(axis.label)}'
                "</option>"
                for k, axis in enumerate(self.axes)
                if axis.kind == kind
            )
            parts.append(f'<optgroup label="{kind}">{inner}</optgroup>')
        return "".join(parts)


def _step(change: Change) -> str:
    """Return a change from one value to another, as a difference where three digits hide it."""
    before, after = number(change.before), number(change.after)
    if before != after:
        return f"{before} → {after}"
    return f"{before} {change.after - change.before:+.2g}".replace("-", "−")
