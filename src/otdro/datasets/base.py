"""What a data set is, where its file may lie, and the checks that every copy must pass."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: The environment variable that names a folder of data files.
FOLDER = "OTDRO_DATA"


class DatasetUnavailableError(OSError):
    """The data set is in no folder searched and cannot be fetched."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Parameters
    ----------
    name : str
        Its name in the paper, or its common one.
    X : ndarray or CSR matrix of shape (n, d)
        The rows.
    y : ndarray of shape (n,)
        Targets, or labels -1/+1.
    task : {"classification", "regression"}
        What ``y`` is.
    source : str
        Where it came from.
    sha256 : str
        That of X and then y as little-endian doubles in row order, so that it does not depend on
        how the file was compressed.
    groups : ndarray of shape (n,) or None
        The environment of every row (hospital, subject, quarter, batch), where there are any.
    """

    name: str
    X: Any
    y: Array
    task: str
    source: str
    sha256: str
    groups: Array | None = None


@dataclass(frozen=True)
class Spec:
    """What is known of a data set before it is read.

    ``counts`` are the rows labelled +1 and -1 (classification only), ``openml`` the name and the
    number on openml.org, ``sha256`` that of the reference copy, where there is one. A file with
    ``environments``, so many, has them in the column before the last.
    """

    name: str
    title: str
    file: str
    shape: tuple[int, int]
    task: str = "classification"
    counts: tuple[int, int] | None = None
    aliases: tuple[str, ...] = ()
    openml: tuple[str, int] | None = None
    sha256: str | None = None
    sparse: bool = False
    environments: int | None = None

    def find(self, folder: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the file in ``folder`` or, if that is None, in the folder OTDRO_DATA names."""
        place = folder if folder is not None else os.environ.get(FOLDER)
        if not place:
            return None
        names = (self.file, self.file.removesuffix(".gz"))
        return next((p for n in names if (p := Path(place) / n).is_file()), None)

    def read(self, folder: str | os.PathLike[str] | None = None) -> Dataset | None:
        """Return the checked data set from its file, None if there is none."""
        path = self.find(folder)
        if path is None:
            return None
        X, groups, y = parse(path, environments=self.environments is not None)
        found = self.checked(X, y, str(path), groups)
        if self.sha256 is not None and found.sha256 != self.sha256:
            raise ValueError(
                f"{path} does not hold the values of the reference copy of {self.name} (sha256 "
                f"{found.sha256[:12]}, not {self.sha256[:12]}). Replace it, or use it as a table "
                "of your own under another name."
            )
        return found

    def checked(self, X: Array, y: Array, source: str, groups: Array | None = None) -> Dataset:
        """Return the data set if its shape, classes and values are as they should be."""
        if X.shape != self.shape:
            raise ValueError(
                f"{source} has {X.shape[0]} rows and {X.shape[1]} features; {self.name} has "
                f"{self.shape[0]} and {self.shape[1]}."
            )
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise ValueError(f"{source} has missing or infinite values; {self.name} has none.")
        if self.counts is not None:
            got = (int((y == 1).sum()), int((y == -1).sum()))
            if got != self.counts:
                raise ValueError(
                    f"{source} has {got[0]} rows labelled +1 and {got[1]} labelled -1; "
                    f"{self.name} has {self.counts[0]} and {self.counts[1]}."
                )
        there = None if groups is None else len(np.unique(groups))
        if there != self.environments:
            raise ValueError(
                f"{source} has {there} environments; {self.name} has {self.environments}."
            )
        digest = fingerprint(X, y)
        return Dataset(self.name, self._stored(X), y, self.task, source, digest, groups)

    def _stored(self, X: Array) -> Any:
        if not self.sparse:
            return X
        from scipy.sparse import csr_array

        return csr_array(X)


def parse(path: Path, *, environments: bool = False) -> tuple[Array, Array | None, Array]:
    """Return X, the environments if there are any, and y of a comma-separated file with a header.

    Environments may be words; the rest are numbers. The file is plain or gzip.
    """
    raw = path.read_bytes()
    kind: Any = str if environments else float
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        cells = np.loadtxt(io.BytesIO(text), dtype=kind, delimiter=",", skiprows=1, ndmin=2)
        if environments:
            groups = _numbers_if_all_are(cells[:, -2])
            return cells[:, :-2].astype(float), groups, cells[:, -1].astype(float)
        return cells[:, :-1], None, cells[:, -1]
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not a comma-separated table of numbers with a header: {error}"
        ) from None


def _numbers_if_all_are(words: Array) -> Array:
    """Return whole numbers as such, so that the tenth environment comes after the second."""
    return words.astype(int) if np.char.isdigit(words).all() else words


def fingerprint(X: Array, y: Array) -> str:
    """Return the sha256 of X and then y, row by row, as little-endian doubles."""
    digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(y, dtype="<f8").tobytes())
    return digest.hexdigest()
