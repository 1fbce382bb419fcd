"""Distributionally robust machine learning whose uncertainty is shaped by the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimators import DROClassifier, DRORegressor, robust_risk
    from .inspection import Audit, Drift, audit, drift
    from .persistence import load, save
    from .problem import Ball
    from .worst_case import WorstCase, discrepancy

__version__ = "0.2.0"

__all__ = [
    "Audit",
    "Ball",
    "DROClassifier",
    "DRORegressor",
    "Drift",
    "WorstCase",
    "audit",
    "discrepancy",
    "drift",
    "load",
    "robust_risk",
    "save",
]

#: Where the public names live; each is imported at its first use, so that `otdro --help` is quick.
_HOMES = {
    "Audit": "inspection",
    "Ball": "problem",
    "DROClassifier": "estimators",
    "DRORegressor": "estimators",
    "Drift": "inspection",
    "WorstCase": "worst_case",
    "audit": "inspection",
    "discrepancy": "worst_case",
    "drift": "inspection",
    "load": "persistence",
    "robust_risk": "estimators",
    "save": "persistence",
}


#: Modules that are used by their own name, as in ``otdro.report.write``.
_MODULES = ("chunks", "plot", "report")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
