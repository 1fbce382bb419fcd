"""``otdro datasets``: what there is, what is here, and fetching what is not."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np

from ..datasets import FOLDER, SPECS, Dataset, Spec, fetch, spec
from . import printing
from .errors import UserError


def datasets(folder: str | None, names: str | None) -> None:
    """List the data sets, or fetch those named into the folder."""
    if folder is not None and not Path(folder).is_dir():
        raise UserError(f"there is no folder {folder}; make it first.")
    if names is not None:
        for name in names.split(","):
            printing.say(get(spec(name.strip()), folder))
        return
    body = [
        [s.name, f"{s.shape[0]}", f"{s.shape[1]}", s.task[:14], _place(s, folder)]
        for s in SPECS.values()
    ]
    printing.grid(["name", "rows", "features", "task", "where"], body, (0, 3, 4))
    where = folder or os.environ.get(FOLDER)
    printing.note(
        f"searched: {where}" if where else f"no folder searched: set {FOLDER}, or use --data."
    )


def _place(known: Spec, folder: str | None) -> str:
    if not known.file:
        return "in scikit-learn"
    path = known.find(folder)
    if path is not None:
        return path.name
    return f"--fetch {known.name}" if known.openml else f"put {known.file} there"


def get(known: Spec, folder: str | None) -> str:
    """Fetch a data set and keep it where it will be found; return what was done."""
    place = folder or os.environ.get(FOLDER)
    if not known.file or known.find(folder) is not None:
        return f"{known.name} is here already."
    if not place:
        raise UserError(f"name a folder to keep {known.name} in by --data or {FOLDER}.")
    found = fetch(known)
    keep(found, Path(place) / known.file)
    return f"{known.name}: {found.X.shape[0]} rows, sha256 {found.sha256[:16]}..., kept."


def keep(data: Dataset, path: Path) -> None:
    """Write a data set as gzip CSV, features first, y last."""
    import pandas as pd

    from ..experiment.rows import write_atomic

    names = [*(f"x{j}" for j in range(data.X.shape[1])), "y"]
    table = pd.DataFrame(np.column_stack([data.X, data.y]), columns=names)
    write_atomic(path, gzip.compress(table.to_csv(index=False).encode(), mtime=0))
