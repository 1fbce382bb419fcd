"""Rows that come in chunks: larger than memory, or on many machines."""

from .base import Array, Chunk, Chunks, Job, Sums
from .opening import in_chunks, open_rows, read_target
from .parquet import parquet

__all__ = [
    "Array",
    "Chunk",
    "Chunks",
    "Job",
    "Sums",
    "in_chunks",
    "open_rows",
    "parquet",
    "read_target",
]
