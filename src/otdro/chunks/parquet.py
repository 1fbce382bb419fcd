"""Rows in a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .base import CHUNK_BYTES, Array, Chunk, Chunks


def parquet(
    folder: str | PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
) -> ParquetRows:
    """Return the rows of all ``*.parquet`` files of a folder, in the order of their names.

    Parameters
    ----------
    folder : path
        A folder, or one file.
    target : str or None
        The column of the labels or targets; None where there is none, as for new rows.
    columns : sequence of str or None
        The columns of X; None: all but the target. They must hold numbers.
    """
    return ParquetRows(folder, target, columns)


class ParquetRows(Chunks):
    """The rows of a folder of Parquet files that have the same columns."""

    def __init__(
        self,
        folder: str | PathLike[str],
        target: str | None = None,
        columns: Sequence[str] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.folder, self.target = Path(folder), target
        self.files = _files(self.folder)
        schemas = [_opened(file).schema_arrow for file in self.files]
        first = schemas[0]
        for file, schema in zip(self.files, schemas, strict=True):
            _require_same(file, schema, self.files[0], first)
        if target is not None and target not in first.names:
            raise ValueError(
                f"the files of {self.folder.name} have no column {target!r}; they have "
                f"{', '.join(map(repr, first.names))}."
            )
        self.columns = _chosen(self.folder, first, target, columns)
        self.counts = [_opened(file).metadata.num_rows for file in self.files]
        self.n, self.d = sum(self.counts), len(self.columns)
        kinds = {first.field(name).type.to_pandas_dtype() for name in self.columns}
        self.dtype = np.dtype(np.float32 if kinds == {np.float32} else np.float64)
        self.chunk_bytes = chunk_bytes
        self.rows = max(1, chunk_bytes // (self.d * self.dtype.itemsize))

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        number = start = 0
        for file, count in zip(self.files, self.counts, strict=True):
            before = start
            for X, y in self._pieces(file):
                yield Chunk(number, start, X, y)
                number, start = number + 1, start + len(X)
            if start - before != count:
                raise ValueError(
                    f"{file.name} changed while it was read: it had {count} rows, and now "
                    f"{start - before} came. Fit again."
                )

    def selected(self, names: Sequence[str]) -> ParquetRows:
        """Return the same rows with these columns."""
        if list(names) == self.columns:
            return self
        return ParquetRows(self.folder, self.target, list(names), self.chunk_bytes)

    def with_target(self, target: str) -> ParquetRows:
        """Return the same rows with this column as target."""
        kept = [name for name in self.columns or [] if name != target]
        return ParquetRows(self.folder, target, kept, self.chunk_bytes)

    def _pieces(self, file: Path) -> Iterator[tuple[Array, Array | None]]:
        import pyarrow as pa

        names = [*(self.columns or []), *([] if self.target is None else [self.target])]
        try:
            # a file that lost its end must be seen before its pages are
            for batch in _opened(file).iter_batches(self.rows, columns=names):
                X = np.empty((batch.num_rows, self.d), self.dtype)
                for j, name in enumerate(self.columns or []):
                    X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
                yield X, None if self.target is None else _target(batch.column(self.target), file)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{file.name} cannot be read to its end: {error}.") from None


def _target(column: Any, file: Path) -> Array:
    """Return a column of targets; text is an array of str, so that it sorts."""
    if column.null_count:
        raise ValueError(f"{file.name} has rows without a target: leave them out.")
    y: Array = column.to_numpy(zero_copy_only=False)
    return y.astype(str) if y.dtype.kind == "O" else y


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
        raise ValueError(f"{file.name} is not a whole Parquet file: {error}.") from None


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
    folder: Path, schema: Any, target: str | None, columns: Sequence[str] | None
) -> list[str]:
    """Return the columns of X; refuse those that are missing or hold no numbers."""
    import pyarrow.types as kinds

    names = [n for n in schema.names if n != target] if columns is None else list(columns)
    missing = [name for name in names if name not in schema.names]
    if missing or not names:
        what = f"no column {missing[0]!r}" if missing else "no columns besides the target"
        raise ValueError(f"the files of {folder.name} have {what}.")
    for name in names:
        kind = schema.field(name).type
        if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind)):
            raise ValueError(
                f"the column {name!r} holds {kind}, not numbers: encode it first, or name the "
                "others as columns=[...]."
            )
    return names
