"""Files that are written whole or not at all: a temporary name, then a rename."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_atomic(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all."""
    data = text.encode() if isinstance(text, str) else text
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file under a temporary name, which replaces ``path`` if nothing is raised.

    Temporary files that a killed process left beside it are removed.
    """
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            with suppress(OSError):
                _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not isinstance(error, BrokenPipeError):
            # with the name of the file that was to be written
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of ``path`` that no process is writing."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        # a file in use cannot be locked, and on Windows not be removed
        with suppress(OSError):
            with leftover.open("rb") as file:
                _lock(file)
            leftover.unlink()


def _lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed; raise OSError if another process has it."""
    try:
        import fcntl
    except ImportError:
        # Windows has no such locks
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
