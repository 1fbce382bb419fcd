"""Experiments: (data sets x methods x seeds) -> tidy rows, resumable; comparisons on one table."""

from .comparison import Labelled, Score, Summary, compare, rounds, summarise
from .device import Device
from .methods import METHODS, resolve
from .models import Setting, default_model
from .rows import Row, write_atomic
from .run import Plan, run
from .splits import SIZES, seed_of, split
from .table import notes, paper_numbers, tables

__all__ = [
    "METHODS",
    "SIZES",
    "Device",
    "Labelled",
    "Plan",
    "Row",
    "Score",
    "Setting",
    "Summary",
    "compare",
    "default_model",
    "notes",
    "paper_numbers",
    "resolve",
    "rounds",
    "run",
    "seed_of",
    "split",
    "summarise",
    "tables",
    "write_atomic",
]
