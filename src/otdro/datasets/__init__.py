"""Data sets: a file in, a checked ``Dataset`` out; one file a data set."""

from __future__ import annotations

import os

from . import (
    a9a,
    a9a_test,
    airfoil,
    banknote,
    bike_hour,
    breast_cancer,
    communities_crime,
    concrete,
    eeg_eye,
    elec2,
    energy,
    gas_drift,
    heart4,
    magic,
    miniboone,
    parkinsons,
    qsar,
    room_occupancy,
    spambase,
    wine_quality,
    yacht,
)
from .base import FOLDER as FOLDER
from .base import Dataset, DatasetUnavailableError, Spec
from .openml import by_hand as by_hand
from .openml import fetch as fetch

__all__ = ["SPECS", "Dataset", "DatasetUnavailableError", "Spec", "load", "spec"]

_MODULES = (
    breast_cancer,
    banknote,
    qsar,
    magic,
    miniboone,
    spambase,
    a9a,
    a9a_test,
    concrete,
    energy,
    yacht,
    airfoil,
    heart4,
    parkinsons,
    eeg_eye,
    elec2,
    room_occupancy,
    gas_drift,
    bike_hour,
    communities_crime,
    wine_quality,
)

#: The data sets by name, those of the paper first and in its order, those with environments last.
SPECS: dict[str, Spec] = {module.SPEC.name: module.SPEC for module in _MODULES}


def spec(name: str) -> Spec:
    """Return what is known of the data set called ``name`` (case does not matter)."""
    for found in SPECS.values():
        if name.lower() in (found.name.lower(), *(alias.lower() for alias in found.aliases)):
            return found
    raise ValueError(f"unknown data set {name!r}; known: {', '.join(SPECS)}.")


def load(
    name: str, *, folder: str | os.PathLike[str] | None = None, download: bool = True
) -> Dataset:
    """Return a data set by its name in the paper or its common name: "BC", "banknote", ...

    Parameters
    ----------
    name : str
        The name; case does not matter.
    folder : path or None
        Where the file lies; None is the folder that the environment variable OTDRO_DATA names.
    download : bool
        Whether to ask openml.org where there is no file.
    """
    known = spec(name)
    found = known.read(folder)
    if found is not None:
        return found
    if download:
        return fetch(known)
    raise DatasetUnavailableError(f"{known.name} is in no folder searched. {by_hand(known)}")
