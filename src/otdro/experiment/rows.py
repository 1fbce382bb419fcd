"""Results on disk: an append-only file of rows that survives a kill, and a canonical final file."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import IO, Any

ROWS = "rows.jsonl"
FINAL = "results.csv"


@dataclass(frozen=True)
class Row:
    """One replication of one method on one data set.

    Losses are mean log-losses, ``radius`` is the delta (or C) chosen, ``seconds`` is processor
    time, ``note`` is empty or says what went wrong.
    """

    set: str
    rep: int
    method: str
    seed: int
    train_rows: int
    test_rows: int
    train_loss: float
    test_loss: float
    accuracy: float
    radius: float
    seconds: float
    intercept: bool
    base_seed: int
    note: str
    versions: str


COLUMNS = [field.name for field in fields(Row)]
Key = tuple[str, int, str]


def key(row: Row) -> Key:
    """Return what identifies a row within a run."""
    return (row.set, row.rep, row.method)


def read(folder: Path) -> list[Row]:
    """Return the rows that were written whole; the torn end of a killed run is cut off."""
    path = folder / ROWS
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if len(whole) < len(raw):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    try:
        return [Row(**json.loads(line)) for line in whole.splitlines()]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is not a file of rows of this version ({error}). Use another --out."
        ) from None


def append(folder: Path, rows: Iterable[Row]) -> None:
    """Add rows in one write, on the disk when this returns."""
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    try:
        with (folder / ROWS).open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise named(error, folder / ROWS) from None


def write_atomic(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all: a temporary name, then a rename."""
    data = text.encode() if isinstance(text, str) else text
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file under a temporary name that takes the place of ``path`` if all goes well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise named(error, path) from None


def named(error: BaseException, path: Path) -> BaseException:
    """Return an error of the disk with the name of the file that was to be written."""
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and error.errno:
        return OSError(error.errno, error.strerror, str(path))
    return error


def to_csv(rows: Iterable[Row]) -> str:
    """Return rows as comma-separated text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep a second run out of the folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        # no such locks on Windows
        yield
        return
    with (folder / ROWS).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is writing to {folder}. Wait for it, or use another --out."
            ) from None
        yield


@cache
def versions() -> str:
    """Return the versions that the numbers depend on."""
    from importlib.metadata import version

    names = ("otdro", "numpy", "scipy", "scikit-learn")
    return " ".join(f"{name}={version(name)}" for name in names)


def check_same(rows: list[Row], settings: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with rows of another seed or model."""
    for row in rows:
        for name, value in settings.items():
            if getattr(row, name) != value:
                raise ValueError(
                    f"{folder} holds a run with {name}={getattr(row, name)}, not {value}. "
                    "Use the same, or another --out."
                )
