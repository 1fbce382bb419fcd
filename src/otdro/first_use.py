"""Names of a package that are imported at their first use (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def at_first_use(
    package: str, homes: Mapping[str, str], gone: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names live in the modules ``homes``.

    A name that is its own home is that module. ``gone`` maps names of earlier versions to what
    replaces them.
    """

    def look_up(name: str) -> Any:
        if gone and name in gone:
            raise ImportError(f"{package}.{name} is gone: {gone[name]}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f".{homes[name]}", package)
        return home if homes[name] == name else getattr(home, name)

    return look_up
