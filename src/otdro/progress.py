"""The progress of a run: INFO lines of the logger "otdro", shown while a run is verbose."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("otdro")


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
