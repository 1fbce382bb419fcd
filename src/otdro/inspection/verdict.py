"""Is a new batch inside the ball? Inside, outside, or cannot tell at this size."""

from __future__ import annotations

from dataclasses import dataclass

INSIDE, OUTSIDE, CANNOT_TELL = "inside", "outside", "cannot tell"


@dataclass(frozen=True)
class DriftVerdict:
    """One of the three answers (None where there is no ball), and the reason in a sentence."""

    answer: str | None
    reason: str


def judge(
    delta: float | None,
    order: int,
    bounds: dict[str, float | None],
    noise: dict[str, float | None],
    estimate: float,
    labelled: bool,
    seen: float | None = None,
) -> DriftVerdict:
    """Compare a drift with the radius delta.

    Outside: a lower bound exceeds delta by more than sampling does, which is measured by the
    same bound between random parts of the reference; roots are compared, because those obey the
    triangle inequality. Inside: labels are known, and the transport cost is at most delta, or that
    of the scores is, ``seen``: then a distribution in the ball has the same scores and labels, and
    no promise about a model with one score can tell the two apart. Without labels the cost is only
    a lower bound of the one with labels.
    """
    if delta is None:
        return DriftVerdict(
            None, "there is no ball to compare with: pass a model and labelled rows."
        )
    for name, bound in bounds.items():
        level = noise[name]
        if bound is None or level is None:
            continue
        root = bound ** (1 / order) - level ** (1 / order)
        if root > delta ** (1 / order):
            return DriftVerdict(
                OUTSIDE,
                f"the {name} bound, {bound:.4g} with {level:.4g} between parts of the "
                f"reference, exceeds delta = {delta:.4g}.",
            )
    if not labelled:
        return DriftVerdict(
            CANNOT_TELL,
            "no lower bound exceeds delta, and without classes the distance of the rows is itself "
            "only a lower bound: where the target is a class, label some of the new rows.",
        )
    if estimate <= delta:
        return DriftVerdict(
            INSIDE, f"the transport cost {estimate:.4g} is within delta = {delta:.4g}."
        )
    if seen is not None and seen <= delta:
        return DriftVerdict(
            INSIDE,
            f"the scores moved by {seen:.4g}, within delta = {delta:.4g}, and the model sees "
            "nothing else of the rows.",
        )
    return DriftVerdict(
        CANNOT_TELL,
        f"the transport cost {estimate:.4g} exceeds delta = {delta:.4g}, but no lower bound does "
        "beyond sampling noise: gather more rows.",
    )
