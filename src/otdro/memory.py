"""The memory that is left, what a fit needs of it, and what is refused for lack of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Where the system tells of its memory.
SYSTEM = Path("/proc/meminfo")
#: Where it tells of the control groups of this process.
GROUPS = Path("/proc/self/cgroup")
#: Where it tells of the limits of control groups.
LIMITS = Path("/sys/fs/cgroup")
#: Bytes for which the system is not asked: that takes longer than a small fit should.
ASKED_FROM = 2**28
#: float64 numbers per row that a fit holds at least: scores, slopes, curvatures, weights, targets.
PER_ROW = 6
#: The same with folds, which have scores and slopes of their own.
PER_ROW_WITH_FOLDS = 20
#: Matrices of d x d that a fit holds at least: the Newton system.
MATRICES = 2
#: The same with a learned cost: also those of the candidates in every fold.
MATRICES_LEARNED = 12


def available_memory() -> int:
    """Return the free memory in bytes: the system's, or what a control group leaves of it."""
    try:
        lines = SYSTEM.read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *_left_by_groups()])


def _left_by_groups() -> Iterator[int]:
    """Yield the bytes that the limits of control groups, versions 2 and 1, leave this process."""
    for folder, limit, used in (
        (_folder("0::", LIMITS), "memory.max", "memory.current"),
        (_folder(":memory:", LIMITS / "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = int((folder / limit).read_text())
            now = int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            # no such group, or "max": no limit
            continue
        # pages of files are given back when memory is short
        names = ("total_active_file", "total_inactive_file")
        if names[0] not in stat:
            names = ("active_file", "inactive_file")
        yield max(0, most - now + sum(int(stat.get(name, 0)) for name in names))


def _folder(mark: str, root: Path) -> Path:
    """Return the folder of this process's group; the root where a container shows no other."""
    try:
        lines = GROUPS.read_text().splitlines()
    except OSError:
        return root
    for line in lines:
        if mark in line:
            own = root / line.partition(mark)[2].lstrip("/")
            return own if own.is_dir() else root
    return root


def require_memory(need: float, what: str, instead: str) -> None:
    """Refuse what would need more memory than there is, before it starts."""
    free = available_memory()
    if need > free:
        raise MemoryError(
            f"{what} needs about {need / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are "
            f"free: {instead}."
        )


def fit_need(X: Any, *, folds: bool, learned: bool, written: bool) -> float:
    """Return the bytes that a fit needs at least, beside X: less than that cannot be enough.

    They are numbers per row, with ``folds`` a copy of the rows, and where d x d is ``written`` some
    matrices, more of them for a ``learned`` cost.
    """
    n, d = X.shape
    numbers = n * (PER_ROW_WITH_FOLDS if folds else PER_ROW)
    matrices = (MATRICES_LEARNED if learned else MATRICES) * d**2 if written else 0
    return 8.0 * (numbers + matrices) + (size_of(X) if folds else 0)


def size_of(X: Any) -> int:
    """Return the bytes of the entries of an array, of a sparse one with their places."""
    parts = (X.data, X.indices, X.indptr) if hasattr(X, "indptr") else (X,)
    return sum(int(part.nbytes) for part in parts)


def require_fit(X: Any, *, folds: bool, learned: bool, written: bool) -> None:
    """Refuse a fit to X that cannot fit into memory, with what would."""
    need = fit_need(X, folds=folds, learned=learned, written=written)
    if need < ASKED_FROM:
        return
    n, d = X.shape
    smaller = [
        *(["cost='euclidean'"] if learned else []),
        *(["a number as delta"] if folds else []),
        "rows in chunks (a memmap, a Dask array or a folder of Parquet files)",
    ]
    what = f"a fit to {n:,} rows of {d:,} columns"
    require_memory(need, what, f"use {', or '.join(smaller)}")


def require_dense(n: int, d: int) -> None:
    """Refuse to write sparse rows out as a dense array that cannot fit into memory."""
    need = 8.0 * n * d
    if need >= ASKED_FROM:
        what = f"writing {n:,} sparse rows of {d:,} columns as a dense array"
        instead = "use the logistic loss with cost='euclidean', which keeps rows sparse, or fewer"
        require_memory(need, what, f"{instead} rows or columns")
