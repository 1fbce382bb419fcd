"""What tables with one entry per column share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, eq=False)
class ByColumn:
    """One entry per column: their ``names``, and an array (d,) in every other field."""

    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per column, in the order of the columns."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)[1:]}
        return [
            {"column": name, **{key: float(values[j]) for key, values in parts.items()}}
            for j, name in enumerate(self.names)
        ]
