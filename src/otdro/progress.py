"""The progress of a run: lines of the logger "otdro".

INFO lines are shown while a run is verbose. A fit that takes long says what is left in a WARNING,
which logging shows unless the user's settings hide it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from time import perf_counter

logger = logging.getLogger("otdro")

#: Seconds after which work says that it takes long; it says so again after twice as long.
LONG = 10.0
#: What the work under way has been doing, in words; the last is what it does now.
_doing: ContextVar[list[str] | None] = ContextVar("doing", default=None)


def _warn(doing: str, seconds: float) -> None:
    logger.warning("the fit has taken %.0f s: %s", seconds, doing)


@contextmanager
def watched(
    doing: str = "solving", say: Callable[[str, float], None] = _warn
) -> Iterator[Callable[[str], None]]:
    """Say after ``LONG`` seconds, and again after twice as long, what is being done.

    Yields a function that takes what is done next.
    """
    steps, ended, begun = [doing], Event(), perf_counter()

    def watch() -> None:
        wait = LONG
        while not ended.wait(wait):
            wait = perf_counter() - begun
            say(steps[-1], wait)

    token = _doing.set(steps)
    Thread(target=watch, daemon=True).start()
    try:
        yield steps.append
    finally:
        ended.set()
        _doing.reset(token)


def note(what: str) -> None:
    """Keep what the fit under way is doing and what is left, for the case that it takes long."""
    steps = _doing.get()
    if steps is not None:
        steps.append(what)


@contextmanager
def shown(verbose: bool) -> Iterator[None]:
    """Show the lines of a verbose run on standard error, unless the user's logging shows them."""
    if not verbose or (logger.isEnabledFor(logging.INFO) and logger.hasHandlers()):
        yield
        return
    handler = logging.StreamHandler()
    level = logger.level
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
