"""One self-contained HTML page of an audit: no network, one file, written whole or not at all."""

from __future__ import annotations

from .page import render as render
from .page import write as write

__all__ = ["render", "write"]
