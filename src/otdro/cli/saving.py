"""Models on disk by skops: one file, written whole, loaded only if every type in it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..experiment.rows import write_atomic
from .errors import UserError

#: Modules of ours whose types a model may hold.
OURS = ("costs", "estimators", "losses", "metrics", "problem", "radius", "scaling", "solvers")


#: What else skops asks about: a type of numpy, and the folds that chose delta.
ELSE = {
    "numpy.dtype",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
}


def save(pipeline: Any, path: Path) -> None:
    """Write a fitted pipeline."""
    import skops.io

    write_atomic(path, skops.io.dumps(pipeline))


def load(path: Path) -> Any:
    """Return the pipeline in a file from ``otdro fit``."""
    model = load_any(path)
    if not hasattr(model, "feature_names_in_"):
        raise UserError(f"{path} holds a {type(model).__name__}, not a model from otdro fit.")
    return model


def load_any(path: Path) -> Any:
    """Return the model in a file, scikit-learn's or otdro's; refuse types that none of them has."""
    import zipfile

    import skops.io

    if not path.exists():
        raise UserError(f"no such model: {path}. otdro fit --save makes one.")
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a model saved by otdro fit --save.")
    try:
        unknown = skops.io.get_untrusted_types(file=path)
        strange = [name for name in unknown if not trusted(name)]
        if strange:
            raise UserError(f"{path} holds types that no model of ours has: {', '.join(strange)}.")
        model = skops.io.load(path, trusted=unknown)
    except (KeyError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise UserError(f"{path} is not a model of this version ({error}). Fit it again.") from None
    if not hasattr(model, "predict"):
        raise UserError(f"{path} holds a {type(model).__name__}, not a model from otdro fit.")
    return model


def trusted(name: str) -> bool:
    """Whether a type belongs to the parts of this package that a model may hold."""
    parts = name.split(".")
    return name in ELSE or (len(parts) > 2 and parts[0] == "otdro" and parts[1] in OURS)
