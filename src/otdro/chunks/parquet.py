"""Rows in a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .base import BESIDE, CHUNK_BYTES, Array, Chunk, Chunks


def parquet(
    folder: str | PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    sample_weight: str | None = None,
    groups: str | None = None,
) -> ParquetRows:
    """Return the rows of all ``*.parquet`` files of a folder, in the order of their names.

    Parameters
    ----------
    folder : path
        A folder, or one file.
    target : str or None
        The column of the labels or targets; None where there is none, as for new rows.
    columns : sequence of str or None
        The columns of X; None: all that have no other part. They must hold numbers.
    sample_weight, groups : str or None
        The columns of the weights and of the environments of the rows; None: there are none.
    """
    return ParquetRows(folder, {"y": target, "w": sample_weight, "group": groups}, columns)


class ParquetRows(Chunks):
    """The rows of a folder of Parquet files that have the same columns.

    ``beside`` names the columns of targets, weights and groups, as far as there are any.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        beside: Mapping[str, str | None],
        columns: Sequence[str] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.folder = Path(folder)
        self.beside = {part: name for part, name in beside.items() if name is not None}
        self.files = _files(self.folder)
        schemas = [_opened(file).schema_arrow for file in self.files]
        first = schemas[0]
        for file, schema in zip(self.files, schemas, strict=True):
            _require_same(file, schema, self.files[0], first)
        for name in self.beside.values():
            if name not in first.names:
                raise ValueError(
                    f"the files of {self.folder.name} have no column {name!r}; they have "
                    f"{', '.join(map(repr, first.names))}. Check the name."
                )
        self.columns = _chosen(self.folder, first, list(self.beside.values()), columns)
        self.n = sum(_opened(file).metadata.num_rows for file in self.files)
        self.d = len(self.columns)
        kinds = {first.field(name).type.to_pandas_dtype() for name in self.columns}
        self.dtype = np.dtype(np.float32 if kinds == {np.float32} else np.float64)
        self.chunk_bytes = chunk_bytes
        self.rows = max(1, chunk_bytes // (self.d * self.dtype.itemsize))

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        import pyarrow as pa

        number = start = 0
        names = list(dict.fromkeys([*(self.columns or []), *self.beside.values()]))
        for file in self.files:
            try:
                # a file that lost its end must be seen before its pages are
                for batch in _opened(file).iter_batches(self.rows, columns=names):
                    X = np.empty((batch.num_rows, self.d), self.dtype)
                    for j, name in enumerate(self.columns or []):
                        X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
                    beside = {
                        part: _vector(batch.column(name), file, BESIDE[part])
                        for part, name in self.beside.items()
                    }
                    yield Chunk(number, start, X, **beside)
                    number, start = number + 1, start + len(X)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(
                    f"{file.name} cannot be read to its end: {error}. Write it again."
                ) from None

    def selected(self, names: Sequence[str]) -> ParquetRows:
        """Return the same rows with these columns."""
        return ParquetRows(self.folder, self.beside, list(names), self.chunk_bytes)

    def named(self, **beside: str | None) -> ParquetRows:
        """Return the same rows with these columns as targets, weights or groups, where given."""
        given = {part: name for part, name in beside.items() if name is not None}
        kept = [name for name in self.columns or [] if name not in given.values()]
        return ParquetRows(self.folder, self.beside | given, kept, self.chunk_bytes)


def _vector(column: Any, file: Path, name: str) -> Array:
    """Return a column as an array; text is an array of str, so that it sorts."""
    if column.null_count:
        raise ValueError(f"{file.name} has rows without a value of {name}: leave them out.")
    found: Array = column.to_numpy(zero_copy_only=False)
    return found.astype(str) if found.dtype.kind == "O" else found


def _files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder by name, or the one that is named."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}. Check the name.")
    found = sorted(folder.glob("*.parquet"))
    if not found:
        raise ValueError(f"{folder} has no file *.parquet: name a folder of Parquet files.")
    return found


def _opened(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'otdro[cli]'.") from None
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{file.name} is not a whole Parquet file: {error}. Write it again."
        ) from None


def _require_same(file: Path, schema: Any, first: Path, expected: Any) -> None:
    if schema.names != expected.names:
        differ = sorted(set(schema.names) ^ set(expected.names)) or schema.names
        raise ValueError(
            f"{file.name} and {first.name} differ in their columns ({', '.join(differ[:5])}): all "
            "files of a folder need the same columns in the same order."
        )
    for name in expected.names:
        if schema.field(name).type != expected.field(name).type:
            raise ValueError(
                f"the column {name!r} holds {schema.field(name).type} in {file.name} but "
                f"{expected.field(name).type} in {first.name}: write both in the same type."
            )


def _chosen(
    folder: Path, schema: Any, beside: list[str], columns: Sequence[str] | None
) -> list[str]:
    """Return the columns of X; refuse those that are missing or hold no numbers."""
    import pyarrow.types as kinds

    names = [n for n in schema.names if n not in beside] if columns is None else list(columns)
    missing = [name for name in names if name not in schema.names]
    if missing or not names:
        what = f"no column {missing[0]!r}" if missing else "no columns besides the target"
        raise ValueError(f"the files of {folder.name} have {what}: name others as columns=[...].")
    for name in names:
        kind = schema.field(name).type
        if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind)):
            raise ValueError(
                f"the column {name!r} holds {kind}, not numbers: encode it first, or name the "
                "others as columns=[...]."
            )
    return names
