"""Files that are written whole or not at all: a temporary name, then a rename."""

from __future__ import annotations

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
    """Yield a file under a temporary name, which replaces ``path`` if nothing is raised."""
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
        raise with_name(error, path) from None


def with_name(error: BaseException, path: Path) -> BaseException:
    """Return an error of the disk with the name of the file that was to be written."""
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and error.errno:
        return OSError(error.errno, error.strerror, str(path))
    return error
