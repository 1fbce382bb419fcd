"""What the page says: at every stop, and of every drawn row."""

from __future__ import annotations

import numpy as np

from ..inspection.auditing import Change
from .markup import isolated, number, percent, plain
from .view import View

#: Columns that the text of a row tells.
TOLD = 3


def stop_texts(view: View) -> list[dict[str, str]]:
    """Return what the page prints at every stop."""
    n = len(view.audit.weights)
    found = []
    for k, delta in enumerate(view.stops.deltas):
        refit = view.refit_at(k)
        found.append(
            {
                "delta": number(delta),
                "words": plain(view.audit.in_words(float(delta)), 160),
                "accuracy": percent(view.stops.accuracy[k]),
                "risk": number(view.stops.risk[k]),
                "wrong": f"{view.wrong(float(delta)):,} of {n:,}",
                "refit-accuracy": "–" if refit is None else percent(refit.accuracy),
                "refit-risk": "–" if refit is None else number(refit.robust_risk),
                "refit-plain": "–" if refit is None else number(refit.empirical_risk),
            }
        )
    return found


def row_text(view: View, k: int) -> str:
    """Return one line on a drawn row."""
    distance = float(view.audit.distance[k])
    head = f"Row {k}, {label(view, k)}"
    if distance == 0:
        return f"{head}: wrong without any move."
    if not np.isfinite(view.audit.price[k]):
        return f"{head}: no move makes it wrong."
    turn = number(view.all_budgets[0][k])
    if view.audit.part_moved[k] == 0:
        return f"{head}: {change_text(view, k)} above delta {turn}."
    return (
        f"{head}: {number(distance)} from a flip, moved above delta {turn}; {change_text(view, k)}."
    )


def label(view: View, k: int) -> str:
    """Return the class or the target of a row."""
    if view.audit.classes is None:
        return f"target {number(view.audit.target[k])}"
    return isolated(view.audit.classes[int(view.audit.target[k])])


def change_text(view: View, k: int) -> str:
    """Return what the counterfactual of a drawn row changes, largest first."""
    if view.audit.part_moved[k] == 0:
        return f"its {'target' if view.audit.classes is None else 'label'} is changed"
    i = int(np.searchsorted(view.rows, k))
    changed = view.sample.changes(i)
    parts = [f"{isolated(c.column, 24)} {_step(c)}" for c in changed[:TOLD]]
    rest = len(changed) - len(parts)
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")


def _step(change: Change) -> str:
    """Return a change from one value to another, as a difference where three digits hide it."""
    before, after = number(change.before), number(change.after)
    if before != after:
        return f"{before} → {after}"
    return f"{before} {change.after - change.before:+.2g}".replace("-", "−")
