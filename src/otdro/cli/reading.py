"""Tables from files: CSV, TSV, Parquet, Excel, gzip, stdin; whole, sampled or in pieces.

A text table may write its numbers as 3.5, 3,5, 1,234.5 or 1.234,5: its head says which.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from ..memory import available_memory
from .errors import UserError
from .values import MOSTLY, NUMBER, PLAIN, in_computer_writing

#: Rows that are held at a time where a table is read in pieces.
PIECE = 20_000
#: Memory that a table needs, as a multiple of the file's size.
FACTORS = {"text": 3.0, "gzip": 15.0, "parquet": 10.0, "folder": 10.0, "excel": 30.0}
#: Parts of an archive that an Excel file is, in the order of the program that wrote it.
OFFICE = (b"[Content_Types].xml", b"docProps/", b"xl/")
#: Rows that show what a table holds: how it writes numbers, which column tells the target.
HEAD = 2_000
#: Endings of names, and the kind of file that they promise.
NAMED = {".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel"}
#: First bytes of files that are not read, and what such a file is.
REFUSED = {
    b"PK": "a zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel file (.xls)",
}
#: First bytes of a text in UTF-16, as spreadsheets write it.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, eq=False)
class Source:
    """A table not read yet: a path or the bytes of standard input, its kind and decimal sign.

    ``notes`` collects remarks for the user while the table is read.
    """

    name: str
    kind: str
    size: int
    data: bytes | None = None
    decimal: str = "auto"
    notes: list[str] = field(default_factory=list)

    def open(self) -> IO[bytes]:
        """Return the bytes, decompressed."""
        place: Any = self.name if self.data is None else io.BytesIO(self.data)
        if self.kind == "gzip":
            return cast(IO[bytes], gzip.open(place, "rb"))
        return Path(place).open("rb") if self.data is None else cast(IO[bytes], place)

    def files(self) -> list[Path]:
        """Return the Parquet files of a folder in the order of their names."""
        return sorted(Path(self.name).glob("*.parquet"))

    def rows(self) -> int:
        """Return how many rows the files of a folder have, from their footers alone."""
        import pyarrow.parquet as pq

        return sum(int(pq.read_metadata(file).num_rows) for file in self.files())

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)


def locate(name: str, decimal: str = "auto") -> Source:
    """Return the source that a path, or "-" for standard input, stands for."""
    if name == "-":
        data = sys.stdin.buffer.read()
        kind = _kind("standard input", data[:4096])
        return Source("standard input", kind, len(data), data, decimal)
    path = Path(name)
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.glob("*.parquet"))
        if not size:
            raise UserError(
                f"{path} is a folder without Parquet files; name a file of the table, or a folder "
                "of files *.parquet."
            )
        return Source(name, "folder", size, decimal=decimal)
    if not path.exists():
        raise UserError(f"no such file: {name}. Check the name and the folder.")
    with path.open("rb") as file:
        kind = _kind(name, file.read(4096))
    if NAMED.get(path.suffix.lower(), kind) != kind:
        raise UserError(
            f"{name} is named as a {path.suffix} file but does not hold one: write it again, or "
            "rename it to .csv if it is a text table."
        )
    return Source(name, kind, path.stat().st_size, decimal=decimal)


def _kind(name: str, head: bytes) -> str:
    if not head.strip():
        raise UserError(f"{name} is empty; it needs a line of column names and rows below it.")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"PK") and any(part in head for part in OFFICE):
        return "excel"
    for magic, words in REFUSED.items():
        if head.startswith(magic):
            raise UserError(f"{name} is {words}; unpack or convert it: use CSV, gzip or Parquet.")
    if head.startswith(UTF_16):
        return "text"
    if b"\0" in head:
        raise UserError(f"{name} is not a text table; use CSV, TSV, Parquet or .xlsx.")
    return "text"


def read(source: Source, *, sample: int | None = None, seed: int = 0) -> Any:
    """Return the whole table, or ``sample`` of its rows drawn in one pass, as a DataFrame."""
    if sample is None:
        need, free = FACTORS[source.kind] * source.size, available_memory()
        if need > free:
            raise UserError(
                f"{source.name} needs about {need / 2**30:.1f} GiB of memory and "
                f"{free / 2**30:.1f} GiB are free. Use --sample N to fit to N random rows."
            )
        return pd.concat(list(pieces(source, None)))
    # the rows with the smallest random keys, so that one pass is enough
    rng = np.random.default_rng(seed)
    table, keys = pd.DataFrame(), np.empty(0)
    for piece in pieces(source, PIECE):
        table = pd.concat([table, piece]) if len(table) else piece
        keys = np.concatenate([keys, rng.random(len(piece))])
        if len(keys) > sample:
            order = np.sort(np.argpartition(keys, sample)[:sample])
            table, keys = table.iloc[order], keys[order]
    return table


def pieces(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the table in DataFrames of ``size`` rows, or whole if that is None.

    The index is the row of the file, from 1. A damaged file is refused with a sentence.
    """
    readers = {"parquet": _parquet, "folder": _folder, "excel": _excel}
    rows = 0
    try:
        for piece in readers.get(source.kind, _text)(source, size):
            piece.index = range(rows + 1, rows + len(piece) + 1)
            rows += len(piece)
            piece.columns = [str(name).strip() for name in piece.columns]
            yield piece
    except UnicodeError:
        raise UserError(
            f"{source.name} is not UTF-8 text; convert it, e.g. by iconv -f latin1 -t utf-8."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        reason = str(error).replace("Error tokenizing data. C error: ", "").strip().rstrip(".")
        if "Length of header" in reason:
            reason = "lines have more fields than the first line, which must name the columns"
        raise UserError(
            f"{source.name} is not a regular table ({reason}). Every line needs as many "
            "fields as there are column names."
        ) from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"{source.name} is not a whole gzip file: {error}.") from None
    if not rows:
        raise UserError(f"{source.name} has column names but no rows.")


def _parquet(source: Source, size: int | None) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with source.open() as stream:
            file = pq.ParquetFile(stream)
            _check_names(source.name, list(file.schema_arrow.names))
            for batch in file.iter_batches(size or PIECE):
                yield batch.to_pandas()
    except pa.ArrowException as error:
        raise UserError(f"{source.name} is not a whole Parquet file: {error}") from None


def _folder(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the tables of a folder one after another; their columns must be the same."""
    names: list[str] = []
    for file in source.files():
        for piece in _parquet(Source(str(file), "parquet", 0), size):
            names = names or list(piece.columns)
            if list(piece.columns) != names:
                raise UserError(
                    f"{file.name} has other columns than the files before it: all files of a "
                    "folder need the same columns in the same order."
                )
            yield piece


def _excel(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the first sheet of a workbook, whole: packed rows have no parts."""
    with source.open() as stream, warnings.catch_warnings():
        # styles that the reader does not know say nothing about the values
        warnings.simplefilter("ignore", UserWarning)
        try:
            book = pd.ExcelFile(stream, engine="openpyxl")
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{source.name} is not a whole Excel file: {error}.") from None
        sheet = book.sheet_names[0]
        if len(book.sheet_names) > 1:
            source.note(f"{source.name}: the first sheet, {sheet!r}, is read.")
        table = pd.read_excel(book, sheet_name=sheet)
    _check_names(source.name, [str(name) for name in table.columns])
    yield table


def _text(source: Source, size: int | None) -> Iterator[Any]:
    options: dict[str, Any] = {
        "sep": _separator(source),
        "index_col": False,
        "skipinitialspace": True,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        with _decoded(source) as text:
            head = pd.read_csv(text, nrows=HEAD, dtype=str, **options)
        sign = _decimal_sign(source, head.rename(columns=str.strip))
        options["dtype"] = None if sign == "." else str
        options["low_memory"] = size is not None
        with (
            _decoded(source) as text,
            pd.read_csv(text, chunksize=size or sys.maxsize, **options) as reader,
        ):
            for piece in reader:
                yield piece if sign == "." else piece.apply(_translated, args=(sign, source))


def _decoded(source: Source) -> io.TextIOWrapper:
    stream = io.BufferedReader(cast(io.RawIOBase, source.open()))
    encoding = "utf-16" if stream.peek(2).startswith(UTF_16) else "utf-8-sig"
    return io.TextIOWrapper(stream, encoding=encoding, newline="")


def _separator(source: Source) -> str:
    """Check the names; return the commonest of , ; | and tab in their line."""
    with _decoded(source) as text:
        line = text.readline()
    if not line.strip():
        raise UserError(f"{source.name} does not begin with a line of column names.")
    separator = max(",;\t|", key=line.count)
    names = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    _check_names(source.name, [name.strip() for name in names])
    return separator


def _check_names(where: str, names: list[str]) -> None:
    """Refuse column names that occur twice, or a first row of numbers where names belong."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where} has two columns called {twice[0]!r}; rename one.")
    if len(names) > 1 and all(re.fullmatch(PLAIN, name) for name in names):
        raise UserError(f"{where} begins with numbers; its first line must name the columns.")


# How numbers are written.


def _decimal_sign(source: Source, head: Any) -> str:
    """Return how numbers are written: "." (plain), "," or "1,234.5" for commas between thousands.

    ``head`` are the first rows as texts. A table with two readings is refused.
    """
    # the first column and value that speak for ",", "." or either
    seen: dict[str, tuple[str, str]] = {}
    codes = []
    for name, column in zip(head.columns, head.to_numpy(dtype=object).T, strict=True):
        values = [value.strip() for value in column if isinstance(value, str)]
        if max(map(len, values), default=0) > csv.field_size_limit():
            raise csv.Error(f"column {name!r} has a huge cell: a quote may not be closed")
        kinds = [_writing(value) for value in values]
        if sum(kind != "text" for kind in kinds) >= MOSTLY * len(kinds):
            for kind, value in zip(kinds, values, strict=True):
                seen.setdefault(kind, (name, value))
        zero = next((value for value in values if value.startswith("0")), None)
        alike = len({len(value) for value in values}) == 1
        if zero is not None and alike and all(re.fullmatch(r"\d\d+", value) for value in values):
            codes.append(
                f"column {name!r} is read as numbers, without zeros in front as in {zero}; "
                f"--categorical {name} takes them as codes."
            )
    sign = _decided(source, seen)
    source.notes.extend(codes)
    return sign


def _writing(value: str) -> str:
    """Return "plain", ",", ".", "either" or "text"."""
    if re.fullmatch(PLAIN, value):
        return "plain"
    fitting = [sign for sign, form in NUMBER.items() if re.fullmatch(form, value)]
    return "either" if len(fitting) == 2 else "".join(fitting) or "text"


def _decided(source: Source, seen: dict[str, tuple[str, str]]) -> str:
    """Return the way of writing that the values seen agree with, and say so."""
    asked = source.decimal
    if asked == "," or (asked == "auto" and "," in seen and "." not in seen):
        if "," in seen:
            name, value = seen[","]
            source.note(
                f"commas are read as decimal commas (column {name!r} holds {value}); --decimal . "
                "overrules."
            )
        return ","
    if "," in seen and "." in seen:
        (one, first), (two, second) = seen[","], seen["."]
        raise UserError(
            f"{source.name} writes numbers in two ways: {first} in column {one!r} and {second} in "
            f"column {two!r}. Say which is right by --decimal , or --decimal . and correct the "
            "other."
        )
    if not {".", "either"} & set(seen):
        return "."
    name, value = seen.get(".") or seen["either"]
    if asked == "auto" and "." not in seen:
        raise UserError(
            f"column {name!r} of {source.name} holds {value}, which may be "
            f"{value.replace(',', '')} or {value.replace(',', '.')}. Say --decimal . or "
            "--decimal , to choose."
        )
    source.note(f"commas are read as separators of thousands (column {name!r} holds {value}).")
    return "1,234.5"


def _translated(column: Any, sign: str, source: Source) -> Any:
    """Return a column of texts with its numbers as numbers, if most of it are numbers."""
    present = column.dropna().str.strip()
    if not len(present):
        return column
    if present.str.lower().isin(["true", "false"]).all():
        return column.str.strip().str.lower().map({"true": True, "false": False})
    decimal = "," if sign == "," else "."
    numbers = present.str.fullmatch(NUMBER[decimal])
    # dots alone, in a column that is not all of thousands, are decimal dots
    if present.str.fullmatch(PLAIN).all() and not numbers.all():
        return pd.to_numeric(column.str.strip())
    if numbers.mean() < MOSTLY:
        return column
    column = column.str.strip().astype(object)
    column.loc[numbers.index[numbers]] = in_computer_writing(present[numbers], decimal)
    if decimal == "," and present.str.contains(".", regex=False).any():
        source.note(f"column {column.name!r}: dots are read as separators of thousands.")
    return pd.to_numeric(column) if numbers.all() else column
