"""Arrays in files that numpy maps into memory, read with ordinary reads."""

from __future__ import annotations

from mmap import ALLOCATIONGRANULARITY
from pathlib import Path
from typing import Any

import numpy as np

from .base import Array


def is_mapped(X: Any) -> bool:
    """Whether an array is, or is a view of, a file that numpy maps into memory."""
    return isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None


def read(X: Any, start: int, stop: int) -> Array:
    """Return rows of an array, those of a mapped file by reading it."""
    if not is_mapped(X):
        return X[start:stop]
    file = X.filename
    # what was changed in a private copy is not in the file
    if file is None or X.mode == "c":
        return np.array(X[start:stop])
    if not X.flags.c_contiguous:
        _require_length(file, _place(X) + _reach(X))
        return np.array(X[start:stop])
    width = int(np.prod(X.shape[1:], dtype=int))
    count = (stop - start) * width
    place = _place(X) + start * width * X.dtype.itemsize
    found = np.fromfile(file, X.dtype, count, offset=place)
    if len(found) != count:
        _require_length(file, place + count * X.dtype.itemsize)
        raise ValueError(f"{Path(file).name} changed while it was read. Fit again.")
    return found.reshape(stop - start, *X.shape[1:])


def _place(X: Any) -> int:
    """Return where in its file an array begins; a view need not begin where the map does."""
    begin = X.offset - X.offset % ALLOCATIONGRANULARITY
    base = np.frombuffer(X._mmap, np.uint8).__array_interface__["data"][0]
    return int(begin + X.__array_interface__["data"][0] - base)


def _reach(X: Array) -> int:
    """Return how many bytes after its beginning an array ends."""
    steps = [(size - 1) * max(0, step) for size, step in zip(X.shape, X.strides, strict=True)]
    return sum(steps) + X.dtype.itemsize


def _require_length(file: Any, least: int) -> None:
    size = Path(file).stat().st_size
    if size < least:
        raise ValueError(
            f"{Path(file).name} shrank while it was read: it has {size} bytes, and rows up to byte "
            f"{least} are needed. Write it again and fit again."
        )
