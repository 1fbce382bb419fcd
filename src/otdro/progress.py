"""The progress of a run: lines of the logger "otdro".

INFO lines are shown while a run is verbose. A fit that takes long says what is left in a WARNING,
which logging shows unless the user's settings hide it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from time import perf_counter

logger = logging.getLogger("otdro")

#: Seconds after which a fit says that it takes long; it says so again after twice as long.
LONG = 10.0
#: What the fit under way is doing, in words.
_doing: ContextVar[list[str] | None] = ContextVar("doing", default=None)


@contextmanager
def watched() -> Iterator[None]:
    """Say after ``LONG`` seconds, and again after twice as long, what a fit is doing."""
    doing, ended, begun = ["solving"], Event(), perf_counter()

    def watch() -> None:
        wait = LONG
        while not ended.wait(wait):
            wait = perf_counter() - begun
            logger.warning("the fit has taken %.0f s: %s", wait, doing[0])

    token = _doing.set(doing)
    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        _doing.reset(token)


def note(what: str) -> None:
    """Keep what the fit under way is doing and what is left, for the case that it takes long."""
    doing = _doing.get()
    if doing is not None:
        doing[0] = what


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
