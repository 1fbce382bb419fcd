"""An audit or a drift in words, as tables by column, and as one document for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..costs.table import EVEN, ROWS, WIDEST, Grid, cost_name, left_out, shorten
from ..estimators.columns import amount_in_words
from .record import audit_record

if TYPE_CHECKING:
    from .auditing import Audit
    from .drifting import Drift, LabelShift

Array = NDArray[Any]

#: Levels of accuracy whose breaking points are given.
LEVELS = [tenths / 10 for tenths in range(9, 4, -1)]
#: Classes, groups and columns that the text shows; the document holds all of them.
SHOWN = 10
#: The accuracies of a drift, in words.
ACCURACIES = {
    "reference": "right on the old rows",
    "reweighted": "with the new shares",
    "new": "right on the new rows",
}
#: The columns that an audit moves, in words.
SPACES = {"last": "the columns in front of the last step", "raw": "the columns of the table"}
#: What the shares of the columns are of.
BUDGET = (
    "share of budget: the part of what the adversary of the accuracy pays, at the delta where the "
    "model is as bad as a constant one; cannot: moves of that column alone do not make it so. The "
    "shares that a fit prints are of the worst case of the mean loss, at its own delta."
)
#: A mean move below this many standard deviations is within what data do by themselves.
SMALL = 0.25
#: A share of the adversary's budget that makes a column the one to watch.
LARGE = 0.3
#: The advice on how to guard a model, which a command that does so leaves out.
GUARD = (
    "Guard it before deployment: otdro audit MODEL DATA --target COL --require-accuracy A "
    "--at-delta D ends with exit code 3 where accuracy A is not certified at delta D."
)


@dataclass(frozen=True, eq=False)
class ByColumn:
    """One entry per column of the table: ``names``, and an array (m,) in every other field.

    A column of categories is one column, with its ``switch`` ("Leeds -> York", else "").
    """

    names: list[str]
    switch: list[str]
    #: The heads of ``cells``.
    head: ClassVar[list[str]]

    def __len__(self) -> int:
        return len(self.names)

    def order(self) -> Array:
        """Return the numbers of the columns, the one that matters most first."""
        raise NotImplementedError

    def cells(self, j: int) -> list[str]:
        """Return the figures of a column for a reader."""
        raise NotImplementedError

    def label(self, j: int) -> str:
        """Return the column, with the switch of its categories."""
        return f"{self.names[j]}: {self.switch[j]}" if self.switch[j] else self.names[j]

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per column, in the order of the columns."""
        parts = {part.name: list(getattr(self, part.name)) for part in fields(self)[1:]}
        return [
            {"column": name, **{key: values[j] for key, values in parts.items()}}
            for j, name in enumerate(self.names)
        ]

    def grid(self, most: int) -> Grid:
        """Return the first ``most`` columns in their order, for a reader."""
        body = [[self.label(j), *self.cells(j)] for j in self.order()[:most]]
        return Grid(["column", *self.head], body)

    def __str__(self) -> str:
        return "\n".join([*self.grid(ROWS).lines(), *left_out(len(self))])


@dataclass(frozen=True, eq=False)
class ColumnTable(ByColumn):
    """What the adversary of a model does in each column.

    ``share`` (m,) is the part of the adversary's budget that goes into the column, at the
    delta where the model is no better than a constant; the parts sum to 1, and one is negative
    where the cost rewards moving a column along with others. ``breaking_point`` (m,) is the delta
    at which moving that column alone breaks the model, inf if it cannot; ``amount`` (m,) the
    same as a mean move in standard deviations of the column, of a column of categories as the share
    of rows that switch. A switch in more rows than the first category has cannot be.
    """

    share: Array
    breaking_point: Array
    amount: Array
    head = ["share of budget", "breaks alone at", "by a move of"]

    def cells(self, j: int) -> list[str]:
        """Return the figures of a column, the move with its unit."""
        share, amount = f"{self.share[j]:.1%}", float(self.amount[j])
        if not np.isfinite(self.breaking_point[j]):
            return [share, "cannot", "-"]
        size = f"{amount:.1%} of rows" if self.switch[j] else f"{amount:.3g} deviations"
        size = size if np.isfinite(amount) else "-"
        return [share, f"{self.breaking_point[j]:.4g}", size]

    def order(self) -> Array:
        """Return the numbers of the columns, the one that breaks the model first at the top."""
        return np.lexsort((-self.share, self.breaking_point))


@dataclass(frozen=True, eq=False)
class DriftTable(ByColumn):
    """How far each column moved, in units of the standard deviation ``scale`` of the reference.

    ``shift`` (m,) is the change of the mean, ``distance`` (m,) the mean move of the column alone
    (its one-dimensional transport cost of order 1), ``p_value`` (m,) that of the Kolmogorov-Smirnov
    distance of that column, not corrected for the number of columns. Of a column of categories
    ``shift`` and ``distance`` are the share of rows that must switch, its scale is 1, and its
    p-value is that of a chi-square test of homogeneity. Where labels are known the reference is
    weighted to the new class shares first.
    """

    shift: Array
    distance: Array
    p_value: Array
    scale: Array
    head = ["mean shift", "mean move", "p-value"]

    def cells(self, j: int) -> list[str]:
        """Return the figures of a column, the moves with their unit."""
        form, unit = (".1%", "of rows") if self.switch[j] else (".3f", "sd")
        shift, distance = format(self.shift[j], "+" + form), format(self.distance[j], form)
        return [f"{shift} {unit}", f"{distance} {unit}", f"{self.p_value[j]:.2g}"]

    def order(self) -> Array:
        """Return the numbers of the columns, the one that moved farthest first."""
        # a switch of all rows is two deviations of an indicator of half of the rows
        unit = np.where([bool(switch) for switch in self.switch], 2.0, 1.0)
        return np.argsort(-self.distance * unit, kind="stable")


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
            "chance_accuracy": audit.chance_accuracy(deltas).tolist(),
            "risk": audit.risk(deltas).tolist(),
            "deviations": audit.deviations(deltas).tolist(),
        },
        "unit_column": audit.unit_column,
        "unit_switch": audit.unit_switch,
        "deviations_of": audit.model.deviations_of,
        "breaking_points": _points(audit, {}),
        "chance_at_breaking_point": _chance_at_breaking_point(audit),
        "classes_breaking": [
            {"class": str(c), **_points(audit, {"class_": c})} for c in audit.present_classes
        ],
        "groups_breaking": [
            {"group": str(g), **_points(audit, {"group": g})} for g in audit.present_groups
        ],
        "by_column": audit.columns.records(),
        "advice": audit.advice,
        "notes": list(audit.notes),
        "drift": None if audit.drift is None else audit.drift.to_dict(),
        "record": audit_record(audit),
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


def _chance_at_breaking_point(audit: Audit) -> dict[str, float | None]:
    """Return the accuracy after a chance drift as large as the adversary's breaking point."""
    broken = audit.breaking_point("constant")
    if not np.isfinite(broken):
        return {"mean": None, "low": None}
    low = audit.chance_accuracy(broken, low=True)
    return {"mean": audit.chance_accuracy(broken), "low": low}


def audit_pairs(audit: Audit) -> list[tuple[str, str]]:
    """Return the figures that matter most, by name."""
    right = "right" if audit.tau is None else f"within {audit.tau:.4g} of the target"
    broken = audit.breaking_point("constant")
    columns, of_table = "", len(audit.model.groups.indices)
    if audit.model.front is not None:
        made = "" if of_table == len(audit.names) else f", made of {of_table} of the table"
        columns = f" ({SPACES[audit.space]}{made})"
    pairs = [
        ("rows, columns", f"{len(audit.weights)}, {len(audit.names)}{columns}"),
        ("cost, order", f"{cost_name(audit.cost)}, {audit.order}"),
        ("deviations", f"standard deviations {audit.model.deviations_of}"),
        (right, share_in_words(audit.accuracy(0.0))),
        ("a constant model", share_in_words(audit.constant_accuracy())),
    ]
    fitted = audit.fitted_delta
    if fitted is not None:
        certified = f"{share_in_words(audit.accuracy(fitted))} certified within it"
        words = f"{fitted:.4g}, {audit.in_words(fitted)}: {certified}"
        pairs.append(("delta of the fit", words))
    if not np.isfinite(broken):
        return [*pairs, ("as bad as that at", f"no delta: {audit.in_words(broken)}")]
    words = f"delta = {broken:.4g}, {audit.in_words(broken)}, by an adversary that aims at the "
    pairs.append(("as bad as that at", f"{words}boundary"))
    return [*pairs, ("by chance there", chance_words(audit, broken))]


def chance_words(audit: Audit, delta: float) -> str:
    """Return what a chance drift of cost delta does to accuracy."""
    mean, low = audit.chance_accuracy(delta), audit.chance_accuracy(delta, low=True)
    return (
        f"a drift of the same mean cost in a random direction leaves {mean:.1%} right (simulated; "
        f"95 of 100 such drifts leave at least {low:.1%})"
    )


def curve_grid(audit: Audit) -> Grid:
    """Return certified and chance accuracy at some of the deltas and at the fitted one."""
    most = 1.0 if audit.unit_switch else np.inf
    shown = audit.deltas[:: max(1, len(audit.deltas) // 8)]
    fitted = audit.fitted_delta
    if fitted is not None:
        shown = np.unique(np.append(shown, fitted))
    body = [
        [
            f"fitted {d:.4g}" if d == fitted else f"{d:.4g}",
            f"{audit.deviations(d):.3g}" if audit.deviations(d) <= most else "above 1",
            share_in_words(audit.accuracy(d)),
            share_in_words(audit.chance_accuracy(d)),
            f"{audit.risk(d):.4g}",
        ]
        for d in shown
    ]
    unit = "share of rows" if audit.unit_switch else "deviations"
    return Grid(["delta", unit, "certified", "by chance", "worst-case loss"], body)


def parts_grid(audit: Audit) -> Grid:
    """Return how soon all rows, classes and groups break."""
    parts: list[tuple[str, dict[str, Any]]] = [("all rows", {})]
    parts += [(f"class {c}", {"class_": c}) for c in audit.present_classes]
    parts += [(f"group {g}", {"group": g}) for g in audit.present_groups]
    delta = audit.advised_delta
    body = []
    for name, key in parts[: SHOWN + 1]:
        shares = [share_in_words(audit.accuracy(at, **key)) for at in (0.0, delta)]
        half = audit.breaking_point(0.5, **key)
        body.append([name, *shares, "cannot" if np.isinf(half) else f"{half:.4g}"])
    if len(parts) > SHOWN + 1:
        body.append([f"... and {len(parts) - SHOWN - 1} more", "", "", ""])
    return Grid(["rows", "right", f"certified at {delta:.3g}", "half wrong at"], body)


def curve_note(audit: Audit) -> str:
    """Return what the columns of the curve are."""
    unit = f"deviations: the mean move of {audit.unit_column} that costs delta, in its standard "
    unit += "deviations"
    if audit.unit_switch:
        unit = f"share of rows: how many switch {audit.unit_column} ({audit.unit_switch}) at delta"
    return (
        f"{unit}; certified: right whatever an adversary does within delta; by chance: right "
        "after a drift of that mean cost in a random direction, simulated."
    )


def audit_advice(audit: Audit) -> list[str]:
    """Return what to do next, in sentences that follow from the figures of the audit."""
    if float(audit.breaking_point("constant")) == 0:
        text = (
            "The model is no better than a constant one on these rows: check the target and the "
            "columns before anything else."
        )
        return [text, *_drift_advice(audit)]
    columns, delta = audit.columns, audit.advised_delta
    sentences = []
    first, top = int(columns.order()[0]), int(np.argmax(columns.share))
    alone, amount = float(columns.breaking_point[first]), float(columns.amount[first])
    if np.isfinite(alone):
        name = shorten(columns.names[first], WIDEST)
        text = (
            f"An adversary that aims at the boundary makes the model no better than a constant one "
            f"by {amount_in_words(amount, name, columns.switch[first])} alone; "
            f"{chance_words(audit, alone)}."
        )
        if amount < SMALL:
            text += " Do not use it where someone can choose the values of that column."
        sentences.append(text)
    if columns.share[top] >= LARGE:
        sentences.append(
            f"Watch the column {shorten(columns.names[top], WIDEST)}: {columns.share[top]:.0%} of "
            "the adversary's budget goes into it. Check how it is measured, and who can change it."
        )
    values = {c: float(audit.accuracy(delta, class_=c)) for c in audit.present_classes}
    if values:
        worst = min(values, key=values.__getitem__)
        sentences.append(
            f"The weakest class is {shorten(str(worst), WIDEST)}: at delta {delta:.3g} an "
            f"adversary that attacks it alone leaves {share_in_words(values[worst])} of its rows "
            "right. More of its rows, or in Python a larger class_weight, would help first."
        )
    return [*sentences, *_drift_advice(audit)]


def _drift_advice(audit: Audit) -> list[str]:
    """Return what the new rows ask for, or how to guard the model where there are none."""
    drift = audit.drift
    if drift is None:
        return [GUARD]
    moved, shift = [], drift.label_shift
    if drift.delta is not None and max(drift.beyond_noise.values()) > drift.delta:
        farthest = shorten(drift.columns.names[int(drift.columns.order()[0])], WIDEST)
        moved.append(f"are farther away than what was certified, {farthest} farthest")
    if shift is not None and shift.beyond_chance:
        moved.append(f"have other class shares than these, {shares_in_words(shift)}")
    if drift.new_values:
        moved.append(
            f"have values that these rows do not have, in {' and '.join(drift.new_values)}"
        )
    ask = "label some of them, " if audit.classes is not None else "get some of their targets, "
    ask = ask if drift.accuracy["new"] is None else ""
    unknown = "Whether the new rows are within what was certified cannot be told"
    how = ": gather more of them, with labels."
    if audit.classes is None:
        how = " from the rows: compare the errors on new rows whose targets are known."
    by_verdict = {
        "inside": "The new rows are within what was certified: keep watching them.",
        "outside": (
            f"The new rows {' and '.join(moved)}: find out why, {ask}and fit again with them."
        ),
        "cannot tell": unknown + how,
    }
    return [by_verdict[drift.verdict]] if drift.verdict in by_verdict else []


def still_to_do(advice: Sequence[str], requirements: Sequence[dict[str, Any]]) -> list[str]:
    """Return the advice, without that on a guard where an accuracy is required already."""
    guarded = any(line["requirement"] == "accuracy" for line in requirements)
    return [text for text in advice if not (guarded and text == GUARD)]


def requirement_in_words(line: dict[str, Any]) -> str:
    """Return a requirement of a document, and whether it is met."""
    word, what = "met" if line["met"] else "NOT MET", "drift <="
    if line["at_delta"] is not None:
        what = f"accuracy at delta = {line['at_delta']:g} >="
    found = [f"found {line['found']:.4g}", *line["beside"]]
    return f"{word}: {what} {line['required']:g}, {'; '.join(found)}"


def share_in_words(share: float) -> str:
    """Return a share of rows in percent; half of the last digit is rounded up, as by hand."""
    # of 94 of 160 rows, weights that are summed may leave a little less than 58.75%
    return f"{share + EVEN:.1%}"


def audit_text(audit: Audit) -> str:
    """Return the summary for a person."""
    title = "Audit: how far the rows may move before the model is as bad as a constant one"
    lines = [title, *(f"{name}: {value}" for name, value in audit_pairs(audit)), ""]
    lines += [*curve_grid(audit).lines(), curve_note(audit), ""]
    lines += [*parts_grid(audit).lines(), ""]
    lines += [str(audit.columns), BUDGET]
    lines += [f"note: {note}" for note in audit.notes]
    if audit.drift is not None:
        lines += ["", str(audit.drift)]
    lines += ["", "What to do next", *(f"* {sentence}" for sentence in audit.advice)]
    return "\n".join(lines)


def drift_dict(drift: Drift) -> dict[str, Any]:
    """Return the document of ``docs/audit.md``."""
    rows_used = list(drift.rows_used)
    return {
        "rows_reference": drift.n_reference,
        "rows_new": drift.n_new,
        "columns": len(drift.names),
        "cost": cost_name(drift.cost),
        "order": drift.order,
        "lower_bounds": drift.lower_bounds,
        "bound_noise": drift.bound_noise,
        "beyond_noise": drift.beyond_noise,
        "estimate": drift.estimate,
        "noise_floor": drift.noise_floor,
        "rows_used": rows_used,
        "noise_rows": rows_used,
        "p_value": drift.p_value,
        "label_shift": None if drift.label_shift is None else drift.label_shift.to_dict(),
        "delta": drift.delta,
        "verdict": drift.verdict,
        "reason": drift.reason,
        "certified_accuracy": drift.certified_accuracy,
        "accuracy": drift.accuracy,
        "tau": drift.tau,
        "by_column": drift.columns.records(),
        "new_values": dict(drift.new_values),
        "notes": list(drift.notes),
    }


def drift_pairs(drift: Drift) -> list[tuple[str, str]]:
    """Return how far the new rows are, and what follows, by name."""
    lines = [("rows", f"{drift.n_reference} old, {drift.n_new} new")]
    for name, beyond in drift.beyond_noise.items():
        bound, noise = drift.lower_bounds[name], drift.bound_noise[name]
        text = f"{bound:.4g}, by chance up to {noise:.3g}, beyond chance {beyond:.3g}"
        lines.append((f"at least ({name})", text))
    shift = drift.label_shift
    if shift is not None and shift.labels is not None:
        lines.append(("class shares", shares_in_words(shift)))
    used = f"{drift.rows_used[0]} and {drift.rows_used[1]} rows"
    lines += [
        ("transport cost", f"{drift.estimate:.4g} ({used})"),
        ("by chance", f"{drift.noise_floor:.4g} (two such samples of one population)"),
        ("p-value", f"{drift.p_value:.3g}"),
    ]
    if drift.delta is not None:
        lines.append(("delta of the ball", f"{drift.delta:.4g}"))
    if drift.verdict is not None:
        lines.append(("verdict", f"{drift.verdict}: {drift.reason}"))
    if drift.certified_accuracy is not None:
        lines.append(("still certified", share_in_words(drift.certified_accuracy)))
    # for regression a prediction is right within tau of its target
    within = "" if drift.tau is None else f" (within {drift.tau:.4g} of the target)"
    right = [(ACCURACIES[key], v) for key, v in drift.accuracy.items() if v is not None]
    return lines + [(name, share_in_words(value) + within) for name, value in right]


def shares_in_words(shift: LabelShift) -> str:
    """Return the class shares of both samples, of many those that differ most, and the p-value."""
    assert shift.labels is not None
    order = np.argsort(-np.abs(shift.new - shift.reference), kind="stable")
    words = [
        f"{shorten(shift.labels[k], WIDEST)} {share_in_words(shift.reference[k])} -> "
        f"{share_in_words(shift.new[k])}"
        for k in np.sort(order[:SHOWN])
    ]
    more = [f"{len(order) - SHOWN} more"] if len(order) > SHOWN else []
    return f"{', '.join([*words, *more])} (p-value {shift.p_value:.2g})"


def drift_text(drift: Drift) -> str:
    """Return the drift in a few lines for a person."""
    title = (
        f"Drift of {drift.n_new} new rows from {drift.n_reference}, cost "
        f"{cost_name(drift.cost)} of order {drift.order}"
    )
    # the rows are in the title
    lines = [
        title,
        *(f"{name}: {value}" for name, value in drift_pairs(drift)[1:]),
        "",
        str(drift.columns),
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in drift.notes)])
