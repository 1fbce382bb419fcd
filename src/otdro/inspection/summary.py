"""An audit or a drift in words, and as one document for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import Cost

if TYPE_CHECKING:
    from .certificate import Audit
    from .drifting import Drift

#: Levels of accuracy whose breaking points are given.
LEVELS = (0.9, 0.8, 0.7, 0.6, 0.5)
#: Classes, groups and columns that the text shows; the document holds all of them.
SHOWN = 10
#: Letters of a cost above which only its class is named.
LONG = 60


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
            {"class": str(c), **_points(audit, {"class_": c})} for c in present(audit)
        ],
        "groups_breaking": [
            {"group": str(g), **_points(audit, {"group": g})} for g in groups(audit)
        ],
        "by_column": audit.columns.records(),
        "notes": list(audit.notes),
        "drift": None if audit.drift is None else audit.drift.to_dict(),
    }


def present(audit: Audit) -> list[Any]:
    """Return the labels that occur with weight."""
    if audit.classes is None:
        return []
    return [audit.classes[k] for k in np.unique(audit.target[audit.weights > 0])]


def groups(audit: Audit) -> list[Any]:
    """Return the groups that occur with weight."""
    return [] if audit.groups is None else np.unique(audit.groups[audit.weights > 0]).tolist()


def _points(audit: Audit, part: dict[str, Any]) -> dict[str, Any]:
    """Return accuracy at 0 and the breaking points of all rows, a class or a group."""
    constant = audit.breaking_point("constant", **part)
    return {
        "accuracy": audit.accuracy(0.0, **part),
        "constant": constant,
        "constant_in_words": audit.in_words(constant),
        "levels": {f"{level:g}": audit.breaking_point(level, **part) for level in LEVELS},
    }


def audit_text(audit: Audit) -> str:
    """Return the summary, a few lines for a person."""
    right = "right" if audit.tau is None else f"within {audit.tau:.4g} of the target"
    lines = [
        f"Audit of {len(audit.weights)} rows x {len(audit.names)} columns "
        f"({audit.space} space), cost {type(audit.cost).__name__} of order {audit.order}",
        f"  {right}: {audit.accuracy(0.0):.1%}; a constant model: {audit.constant_accuracy():.1%}",
        f"  delta     deviations  certified  worst-case loss   (of {audit.unit_column})",
    ]
    shown = audit.deltas[:: max(1, len(audit.deltas) // 8)]
    curves = (audit.deviations(shown), audit.accuracy(shown), audit.risk(shown))
    lines += [
        f"  {d:<8.4g}  {m:>10.3g}  {a:>9.1%}  {r:.4g}"
        for d, m, a, r in zip(shown, *curves, strict=True)
    ]
    broken = audit.breaking_point("constant")
    lines.append(f"  as bad as a constant at delta = {broken:.4g}: {audit.in_words(broken)}")
    lines += _parts(audit)
    lines += ["", *(f"  {line}" for line in str(audit.columns).splitlines())]
    lines += [f"  note: {note}" for note in audit.notes]
    if audit.drift is not None:
        lines += ["", str(audit.drift)]
    return "\n".join(lines)


def _parts(audit: Audit) -> list[str]:
    parts = [("class", c, {"class_": c}) for c in present(audit)]
    parts += [("group", g, {"group": g}) for g in groups(audit)]
    lines = [
        f"  {word} {name}: {audit.accuracy(0.0, **key):.1%} right, half of it wrong at delta = "
        f"{audit.breaking_point(0.5, **key):.4g}"
        for word, name, key in parts[:SHOWN]
    ]
    return lines + ([f"  ... and {len(parts) - SHOWN} more"] if len(parts) > SHOWN else [])


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


def drift_text(drift: Drift) -> str:
    """Return the drift in a few lines for a person."""
    bounds = ", ".join(
        f"{name} {value:.4g} (noise {drift.bound_noise[name] or 0:.2g})"
        for name, value in drift.lower_bounds.items()
        if value is not None
    )
    lines = [
        f"Drift of {drift.n_new} new rows from {drift.n_reference}, "
        f"cost {type(drift.cost).__name__} of order {drift.order}",
        f"  at least: {bounds}",
        f"  transport cost {drift.estimate:.4g} on {drift.rows_used[0]} and {drift.rows_used[1]} "
        f"rows; between parts of the reference {drift.noise_floor:.4g}",
        f"  p-value {drift.p_value:.3g}",
    ]
    if drift.verdict is not None:
        lines.append(f"  verdict: {drift.verdict}: {drift.reason}")
    if drift.certified_accuracy is not None:
        lines.append(f"  accuracy still certified there: {drift.certified_accuracy:.1%}")
    known = {k: v for k, v in drift.accuracy.items() if v is not None}
    if known:
        lines.append("  accuracy: " + ", ".join(f"{k} {v:.1%}" for k, v in known.items()))
    lines += ["", *(f"  {line}" for line in str(drift.columns).splitlines())]
    return "\n".join([*lines, *(f"  note: {note}" for note in drift.notes)])


def cost_name(cost: Cost, longest: int = LONG) -> str:
    """Return the cost as it is written, or its class where that is long."""
    text = " ".join(repr(cost).split())
    return text if len(text) <= longest else type(cost).__name__
