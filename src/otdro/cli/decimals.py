"""How a text table writes its numbers: 3.5, 3,5, 1,234.5 or 1.234,5; found out from its head."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import Any

from .errors import UserError

#: A decimal comma, thousands set apart by dots; and a decimal dot, thousands set apart by commas.
COMMA = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?"
DOT = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?(?:[eE][+-]?\d+)?"
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
#: Texts that are no value.
MISSING = {"", "na", "n/a", "nan", "null", "none", "#n/a", "<na>", "-nan"}
#: The share of a column's values that must be numbers for it to count.
MOSTLY = 0.5


@dataclass
class Decimals:
    """The decimal sign of a table: "." (plain), "," or "1,234.5" for commas between thousands."""

    sign: str = "."
    notes: list[str] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Whether the numbers are written as a computer writes them."""
        return self.sign == "."

    def translate(self, piece: Any) -> Any:
        """Return a piece of texts with its numbers as numbers; say once which columns they are."""
        return piece if self.plain else piece.apply(self._translated)

    def _translated(self, column: Any) -> Any:
        import pandas as pd

        present = column.dropna().str.strip()
        if not len(present):
            return column
        truth = present.str.lower().isin(["true", "false"])
        if truth.all():
            return column.str.strip().str.lower().map({"true": True, "false": False})
        pattern, decimal, between = (COMMA, ",", ".") if self.sign == "," else (DOT, ".", ",")
        # dots alone, in a column that is not all of thousands, are decimal dots
        numbers = present.str.fullmatch(pattern)
        if present.str.fullmatch(PLAIN).all() and not numbers.all():
            return pd.to_numeric(column.str.strip())
        if numbers.mean() < MOSTLY:
            return column
        plain = present[numbers].str.replace(between, "", regex=False)
        column = column.str.strip().astype(object)
        column.loc[plain.index] = plain.str.replace(decimal, ".", regex=False)
        if between == "." and present.str.contains(".", regex=False).any():
            text = f"column {column.name!r}: dots are read as separators of thousands."
            self.notes += [text] if text not in self.notes else []
        return pd.to_numeric(column) if numbers.all() else column


def decimals(where: str, head: str, separator: str, asked: str = "auto") -> Decimals:
    """Return how the head of a table writes numbers; refuse what has two readings."""
    if asked not in ("auto", ".", ","):
        raise UserError(f"--decimal must be . or , or auto, got {asked!r}.")
    lines = head.splitlines()[:2000]
    rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    names, body = [name.strip() for name in rows[0]], rows[1:]
    seen: dict[str, tuple[str, str]] = {}
    codes = []
    for j, name in enumerate(names):
        values = [row[j].strip() for row in body if len(row) > j]
        present = [v for v in values if v.lower() not in MISSING]
        _look(name, present, seen)
        codes += _codes(name, present)
    found = _decided(where, seen, asked)
    found.notes += codes
    return found


def _codes(name: str, values: list[str]) -> list[str]:
    """Return a note on digits of one length with zeros in front, as codes have; [] elsewhere."""
    zero = next((v for v in values if v.startswith("0")), None)
    alike = len({len(v) for v in values}) == 1 and all(re.fullmatch(r"\d\d+", v) for v in values)
    if zero is None or not alike:
        return []
    return [
        f"column {name!r} is read as numbers, without zeros in front as in {zero}; --categorical "
        f"{name} takes them as codes."
    ]


def _look(name: str, values: list[str], seen: dict[str, tuple[str, str]]) -> None:
    """Note the first value of a column of numbers that speaks for one way of writing."""
    kinds = {value: _kind(value) for value in dict.fromkeys(values)}
    if not values or sum(kinds[v] != "text" for v in values) < MOSTLY * len(values):
        return
    for value, kind in kinds.items():
        if kind not in ("text", "plain"):
            seen.setdefault(kind, (name, value))


def _kind(value: str) -> str:
    if re.fullmatch(PLAIN, value):
        return "plain"
    comma, dot = (bool(re.fullmatch(pattern, value)) for pattern in (COMMA, DOT))
    return {(True, True): "either", (True, False): ",", (False, True): "."}.get(
        (comma, dot), "text"
    )


def _decided(where: str, seen: dict[str, tuple[str, str]], asked: str) -> Decimals:
    if asked == "," or (asked == "auto" and "," in seen and "." not in seen):
        found = Decimals(",")
        if "," in seen:
            name, value = seen[","]
            found.notes.append(
                f"commas are read as decimal commas (column {name!r} holds {value}); --decimal . "
                "overrules."
            )
        return found
    if "," in seen and "." in seen:
        (one, first), (two, second) = seen[","], seen["."]
        raise UserError(
            f"{where} writes numbers in two ways: {first} in column {one!r} and {second} in column "
            f"{two!r}. Say which is right by --decimal , or --decimal . and correct the other."
        )
    if asked == "auto" and "either" in seen and "." not in seen:
        name, value = seen["either"]
        raise UserError(
            f"column {name!r} of {where} holds {value}, which may be {value.replace(',', '')} or "
            f"{value.replace(',', '.')}. Say --decimal . or --decimal , to choose."
        )
    if "." in seen or "either" in seen:
        name, value = seen.get(".", seen.get("either", ("", "")))
        note = f"commas are read as separators of thousands (column {name!r} holds {value})."
        return Decimals("1,234.5", [note])
    return Decimals()
