"""What tables with one entry per column share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from numpy.typing import NDArray

from ..costs.table import ROWS, Grid, left_out


@dataclass(frozen=True, eq=False)
class ByColumn:
    """One entry per column: their ``names``, and an array (d,) in every other field."""

    names: list[str]
    #: The fields that a reader is shown: their heads, and how numbers are written.
    shown: ClassVar[dict[str, tuple[str, str]]]

    def __len__(self) -> int:
        return len(self.names)

    def order(self) -> NDArray[Any]:
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
