"""Models of the command line: those that ``otdro fit`` made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..persistence import load as load_any
from .errors import UserError


def load(path: Path) -> Any:
    """Return the pipeline in a file from ``otdro fit``."""
    model = load_any(path)
    if not hasattr(model, "feature_names_in_"):
        raise UserError(f"{path} holds a {type(model).__name__}, not a model from otdro fit.")
    return model
