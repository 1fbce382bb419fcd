"""Rows that come in chunks: larger than memory, or on many machines."""

from .base import Array, Chunk, Chunks, Job, Sums, is_dask
from .dask import column_names, map_rows
from .opening import in_chunks, open_rows, read_target
from .parquet import parquet

__all__ = [
    "Array",
    "Chunk",
    "Chunks",
    "Job",
    "Sums",
    "column_names",
    "in_chunks",
    "is_dask",
    "map_rows",
    "open_rows",
    "parquet",
    "read_target",
]
