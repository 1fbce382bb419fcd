"""Data sets of the studies: a file in, a checked ``Dataset`` out.

    python experiments/datasets.py [--data FOLDER] [--fetch MB,BN]

lists the sets, says which are there, and fetches missing ones from openml.org.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otdro.files import write_atomic

Array = NDArray[Any]

#: The environment variable that names a folder of data files.
FOLDER = "OTDRO_DATA"
#: Seconds without an answer after which the network counts as absent.
TIMEOUT = 20.0


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
    """The facts of a data set that are checked when it is read.

    ``counts`` are the numbers of rows labelled +1 and -1 (classification only), ``openml`` the name
    and the number on openml.org, ``sha256`` that of the reference copy, where there is one. A file
    with ``environments`` has them in the column before the last; the field is their number.
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
        data = self.checked(X, y, str(path), groups)
        if self.sha256 is not None and data.sha256 != self.sha256:
            raise ValueError(
                f"{path} does not hold the values of the reference copy of {self.name} (sha256 "
                f"{data.sha256[:12]}, not {self.sha256[:12]}). Replace it, or use it as a table "
                "of your own under another name."
            )
        return data

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
            counts = (int((y == 1).sum()), int((y == -1).sum()))
            if counts != self.counts:
                raise ValueError(
                    f"{source} has {counts[0]} rows labelled +1 and {counts[1]} labelled -1; "
                    f"{self.name} has {self.counts[0]} and {self.counts[1]}."
                )
        number = None if groups is None else len(np.unique(groups))
        if number != self.environments:
            raise ValueError(
                f"{source} has {number} environments; {self.name} has {self.environments}."
            )
        digest = fingerprint(X, y)
        if self.sparse:
            from scipy.sparse import csr_array

            X = csr_array(X)
        return Dataset(self.name, X, y, self.task, source, digest, groups)

    def by_hand(self) -> str:
        """Return in words how to put the data set in place without a network."""
        last = "y last" if self.environments is None else "then env, y last"
        return (
            f"Put {self.file} (comma-separated, a header, features first, {last}) in a folder "
            f"and name the folder by {FOLDER} or --data."
        )


@dataclass(frozen=True)
class Bundled(Spec):
    """The breast cancer data that scikit-learn carries, so that no file is needed."""

    def read(self, folder: str | os.PathLike[str] | None = None) -> Dataset:
        """Return scikit-learn's copy."""
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        source = "scikit-learn load_breast_cancer"
        return self.checked(X, np.where(y == 1, 1.0, -1.0), source)


_TABLE = (
    # Breast cancer Wisconsin, diagnostic: benign (+1) or malignant (-1) (UCI, in scikit-learn).
    Bundled(
        name="BC",
        title="breast cancer Wisconsin",
        file="",
        shape=(569, 30),
        counts=(357, 212),
        aliases=("breast-cancer", "wdbc"),
        openml=("wdbc", 1510),
    ),
    # Banknote authentication: wavelet features of images of genuine and forged notes (UCI).
    Spec(
        name="BN",
        title="banknote authentication",
        file="bn.csv.gz",
        shape=(1372, 4),
        counts=(610, 762),
        aliases=("banknote", "banknote-authentication"),
        openml=("banknote-authentication", 1462),
        sha256="bc15f2927ffc7ccb853710364e1cda900d764c39704aeceea3ddf4f5dd5382fb",
    ),
    # QSAR biodegradation: ready (+1) or not ready (-1) biodegradable chemicals (UCI).
    Spec(
        name="QSAR",
        title="QSAR biodegradation",
        file="qsar.csv.gz",
        shape=(1055, 41),
        counts=(356, 699),
        aliases=("qsar-biodeg",),
        openml=("qsar-biodeg", 1494),
        sha256="9475c1a98b95727fde7cc7cf459b4da7e10a40e961ed01dd0916c43ef52825fa",
    ),
    # MAGIC gamma telescope: gamma (+1) or hadron (-1) showers (UCI).
    Spec(
        name="Magic",
        title="MAGIC gamma telescope",
        file="magic.csv.gz",
        shape=(19020, 10),
        counts=(12332, 6688),
        aliases=("magic-telescope", "MagicTelescope"),
        openml=("MagicTelescope", 1120),
        sha256="f2617b0b850c93046818b0ba1e3cd1c3a9d130f02b2b714676c07f6135d9b5d4",
    ),
    # MiniBooNE: electron neutrinos (signal, +1) or muon neutrinos (-1) (UCI).
    Spec(
        name="MB",
        title="MiniBooNE particle identification",
        file="mb.csv.gz",
        shape=(130064, 50),
        counts=(36499, 93565),
        aliases=("miniboone",),
        openml=("MiniBooNE", 41150),
    ),
    # Spambase: word and character frequencies of mails, spam (+1) or not (UCI).
    Spec(
        name="SB",
        title="spambase",
        file="sb.csv.gz",
        shape=(4601, 57),
        counts=(1813, 2788),
        aliases=("spambase",),
        openml=("spambase", 44),
        sha256="8a4a4a65358d8f2fb9426fef0ca9add58054dacd2a0bd87e68b8daf2af459af9",
    ),
    # a9a: the Adult census data in 123 binary columns, training part (UCI, LIBSVM).
    Spec(
        name="a9a",
        title="Adult census, encoded",
        file="a9a.csv.gz",
        shape=(32561, 123),
        counts=(7841, 24720),
        sha256="45a1782b9d719cf372ced93d59644567ffbc5c55916b06213977956963b2cb0b",
        sparse=True,
    ),
    # a9a: the Adult census data in 123 binary columns, test part (UCI, LIBSVM).
    Spec(
        name="a9a_test",
        title="Adult census, encoded, test part",
        file="a9a_test.csv.gz",
        shape=(16281, 123),
        counts=(3846, 12435),
        sha256="ecacbf3a7adddc08c5c2426816f4a60d73acc0bd1acb49cdf95f94a47949a27f",
        sparse=True,
    ),
    # Concrete compressive strength from the mixture and the age (UCI).
    Spec(
        name="concrete",
        title="concrete strength",
        file="reg_concrete.csv.gz",
        shape=(1030, 8),
        task="regression",
        sha256="95cb952ae1ade7d55b866083620d52d512ccc12cabf2d5b48f19e558ffce6fd3",
    ),
    # Energy efficiency: heating load from the shape of a building (UCI).
    Spec(
        name="energy",
        title="heating load",
        file="reg_energy.csv.gz",
        shape=(768, 8),
        task="regression",
        sha256="f1b4ffffca1a4a6cbf7a814738731cb60bf9a7721b56e754e20cdca07a9ef9a0",
    ),
    # Yacht hydrodynamics: residuary resistance from the shape of the hull (UCI).
    Spec(
        name="yacht",
        title="yacht resistance",
        file="reg_yacht.csv.gz",
        shape=(308, 6),
        task="regression",
        sha256="2c3a6ae76cfa90785be14c92ae31031f0d15f65a4b3649a4eef8e361684f46e8",
    ),
    # Airfoil self-noise: sound pressure from frequency, angle, chord, speed and thickness (UCI).
    Spec(
        name="airfoil",
        title="airfoil sound pressure",
        file="reg_airfoil.csv.gz",
        shape=(1503, 5),
        task="regression",
        sha256="c81f5682ec4c6190b48a305ece2e5fab6906f8fbb87f007a2a85fc2e6902d9d2",
    ),
    # Heart disease at four hospitals, the columns that all of them recorded (UCI).
    Spec(
        name="heart4",
        title="heart disease at four hospitals",
        file="shift/heart4.csv.gz",
        shape=(852, 11),
        counts=(463, 389),
        sha256="c2c8a2d13e2086ca3c5bf06420a63f8e4145dd13ab88dbe528de2017a40d0ef4",
        environments=4,
    ),
    # Parkinson's disease from recordings of the voice, in blocks of subjects (UCI).
    Spec(
        name="parkinsons",
        title="Parkinson's disease from voice",
        file="shift/parkinsons.csv.gz",
        shape=(195, 22),
        counts=(147, 48),
        sha256="ba69dd0cebf9a03f4987a740afd4e2f3dccba5be5fce60ebf80420ca7b23c6ac",
        environments=8,
    ),
    # Eyes closed or open from an EEG of two minutes, in blocks of time (UCI).
    Spec(
        name="eeg_eye",
        title="EEG eye state",
        file="shift/eeg_eye.csv.gz",
        shape=(14976, 14),
        counts=(6722, 8254),
        sha256="f2d7d9c9ed55975edc7f9b3da084f17e15910c1cf212e9929fa29667f20bbdc9",
        environments=10,
    ),
    # Electricity price in New South Wales up or down, by quarters.
    Spec(
        name="elec2",
        title="electricity price",
        file="shift/elec2.csv.gz",
        shape=(45312, 6),
        counts=(19237, 26075),
        sha256="d9956bfdf84f610a2d50d722bc7b7726f3e266c6faed8adcd5151bddcd3afc96",
        environments=11,
    ),
    # A room occupied or not, from sensors, by days (UCI).
    Spec(
        name="room_occupancy",
        title="room occupancy",
        file="shift/room_occupancy.csv.gz",
        shape=(10129, 16),
        counts=(1901, 8228),
        sha256="be7778469f189a8db4c3690d7599184e07a349cd09e63625a217d8b31d538caa",
        environments=7,
    ),
    # Six gases from 16 sensors that drift over 36 months, by batches (UCI).
    Spec(
        name="gas_drift",
        title="gas sensor drift",
        file="shift/gas_drift.csv.gz",
        shape=(6697, 128),
        sha256="fbcc42d802f467cb1801250ce66f0029238b262bae06e9f6682b2fedcf1fc1eb",
        environments=8,
    ),
    # Bicycles rented per hour, by quarters (UCI).
    Spec(
        name="bike_hour",
        title="bike rentals",
        file="shift/bike_hour.csv.gz",
        shape=(17379, 36),
        task="regression",
        sha256="cb07a59fdfceeff8f8916e68b57465428366aac1d91a17c49fb1896c510d54ee",
        environments=8,
    ),
    # Violent crimes in communities of the USA, by regions (UCI).
    Spec(
        name="communities_crime",
        title="communities and crime",
        file="shift/communities_crime.csv.gz",
        shape=(1993, 100),
        task="regression",
        sha256="a5be257f8f9870e9bd89ece8e5d05049913a56927f03ef86ca0ac06b25acc497",
        environments=9,
    ),
    # Scores of red and white wines (UCI).
    Spec(
        name="wine_quality",
        title="wine quality",
        file="shift/wine_quality.csv.gz",
        shape=(6497, 11),
        task="regression",
        sha256="f929bce3a646aaadd1a0b478f8499b9cbfa0de518e0991f44ff4d27e1ba475fc",
        environments=2,
    ),
)

#: The data sets by name, those of the paper first and in its order, those with environments last.
SPECS: dict[str, Spec] = {spec.name: spec for spec in _TABLE}


def spec(name: str) -> Spec:
    """Return the entry of the data set called ``name`` (case does not matter)."""
    for each in SPECS.values():
        if name.lower() in (each.name.lower(), *(alias.lower() for alias in each.aliases)):
            return each
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
    entry = spec(name)
    data = entry.read(folder)
    if data is not None:
        return data
    if download:
        return fetch(entry)
    raise DatasetUnavailableError(f"{entry.name} is in no folder searched. {entry.by_hand()}")


def parse(path: Path, *, environments: bool = False) -> tuple[Array, Array | None, Array]:
    """Return X, the environments if there are any, and y of a comma-separated file with a header.

    Environments may be words; the rest are numbers. The file is plain or gzip.
    """
    raw = path.read_bytes()
    kind: Any = str if environments else float
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        cells = np.loadtxt(io.BytesIO(text), dtype=kind, delimiter=",", skiprows=1, ndmin=2)
        if not environments:
            return cells[:, :-1], None, cells[:, -1]
        groups = cells[:, -2]
        if np.char.isdigit(groups).all():
            # as numbers, so that the tenth environment comes after the second
            groups = groups.astype(int)
        return cells[:, :-2].astype(float), groups, cells[:, -1].astype(float)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not a comma-separated table of numbers with a header: {error}"
        ) from None


def fingerprint(X: Array, y: Array) -> str:
    """Return the sha256 of X and then y, row by row, as little-endian doubles."""
    digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(y, dtype="<f8").tobytes())
    return digest.hexdigest()


# Fetching from openml.org.


def fetch(entry: Spec) -> Dataset:
    """Download a data set and refuse what does not match its name, shape and class counts."""
    if entry.openml is None:
        raise DatasetUnavailableError(
            f"{entry.name} is in no folder searched and has no address. {entry.by_hand()}"
        )
    name, number = entry.openml
    source = f"openml.org data set {number}"
    bunch = _download(entry, number)
    got = str(bunch.details.get("name", ""))
    if got.lower() != name.lower():
        raise ValueError(f"{source} is {got!r}, not {name!r}. {entry.by_hand()}")
    X = np.asarray(bunch.data, dtype=float)
    return entry.checked(X, _signs(entry, np.asarray(bunch.target), source), source)


def _download(entry: Spec, number: int) -> Any:
    from sklearn.datasets import fetch_openml

    try:
        with _timeout(), warnings.catch_warnings():
            # "retrying" is said once, by our own error
            warnings.simplefilter("ignore", UserWarning)
            return fetch_openml(data_id=number, as_frame=True, parser="auto", n_retries=1)
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetUnavailableError(
            f"{entry.name} is in no folder searched and openml.org cannot be reached ({reason}). "
            f"{entry.by_hand()}"
        ) from None


@contextmanager
def _timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _signs(entry: Spec, target: Array, source: str) -> Array:
    """Return -1/+1: the counts of the two classes say which is which, whatever their names."""
    labels, counts = np.unique(target.astype(str), return_counts=True)
    assert entry.counts is not None
    if sorted(counts.tolist()) != sorted(entry.counts):
        raise ValueError(
            f"{source} has classes of {counts.tolist()} rows; {entry.name} has "
            f"{list(entry.counts)}. {entry.by_hand()}"
        )
    positive = labels[counts == entry.counts[0]][0]
    return np.where(target.astype(str) == positive, 1.0, -1.0)


# The command.


def keep(data: Dataset, path: Path) -> None:
    """Write a data set as gzip CSV, features first, y last."""
    import pandas as pd

    names = [*(f"x{j}" for j in range(data.X.shape[1])), "y"]
    table = pd.DataFrame(np.column_stack([data.X, data.y]), columns=names)
    write_atomic(path, gzip.compress(table.to_csv(index=False).encode(), mtime=0))


def get(entry: Spec, folder: str | None) -> str:
    """Fetch a data set and keep it in the folder; return in words what was done."""
    place = folder or os.environ.get(FOLDER)
    if not entry.file or entry.find(folder) is not None:
        return f"{entry.name} is here already."
    if not place:
        raise ValueError(f"name a folder to keep {entry.name} in by --data or {FOLDER}.")
    data = fetch(entry)
    keep(data, Path(place) / entry.file)
    return f"{entry.name}: {data.X.shape[0]} rows, sha256 {data.sha256[:16]}..., kept."


def listing(folder: str | None) -> str:
    """Return one line per data set: name, rows, features, task and where it is."""
    lines = []
    for entry in SPECS.values():
        path = entry.find(folder)
        if not entry.file:
            where = "in scikit-learn"
        elif path is not None:
            where = path.name
        else:
            where = f"--fetch {entry.name}" if entry.openml else f"put {entry.file} there"
        n, d = entry.shape
        lines.append(f"{entry.name:<18}{n:>7}{d:>5}  {entry.task:<15}{where}")
    place = folder or os.environ.get(FOLDER)
    searched = f"searched: {place}" if place else f"no folder searched: set {FOLDER} or use --data"
    return "\n".join([*lines, searched])


def main(argv: list[str] | None = None) -> None:
    """List the data sets, or fetch those named into the folder."""
    parser = argparse.ArgumentParser(description="List the data sets, or fetch missing ones.")
    parser.add_argument("--data", help=f"folder of data files; {FOLDER} names it too")
    parser.add_argument("--fetch", help="names to fetch from openml.org, with commas")
    options = parser.parse_args(argv)
    if options.data is not None and not Path(options.data).is_dir():
        parser.error(f"there is no folder {options.data}; make it first.")
    if options.fetch is None:
        print(listing(options.data))
        return
    try:
        for name in options.fetch.split(","):
            print(get(spec(name.strip()), options.data))
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
