"""Tables from files (CSV, TSV, Parquet, Excel, gzip, stdin), and the values of their columns.

A table is read whole, sampled or in pieces. A text table may write its numbers as 3.5, 3,5, 1,234.5
or 1.234,5: its head says which. Percentages, amounts with a unit, and yes and no are numbers. A
date becomes numbers whose names say how they follow from it, so that a saved model can be given the
date again.
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
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..arrays import available_memory
from .errors import UserError

Array = NDArray[Any]

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
#: The share of the values that must be of a kind for a column to hold it.
MOST = 0.9
#: The share of the values from which on a column holds mostly that.
MOSTLY = 0.5
#: 2024-01-31, 31.01.2024, 1/31/24, each with or without a time of day.
DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
    r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
#: A time of day.
TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
#: A number with a unit, such as 12%, $5 or 3 kg; also with a typeset minus, or in the parentheses
#: of accountants; its thousands may be set apart by blanks, apostrophes, commas or dots.
WRITTEN = re.compile(
    r"(?P<paren>\()?\s*(?P<minus>[+\-−])?\s*(?P<before>[$€£¥]|EUR|USD|GBP|CHF|JPY)?\s*"
    r"(?P<sign>[+\-−])?(?P<digits>\d+(?:[.,'’ \u00a0\u202f]\d+)*)"
    r"\s*\)?\s*(?P<unit>[%$€£¥]|[a-zA-Z]{1,3})?\s*\)?"
)
#: Of each decimal sign, numbers whose thousands the other sign may set apart.
NUMBER = {
    ".": r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?(?:[eE][+-]?\d+)?",
    ",": r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?",
}
#: A number as a computer writes it.
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
#: Currencies that are written before amounts whose thousands commas set apart.
ENGLISH = ("$", "£", "¥", "USD", "GBP", "JPY")
#: Words for truth values.
WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
#: The numbers that a date becomes.
OF_DATE = re.compile(r"(?:(month|weekday) of (.+)|days of (.+) since (\d{4}-\d{2}-\d{2}))")


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
    if b"\0" in head and not head.startswith(UTF_16):
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
    options: dict[str, Any] = {"index_col": False, "skipinitialspace": True}
    options["sep"] = _separator(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        with _decoded(source) as text:
            head = pd.read_csv(text, nrows=HEAD, dtype=str, **options)
        sign = _decimal_sign(source, head.rename(columns=str.strip))
        options["dtype"] = None if sign == "." else str
        options["low_memory"] = size is not None
        with _decoded(source) as text:
            for piece in pd.read_csv(text, chunksize=size or sys.maxsize, **options):
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
            source.note(
                f"column {name!r} is read as numbers, without zeros in front as in {zero}; "
                f"--categorical {name} takes them as codes."
            )
    return _decided(source, seen)


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


# The values of one column: numbers however they are written, texts and dates.


class Numbers(NamedTuple):
    """A column as floats, nan where missing, and what was read as numbers in words, or ""."""

    values: Array
    what: str = ""


def as_texts(column: Any) -> Array:
    """Return texts as an object array, nan where missing."""
    values = np.array([str(value) for value in column], dtype=object)
    values[column.isna().to_numpy()] = np.nan
    return values


def numbers_in(column: Any, *, words: bool = True) -> Numbers | None:
    """Return a column as numbers, also percentages and amounts; None if it holds texts.

    Without ``words`` yes and no are texts, as in a target.
    """
    if column.dtype.kind not in "mMc" and not isinstance(column.dtype, pd.CategoricalDtype):
        plain = column
        if not pd.api.types.is_numeric_dtype(column.dtype):
            plain = pd.to_numeric(column.astype(object), errors="coerce")
        if plain.isna().sum() == column.isna().sum():
            return Numbers(plain.to_numpy(dtype=float, na_value=np.nan))
    texts = texts_in(column.dropna())
    if texts is None:
        return None
    lower = texts.str.lower()
    if words and lower.isin(WORDS).all():
        values, what = lower.map(WORDS), "yes or true as 1 and no or false as 0"
    elif WRITTEN.fullmatch(texts.iloc[0]) and texts.str.fullmatch(WRITTEN.pattern).all():
        parts = texts.str.extract(WRITTEN.pattern)[list(WRITTEN.groupindex)].fillna("")
        digits = parts.digits.str.replace(r"['’ \u00a0\u202f](?=\d{3})", "", regex=True)
        decimal = _decimal(digits, english=set(parts.before) <= set(ENGLISH))
        if decimal is None or (parts.before + parts.unit).nunique() > 1:
            return None
        values = in_computer_writing(digits, decimal).astype(float)
        minus = parts.minus.isin(["-", "−"]) | parts.sign.isin(["-", "−"]) | (parts.paren == "(")
        values = values.where(~minus, -values)
        what = f"{texts.iloc[0]} as {values.iloc[0]:g}"
    else:
        return None
    return Numbers(values.reindex(column.index).to_numpy(dtype=float), what)


def in_computer_writing(texts: Any, decimal: str) -> Any:
    """Return texts of numbers without signs between thousands, and with a decimal dot."""
    thousands = "," if decimal == "." else "."
    return texts.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)


def _decimal(digits: Any, english: bool) -> str | None:
    """Return the decimal sign of digits; None if they are no numbers, or both signs may be it."""
    fitting = [sign for sign, form in NUMBER.items() if digits.str.fullmatch(form).all()]
    certain = english and not digits.str.contains(".", regex=False).any()
    if len(fitting) == 2 and not (certain or digits.str.isdigit().all()):
        return None
    return fitting[0] if fitting else None


def required_numbers(column: Any, *, words: bool = True) -> Array:
    """Return a column as numbers, nan where missing; refuse texts, by the row of the first one."""
    numbers = numbers_in(column, words=words)
    if numbers is None:
        row = first_text(column)
        raise UserError(
            f"column {column.name!r} must hold numbers, but row {row} holds {str(column[row])!r}."
        )
    return numbers.values


def first_text(column: Any) -> Any:
    """Return the row of the first value of a column that is no number."""
    bad = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
    return bad.idxmax()


def texts_in(present: Any) -> Any:
    """Return the values as stripped texts, None if some are something else."""
    if not len(present) or not present.map(lambda value: isinstance(value, str)).all():
        return None
    return present.astype(object).str.strip()


def like_numbers(column: Any) -> str | None:
    """Return a value of a column of amounts or times that are not read as numbers, else None."""
    texts = texts_in(column.dropna())
    if texts is None:
        return None
    like = texts.str.fullmatch(f"(?:{WRITTEN.pattern})|{TIME}")
    return str(texts.iloc[0]) if float(like.mean()) >= MOST else None


# Dates.


def holds_dates(column: Any) -> bool:
    """Whether a column holds dates: as such, as texts, or as whole numbers like 20240131."""
    if column.dtype.kind in "mM":
        return True
    present = column.dropna()
    if column.dtype.kind not in "iu":
        texts = texts_in(present)
        return texts is not None and float(texts.str.fullmatch(DATE).mean()) >= MOST
    if not len(present) or not present.between(19000101, 21001231).all():
        return False
    return float(days_in(present).notna().mean()) >= MOST and present.nunique() > 1


def days_in(column: Any) -> Any:
    """Return the days of a column of dates, without the time of day; what is none is missing."""
    if column.dtype.kind == "M":
        return column.dt.tz_localize(None).dt.normalize()
    if column.dtype.kind in "iu":
        return pd.to_datetime(column.astype(str), format="%Y%m%d", errors="coerce")
    texts = column.astype(object).str.extract(r"^\s*(\d+[-/.]\d+[-/.]\d+)")[0]
    order = "%d-%m"
    # with slashes the month may come first
    slashes = texts[texts.str.match(r"\d\d?/", na=False)]
    if len(slashes):
        parts = slashes.str.split("[-/.]", expand=True, regex=True).astype(int)
        is_day = (parts > 12).any()
        if is_day[0] == is_day[1]:
            raise UserError(
                f"column {column.name!r} holds {slashes.iloc[0]}, whose month may be the first or "
                "the second number; write dates like 2024-01-31."
            )
        order = "%d-%m" if is_day[0] else "%m-%d"
    written = texts.str.replace("[/.]", "-", regex=True)
    dates = pd.to_datetime(written, format="%Y-%m-%d", errors="coerce")
    # of two digits, up to 68 is this century, as in POSIX
    for form in (f"{order}-%Y", f"{order}-%y"):
        dates = dates.fillna(pd.to_datetime(written, format=form, errors="coerce"))
    return dates


def date_names(column: Any) -> list[str]:
    """Return the names of the numbers that a column of dates becomes.

    They are days since the first, and the month and the weekday where these recur.
    """
    days = days_in(column)
    first, last = days.min(), days.max()
    names = [f"days of {column.name} since {first:%Y-%m-%d}"]
    if last > first + pd.DateOffset(years=1):
        names.append(f"month of {column.name}")
    if last > first + pd.DateOffset(months=1) and days.dt.day_of_week.nunique() > 1:
        names.append(f"weekday of {column.name}")
    return names


def origin(name: str, columns: Any) -> str | None:
    """Return the column of a table that a column of a model is read from, None if it has none."""
    if name in columns:
        return name
    parts = OF_DATE.fullmatch(name)
    date = None if parts is None else parts[2] or parts[3]
    return date if date in columns else None


def number_of_date(name: str, column: Any) -> Array:
    """Return the number ``name`` of a column of dates, a weekday from 1 (Monday) to 7."""
    parts = OF_DATE.fullmatch(name)
    assert parts is not None
    days = days_in(column)
    bad = days.isna() & column.notna()
    if bad.any():
        row = bad.idxmax()
        raise UserError(
            f"column {column.name!r} must hold dates, but row {row} holds {str(column[row])!r}."
        )
    if parts[1] is not None:
        values = days.dt.month if parts[1] == "month" else days.dt.day_of_week + 1
    else:
        values = (days - pd.Timestamp(parts[4])).dt.days
    return np.asarray(values, dtype=float)
