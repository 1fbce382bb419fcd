"""An audit or a drift in words, as tables by column, and as one document for machines."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..costs.table import ROWS, Grid, left_out

if TYPE_CHECKING:
    from .auditing import Audit
    from .drifting import Drift

Array = NDArray[Any]

#: Levels of accuracy whose breaking points are given.
LEVELS = (0.9, 0.8, 0.7, 0.6, 0.5)
#: Classes, groups and columns that the text shows; the document holds all of them.
SHOWN = 10
#: The accuracies of a drift, in words.
ACCURACIES = {
    "reference": "right on the old rows",
    "reweighted": "with the new shares",
    "new": "right on the new rows",
}
#: Letters of a cost above which only its class is named.
LONG = 60


@dataclass(frozen=True, eq=False)
class ByColumn:
    """One entry per column: their ``names``, and an array (d,) in every other field."""

    names: list[str]
    #: The fields that a reader is shown: their heads, and how numbers are written.
    shown: ClassVar[dict[str, tuple[str, str]]]

    def __len__(self) -> int:
        return len(self.names)

    def order(self) -> Array:
        """Return the numbers of the columns, the one that matters most first."""
        raise NotImplementedError

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per column, in the order of the columns."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)[1:]}
        return [
            {"column": name, **{key: float(values[j]) for key, values in parts.items()}}
            for j, name in enumerate(self.names)
        ]

    def grid(self, most: int) -> Grid:
        """Return the first ``most`` columns in their order, for a reader."""
        head = ["column", *(name for name, _ in self.shown.values())]
        written = {key: form for key, (_, form) in self.shown.items()}
        body = [
            [self.names[j], *(format(getattr(self, key)[j], form) for key, form in written.items())]
            for j in self.order()[:most]
        ]
        return Grid(head, body)

    def __str__(self) -> str:
        return "\n".join([*self.grid(ROWS).lines(), *left_out(len(self))])


@dataclass(frozen=True, eq=False)
class ColumnTable(ByColumn):
    """What the adversary of a model does in each column.

    ``share`` (d,) is the part of the adversary's budget that goes into the column, at the
    delta where the model is no better than a constant; the parts sum to 1, and one is negative
    where the cost rewards moving a column along with others. ``breaking_point`` (d,) is the delta
    at which moving that column alone breaks the model, inf if it cannot; ``deviations`` (d,) the
    same as a mean move in standard deviations ``scale`` of the column.
    """

    share: Array
    breaking_point: Array
    deviations: Array
    scale: Array
    shown = {
        "share": ("share of budget", ".3f"),
        "breaking_point": ("breaks alone at", ".4g"),
        "deviations": ("deviations", ".3g"),
    }

    def order(self) -> Array:
        """Return the numbers of the columns, the one that breaks the model first at the top."""
        return np.lexsort((-self.share, self.breaking_point))


@dataclass(frozen=True, eq=False)
class DriftTable(ByColumn):
    """How far each column moved, in units of the standard deviation ``scale`` of the reference.

    ``shift`` (d,) is the change of the mean, ``distance`` (d,) the mean move of the column alone
    (its one-dimensional transport cost of order 1), ``p_value`` (d,) that of the Kolmogorov-Smirnov
    distance of that column, not corrected for the number of columns. Where labels are known the
    reference is weighted to the new class shares first.
    """

    shift: Array
    distance: Array
    p_value: Array
    scale: Array
    shown = {
        "shift": ("mean shift", "+.3f"),
        "distance": ("distance", ".3f"),
        "p_value": ("p-value", ".2g"),
    }

    def order(self) -> Array:
        """Return the numbers of the columns, the one that moved farthest first."""
        return np.argsort(-self.distance, kind="stable")


def audit_dict(audit: Audit) -> dict[str, Any]:
    """Return the document of ``docs/audit.md``."""
    deltas = audit.deltas
    return {
        "task": "regression" if audit.classes is None else "classification",
        "rows": len(audit.weights),
        "columns": len(audit.names),
        "classes": None if audit.classes is None else [str(c) for c in audit.classes],
        "space": audit.space,
        "cost": cost_name(audit.cost),
        "order": audit.order,
        "tau": audit.tau,
        "loss": type(audit.model.loss).__name__,
        "label_cost": audit.label_cost,
        "target_cost": audit.target_cost,
        "fitted_delta": audit.fitted_delta,
        "accuracy": audit.accuracy(0.0),
        "constant_accuracy": audit.constant_accuracy(),
        "curve": {
            "delta": deltas.tolist(),
            "accuracy": audit.accuracy(deltas).tolist(),
            "risk": audit.risk(deltas).tolist(),
            "deviations": audit.deviations(deltas).tolist(),
        },
        "unit_column": audit.unit_column,
        "breaking_points": _points(audit, {}),
        "classes_breaking": [
            {"class": str(c), **_points(audit, {"class_": c})} for c in audit.present_classes
        ],
        "groups_breaking": [
            {"group": str(g), **_points(audit, {"group": g})} for g in audit.present_groups
        ],
        "by_column": audit.columns.records(),
        "notes": list(audit.notes),
        "drift": None if audit.drift is None else audit.drift.to_dict(),
    }


def _points(audit: Audit, part: dict[str, Any]) -> dict[str, Any]:
    """Return accuracy at 0 and the breaking points of all rows, a class or a group."""
    constant = audit.breaking_point("constant", **part)
    return {
        "accuracy": audit.accuracy(0.0, **part),
        "constant": constant,
        "constant_in_words": audit.in_words(constant),
        "levels": {f"{level:g}": audit.breaking_point(level, **part) for level in LEVELS},
    }


def audit_pairs(audit: Audit) -> list[tuple[str, str]]:
    """Return the figures that matter most, by name."""
    right = "right" if audit.tau is None else f"within {audit.tau:.4g} of the target"
    broken = audit.breaking_point("constant")
    return [
        ("rows, columns", f"{len(audit.weights)}, {len(audit.names)} ({audit.space} space)"),
        ("cost, order", f"{type(audit.cost).__name__}, {audit.order}"),
        (right, f"{audit.accuracy(0.0):.1%}"),
        ("a constant model", f"{audit.constant_accuracy():.1%}"),
        ("as bad as that at", f"delta = {broken:.4g}, {audit.in_words(broken)}"),
    ]


def curve_grid(audit: Audit) -> Grid:
    """Return what is certified at some of the deltas."""
    shown = audit.deltas[:: max(1, len(audit.deltas) // 8)]
    curves = (audit.deviations(shown), audit.accuracy(shown), audit.risk(shown))
    body = [
        [f"{d:.4g}", f"{m:.3g}", f"{a:.1%}", f"{r:.4g}"]
        for d, m, a, r in zip(shown, *curves, strict=True)
    ]
    return Grid(["delta", "deviations", "certified", "worst-case loss"], body)


def parts_grid(audit: Audit) -> Grid:
    """Return how soon classes and groups break, without a line where there are none."""
    parts = [(f"class {c}", {"class_": c}) for c in audit.present_classes]
    parts += [(f"group {g}", {"group": g}) for g in audit.present_groups]
    body = [
        [name, f"{audit.accuracy(0.0, **key):.1%}", f"{audit.breaking_point(0.5, **key):.4g}"]
        for name, key in parts[:SHOWN]
    ]
    if len(parts) > SHOWN:
        body.append([f"... and {len(parts) - SHOWN} more", "", ""])
    return Grid(["rows", "right", "half wrong at"], body)


def unit_note(audit: Audit) -> str:
    """Return what the deviations of the curve are."""
    return f"deviations: a mean move of so many of {audit.unit_column}"


def audit_text(audit: Audit) -> str:
    """Return the summary for a person."""
    title = "Audit: how far the rows may move before the model is as bad as a constant one"
    lines = [title, *(f"{name}: {value}" for name, value in audit_pairs(audit)), ""]
    lines += [*curve_grid(audit).lines(), unit_note(audit), ""]
    parts = parts_grid(audit)
    if parts.body:
        lines += [*parts.lines(), ""]
    lines += [str(audit.columns), *(f"note: {note}" for note in audit.notes)]
    if audit.drift is not None:
        lines += ["", str(audit.drift)]
    return "\n".join(lines)


def drift_dict(drift: Drift) -> dict[str, Any]:
    """Return the document of ``docs/audit.md``."""
    return {
        "rows_reference": drift.n_reference,
        "rows_new": drift.n_new,
        "columns": len(drift.names),
        "cost": cost_name(drift.cost),
        "order": drift.order,
        "lower_bounds": dict(drift.lower_bounds),
        "bound_noise": dict(drift.bound_noise),
        "estimate": drift.estimate,
        "noise_floor": drift.noise_floor,
        "rows_used": list(drift.rows_used),
        "noise_rows": list(drift.noise_rows),
        "p_value": drift.p_value,
        "label_shift": None if drift.label_shift is None else drift.label_shift.to_dict(),
        "delta": drift.delta,
        "verdict": drift.verdict,
        "reason": drift.reason,
        "certified_accuracy": drift.certified_accuracy,
        "accuracy": dict(drift.accuracy),
        "by_column": drift.columns.records(),
        "notes": list(drift.notes),
    }


def drift_pairs(drift: Drift) -> list[tuple[str, str]]:
    """Return how far the new rows are, and what follows, by name."""
    lines = [("rows", f"{drift.n_reference} old, {drift.n_new} new")]
    for name, value in drift.lower_bounds.items():
        if value is not None:
            noise = drift.bound_noise[name] or 0.0
            lines.append((f"at least ({name})", f"{value:.4g}, by chance up to {noise:.3g}"))
    used = f"{drift.rows_used[0]} and {drift.rows_used[1]} rows"
    lines += [
        ("transport cost", f"{drift.estimate:.4g} ({used})"),
        ("by chance", f"{drift.noise_floor:.4g} (parts of the old rows)"),
        ("p-value", f"{drift.p_value:.3g}"),
    ]
    if drift.verdict is not None:
        lines.append(("verdict", f"{drift.verdict}: {drift.reason}"))
    if drift.certified_accuracy is not None:
        lines.append(("still certified", f"{drift.certified_accuracy:.1%}"))
    right = [(ACCURACIES[key], v) for key, v in drift.accuracy.items() if v is not None]
    return lines + [(name, f"{value:.1%}") for name, value in right]


def drift_text(drift: Drift) -> str:
    """Return the drift in a few lines for a person."""
    title = (
        f"Drift of {drift.n_new} new rows from {drift.n_reference}, cost "
        f"{type(drift.cost).__name__} of order {drift.order}"
    )
    # the rows are in the title
    lines = [
        title,
        *(f"{name}: {value}" for name, value in drift_pairs(drift)[1:]),
        "",
        str(drift.columns),
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in drift.notes)])


def cost_name(cost: Cost, longest: int = LONG) -> str:
    """Return the cost as it is written, or its class where that is long."""
    text = " ".join(repr(cost).split())
    return text if len(text) <= longest else type(cost).__name__
