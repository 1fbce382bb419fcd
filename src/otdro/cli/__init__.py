"""The command line: the only module that prints."""

from __future__ import annotations

import sys

from .errors import guard


def main() -> None:
    """Run the command line and leave with 0, or with 2 and one sentence."""
    sys.exit(guard(sys.argv[1:]))
