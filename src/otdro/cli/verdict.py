"""One sentence on a comparison: is the model worth having here, and if not, what to try."""

from __future__ import annotations

from ..comparison import Summary

#: Paired differences of this many standard errors count.
ERRORS = 2.0
REMEDIES = {"L1": "--cost linf", "L2": "--cost euclidean", "plain": "a smaller --delta"}
WORDS = {"L1": "L1", "L2": "L2", "plain": "the model without a penalty", "constant": "a constant"}


def verdict(scores: list[Summary], cost: str | None = None) -> str:
    """Return the sentence; differences are of the first measure, a loss, paired by split."""
    measure = scores[0].measure
    found = {s.method: s for s in scores if s.measure == measure and s.method in WORDS}
    gains = {name: gain(summary) for name, summary in found.items()}
    if "constant" in found and gains["constant"] < ERRORS:
        return (
            "No better than a model that sees no column: nothing was learned that holds on other "
            "rows."
        )
    others: list[str] = [name for name in ("L2", "L1", "plain") if name in found]
    beaten = [name for name in others if gains[name] >= ERRORS]
    ahead = sorted((n for n in others if gains[n] <= -ERRORS), key=gains.__getitem__)
    even = [name for name in others if name not in beaten and name not in ahead]
    parts = []
    if beaten:
        parts.append(f"better than {_listed(beaten)} here")
    if even:
        parts.append(f"no better and no worse than {_listed(even)}")
    text = "; ".join(parts)
    if ahead:
        best = ahead[0]
        worse = f"{_listed(ahead)} {'is' if len(ahead) == 1 else 'are'} better"
        remedy = REMEDIES[best]
        known = cost is not None and remedy == f"--cost {cost}"
        text = "; ".join(([text] if text else []) + [worse + ("" if known else f": try {remedy}")])
    return text[:1].upper() + text[1:] + f" ({measure}, {ERRORS:g} standard errors)."


def gain(other: Summary) -> float:
    """Return by how many standard errors of the paired difference ours is better than a method."""
    difference = -other.difference if other.measure == "accuracy" else other.difference
    if other.difference_se > 0:
        return difference / other.difference_se
    return float("inf") * difference if difference else 0.0


def on_the_cost(scores: list[Summary]) -> str:
    """Return whether the learned cost pays: ours beside the same model under a Euclidean cost."""
    euclidean = next(s for s in scores if s.method == "Wasserstein")
    found = gain(euclidean)
    word = "is no better and no worse than"
    if abs(found) >= ERRORS:
        word = "wins against" if found > 0 else "loses against"
    return (
        f"The learned cost {word} the Euclidean one here ({euclidean.measure} of the Euclidean "
        f"one minus that of the learned one: {euclidean.difference:+.3f} ± "
        f"{euclidean.difference_se:.3f})."
    )


def _listed(names: list[str]) -> str:
    words = [WORDS[name] for name in names]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
