"""The memory that a machine has left, and what is refused for lack of it."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int:
    """Return the free memory in bytes, as the system tells it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_memory(need: float, what: str, instead: str) -> None:
    """Refuse what would need more memory than there is, before it starts."""
    free = available_memory()
    if need > free:
        raise MemoryError(
            f"{what} needs about {need / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are "
            f"free: {instead}."
        )
