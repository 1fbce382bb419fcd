"""Tables from files: CSV, TSV, Parquet, Excel, gzip, stdin; whole, sampled or in pieces."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from ..memory import available_memory
from .decimals import decimals
from .errors import UserError

#: Rows of a piece when a table is streamed.
PIECE = 50_000
#: Memory that a table needs, as a multiple of the file's size.
FACTORS = {"text": 3.0, "gzip": 15.0, "parquet": 10.0, "folder": 10.0, "excel": 30.0}
#: Parts of an archive that an Excel file is, in the order of whoever wrote it.
OFFICE = (b"[Content_Types].xml", b"docProps/", b"xl/")
#: Characters of a text table from which the way of writing numbers is found out.
HEAD = 1_000_000
#: Endings of names, the kind of file that they promise, and that kind in words.
NAMED = {
    ".parquet": ("parquet", "a Parquet file"),
    ".pq": ("parquet", "a Parquet file"),
    ".xlsx": ("excel", "an Excel file"),
}
REFUSED = {
    b"PK": "a zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel file (.xls)",
    b"BZ": "a bzip2 file",
    b"\xfd7": "an xz file",
}


@dataclass(frozen=True, eq=False)
class Source:
    """A table not read yet: a path or the bytes of standard input, its kind and decimal sign.

    ``notes`` fills with what there is to say of it while it is read.
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


def locate(name: str, decimal: str = "auto") -> Source:
    """Return the source that a path, or "-" for standard input, stands for."""
    if name == "-":
        data = sys.stdin.buffer.read()
        kind = _kind("standard input", data[:4096])
        return Source("standard input", kind, len(data), data, decimal)
    path = Path(name)
    if path.is_dir():
        return _folder(path, decimal)
    if not path.exists():
        raise UserError(f"no such file: {name}. Check the name and the folder.")
    with path.open("rb") as file:
        head = file.read(4096)
    kind = _kind(name, head)
    named = NAMED.get(path.suffix.lower())
    if named is not None and kind != named[0]:
        raise UserError(
            f"{name} is named as {named[1]} but does not hold one: write it again, or rename it "
            "to .csv if it is a text table."
        )
    return Source(name, kind, path.stat().st_size, decimal=decimal)


def _folder(path: Path, decimal: str) -> Source:
    """Return the source of a folder of Parquet files."""
    files = parquet_files(path)
    if not files:
        raise UserError(
            f"{path} is a folder without Parquet files; name a file of the table, or a folder of "
            "files *.parquet."
        )
    return Source(str(path), "folder", sum(f.stat().st_size for f in files), decimal=decimal)


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder in the order of their names."""
    return sorted(folder.glob("*.parquet"))


def _files_in_turn(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the tables of a folder one after another; their columns must be the same."""
    names: list[str] | None = None
    for file in parquet_files(Path(source.name)):
        for piece in _parquet(Source(str(file), "parquet", 0), size):
            names = list(piece.columns) if names is None else names
            if list(piece.columns) != names:
                raise UserError(
                    f"{file.name} has other columns than the files before it: all files of a "
                    "folder need the same columns in the same order."
                )
            yield piece


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
    if b"\0" in head:
        raise UserError(f"{name} is not a text table; use CSV, TSV, Parquet or .xlsx.")
    return "text"


def read(source: Source, *, sample: int | None = None, seed: int = 0) -> Any:
    """Return the whole table, or ``sample`` of its rows drawn in one pass, as a DataFrame."""
    import pandas as pd

    if sample is not None:
        if sample < 1:
            raise UserError(f"--sample must be at least 1, got {sample}.")
        return _sampled(source, sample, seed)
    need, free = FACTORS[source.kind] * source.size, available_memory()
    if need > free:
        raise UserError(
            f"{source.name} needs about {need / 2**30:.1f} GiB of memory and "
            f"{free / 2**30:.1f} GiB are free. Use --sample N to fit to N random rows."
        )
    table = pd.concat(list(pieces(source, None)), ignore_index=True)
    table.attrs["notes"] = list(source.notes)
    return table


def _sampled(source: Source, sample: int, seed: int) -> Any:
    """Keep the rows with the smallest random keys, so that one pass is enough."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    kept, keys = None, np.empty(0)
    for piece in pieces(source, PIECE):
        kept = piece if kept is None else pd.concat([kept, piece], ignore_index=True)
        keys = np.concatenate([keys, rng.random(len(piece))])
        if len(keys) > sample:
            order = np.sort(np.argpartition(keys, sample)[:sample])
            kept, keys = kept.iloc[order].reset_index(drop=True), keys[order]
    if kept is not None:
        kept.attrs["notes"] = list(source.notes)
    return kept


def pieces(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the table in DataFrames of ``size`` rows, or whole if that is None."""
    readers = {"parquet": _parquet, "folder": _files_in_turn, "excel": _excel}
    found = readers.get(source.kind, _text)(source, size)
    rows = 0
    for piece in found:
        rows += len(piece)
        piece.columns = [str(name).strip() for name in piece.columns]
        yield piece
    if not rows:
        raise UserError(f"{source.name} has column names but no rows.")


def _parquet(source: Source, size: int | None) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with source.open() as stream:
            file = pq.ParquetFile(stream)
            check_names(source.name, list(file.schema_arrow.names))
            for batch in file.iter_batches(size or PIECE):
                yield batch.to_pandas()
    except pa.ArrowException as error:
        raise UserError(f"{source.name} is not a whole Parquet file: {error}") from None


def _excel(source: Source, size: int | None) -> Iterator[Any]:
    """Yield the first sheet of a workbook, whole: packed rows have no parts."""
    import pandas as pd

    with source.open() as stream, warnings.catch_warnings():
        # styles that the reader does not know say nothing about the values
        warnings.simplefilter("ignore", UserWarning)
        try:
            book = pd.ExcelFile(stream, engine="openpyxl")
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{source.name} is not a whole Excel file: {error}.") from None
        sheet = book.sheet_names[0]
        if len(book.sheet_names) > 1:
            source.notes.append(f"{source.name}: the first sheet, {sheet!r}, is read.")
        table = pd.read_excel(book, sheet_name=sheet)
    check_names(source.name, [str(name) for name in table.columns])
    yield table


def _text(source: Source, size: int | None) -> Iterator[Any]:
    import pandas as pd

    try:
        separator, head = _head(source)
        written = decimals(source.name, head, separator, source.decimal)
        options: dict[str, Any] = {"sep": separator, "index_col": False, "skipinitialspace": True}
        if not written.plain:
            options["dtype"] = str
        with _decoded(source) as text, warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            if size is None:
                yield written.translate(pd.read_csv(text, low_memory=False, **options))
            else:
                for piece in pd.read_csv(text, chunksize=size, **options):
                    yield written.translate(piece)
            source.notes.extend(written.notes)
    except UnicodeDecodeError:
        raise UserError(
            f"{source.name} is not UTF-8 text; convert it, e.g. by iconv -f latin1 -t utf-8."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise UserError(
            f"{source.name} is not a regular table ({_reason(error)}). Every line needs as many "
            "fields as there are column names."
        ) from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"{source.name} is not a whole gzip file: {error}.") from None


def _decoded(source: Source) -> io.TextIOWrapper:
    return io.TextIOWrapper(source.open(), encoding="utf-8-sig", newline="")


def _reason(error: Exception) -> str:
    if "Length of header" in str(error):
        return "lines have more fields than the first line, which must name the columns"
    return str(error).replace("Error tokenizing data. C error: ", "").strip().rstrip(".")


def _head(source: Source) -> tuple[str, str]:
    """Check the names; return the separator, the commonest of , ; | and tab, and the head."""
    with _decoded(source) as text:
        line = text.readline(HEAD)
        # whole lines only: the last one of a long file may be cut
        rest = text.read(HEAD)
    if not line.strip():
        raise UserError(f"{source.name} does not begin with a line of column names.")
    separator = max(",;\t|", key=line.count)
    names = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    check_names(source.name, [name.strip() for name in names])
    whole = rest if len(rest) < HEAD else rest[: rest.rfind("\n") + 1]
    return separator, line + whole


def check_names(where: str, names: list[str]) -> None:
    """Refuse column names that occur twice, or a first row of numbers where names belong."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where} has two columns called {twice[0]!r}; rename one.")
    if len(names) > 1 and all(_is_number(name) for name in names):
        raise UserError(f"{where} begins with numbers; its first line must name the columns.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
