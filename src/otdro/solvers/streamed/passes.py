"""Methods that share their passes: each yields the job of its next pass and takes what it found."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from ...chunks import Chunks, Job, Sums

T = TypeVar("T")

#: A method that asks for one pass at a time and returns a result.
Passes = Generator[Job, Sums, T]


def together(chunks: Chunks, methods: Sequence[Passes[T]]) -> list[T]:
    """Return the results of methods over the same rows; each pass serves all that still run."""
    results: dict[int, T] = {}
    jobs: dict[int, Job] = {}
    found: dict[int, Sums | None] = dict.fromkeys(range(len(methods)))
    while found:
        jobs.clear()
        for i, sums in found.items():
            try:
                # the first call starts the method: there is nothing found yet
                jobs[i] = next(methods[i]) if sums is None else methods[i].send(sums)
            except StopIteration as end:
                results[i] = end.value
        found = dict(zip(jobs, chunks.total(*jobs.values()), strict=True)) if jobs else {}
    return [results[i] for i in range(len(methods))]
