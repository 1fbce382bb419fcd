"""Distributionally robust machine learning whose uncertainty is shaped by the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .first_use import at_first_use

if TYPE_CHECKING:
    from .estimators import DROClassifier, DRORegressor, robust_risk
    from .inspection import Audit, Drift, Stability, audit, drift, stability
    from .mix import MixClassifier, MixRegressor
    from .persistence import load, save
    from .problem import Ball
    from .worst_case import WorstCase, discrepancy

__version__ = "0.3.0"

__all__ = [
    "Audit",
    "Ball",
    "DROClassifier",
    "DRORegressor",
    "Drift",
    "MixClassifier",
    "MixRegressor",
    "Stability",
    "WorstCase",
    "audit",
    "discrepancy",
    "drift",
    "load",
    "robust_risk",
    "save",
    "stability",
]

#: Where the public names live; each is imported at its first use, so that `otdro --help` is quick.
_HOMES = {
    "estimators": ("DROClassifier", "DRORegressor", "robust_risk"),
    "inspection": ("Audit", "Drift", "Stability", "audit", "drift", "stability"),
    "mix": ("MixClassifier", "MixRegressor"),
    "persistence": ("load", "save"),
    "problem": ("Ball",),
    "worst_case": ("WorstCase", "discrepancy"),
    # modules that are used by their own name, as in ``otdro.report.write``
    "chunks": ("chunks",),
    "plot": ("plot",),
    "report": ("report",),
}

_GONE = {
    "datasets": "the data sets of the studies are in experiments/datasets.py of the repository.",
    "experiment": "Table 1 is made by experiments/table1.py of the repository.",
}

__getattr__ = at_first_use(
    __name__, {name: home for home, names in _HOMES.items() for name in names}, _GONE
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
