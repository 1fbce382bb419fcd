"""The costs that a fit tried, and by how much the one it took won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class CandidateScore:
    """A cost that was tried: its ``name``, deltas, fold scores, the ``delta`` that the rule chose
    for it with its mean ``score`` (more is better) and the rule's ``criterion`` (less is better),
    whether the cost itself was ``chosen``, and its ``weight`` in the cost of the fit."""

    name: str
    deltas: Array
    score_mean: Array
    score_se: Array
    delta: float
    score: float
    criterion: float
    chosen: bool
    weight: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The candidates for a cost under one ``rule``, of which the fit took one, or their blend.

    The criterion of rule "auto" is n log of the smoothed out-of-fold loss plus a prior, so that a
    ``margin`` of m is a factor exp(m) in likelihood; for the others it is minus the score.
    """

    rule: str
    candidates: list[CandidateScore]

    @property
    def winner(self) -> CandidateScore:
        """The candidate that was chosen."""
        return next(c for c in self.candidates if c.chosen)

    @property
    def blended(self) -> bool:
        """Whether the fit took a blend of the candidates."""
        return sum(c.weight > 0 for c in self.candidates) > 1

    @property
    def runner_up(self) -> CandidateScore | None:
        """The best of the others, None if there was one candidate only."""
        others = [c for c in self.candidates if not c.chosen]
        return min(others, key=lambda c: c.criterion, default=None)

    @property
    def margin(self) -> float:
        """The criterion of the runner-up minus that of the winner, inf without a runner-up.

        It may be negative for a blend, which is taken for what it is worth on average.
        """
        second = self.runner_up
        return np.inf if second is None else second.criterion - self.winner.criterion

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per candidate, in the order they were given."""
        names = ("name", "delta", "score", "criterion", "chosen", "weight")
        return [{name: getattr(c, name) for name in names} for c in self.candidates]

    def __str__(self) -> str:
        width = min(max(4, *(len(c.name) for c in self.candidates)), 35)
        weight = f"  {'weight':>6}" if self.blended else ""
        head = f"  {'cost':<{width}}  {'delta':>10}  {'fold score':>10}  {'criterion':>9}"
        lines = [head + weight]
        for c in sorted(self.candidates, key=lambda c: (not c.chosen, c.criterion)):
            weight = f"  {c.weight:>6.2f}" if self.blended else ""
            lines.append(
                f"{'*' if c.chosen else ' '} {c.name[:width]:<{width}}  {c.delta:>10.4g}  "
                f"{c.score:>10.4g}  {c.criterion:>9.4g}{weight}"
            )
        return "\n".join([self._headline(), *lines])

    def _headline(self) -> str:
        second = self.runner_up
        if second is None:
            return f"{self.winner.name}, the only candidate."
        if self.blended:
            parts = [c for c in self.candidates if not c.chosen]
            return (
                f"A blend of {len(parts)} costs, weighted by the criterion of\n"
                f"rule {self.rule!r} (less is better):"
            )
        return (
            f"{self.winner.name} won over {second.name}\nby {self.margin:.3g} in the criterion of "
            f"rule {self.rule!r} (less is better):"
        )
