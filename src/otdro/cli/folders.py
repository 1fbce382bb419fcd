"""A folder of Parquet files: columns are prepared from some rows, the model is fitted to all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..chunks import Chunk, Chunks
from ..comparison import Setting, default_model
from .preparing import Array, Prepared, pipeline
from .reading import PIECE, Source, parquet_files, pieces


def count(source: Source) -> int:
    """Return how many rows the files of a folder have, from their ends alone."""
    import pyarrow.parquet as pq

    files = parquet_files(Path(source.name))
    return sum(int(pq.ParquetFile(file).metadata.num_rows) for file in files)


class TableRows(Chunks):
    """The rows of a folder with their features made by ``columns``, piece by piece."""

    def __init__(self, source: Source, data: Prepared, target: str, columns: Any) -> None:
        self.source, self.data, self.target = source, data, target
        self.transformer = columns
        self.n = sum(int(piece[target].notna().sum()) for piece in pieces(source, PIECE))
        self.d = len(columns.get_feature_names_out())
        self.dtype = np.dtype(float)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the pieces in the order of the rows; rows without a target are left out."""
        start = first = number = 0
        for piece in pieces(self.source, PIECE):
            rows = piece[piece[self.target].notna()]
            if len(rows):
                X = self.transformer.transform(self.data.like(rows, first))
                yield Chunk(number, start, np.asarray(X, dtype=float), self._targets(rows))
                number, start = number + 1, start + len(rows)
            first += len(piece)

    def _targets(self, rows: Any) -> Array:
        """Return the target in the type that the prepared rows gave it."""
        column, kind = rows[self.target], self.data.y.dtype
        if kind.kind in "US":
            return np.asarray(column.astype(str).tolist(), dtype=str)
        return np.asarray(column, dtype=float).astype(kind)


def messages(caught: list[warnings.WarningMessage]) -> list[str]:
    """Return what warnings say, each once and in one line."""
    return list(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))


def fitted_to_folder(
    source: Source, data: Prepared, target: str, scale: str, seed: int, ours: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Return the pipeline with the model fitted to all rows, and the warnings as notes."""
    columns = pipeline(data, scale).fit(data.X, data.y)
    model = default_model(data.task, Setting(cv=5, seed=seed)).set_params(**ours)
    with warnings.catch_warnings(record=True, action="always") as caught:
        rows = TableRows(source, data, target, columns)
        model.fit(rows, None)
    notes = [
        f"the model is fitted to all {rows.n} rows, in pieces; columns are prepared from "
        f"{len(data.y)} random ones, and counts and comparisons are of these.",
        *messages(caught),
    ]
    return Pipeline([("columns", columns), ("model", model)]), notes
