"""Fetching from openml.org, with the checks that make a download trustworthy."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .base import FOLDER, Array, Dataset, DatasetUnavailableError, Spec

#: Seconds without an answer after which the network counts as absent.
TIMEOUT = 20.0


def fetch(spec: Spec) -> Dataset:
    """Download a data set and refuse what does not match its name, shape and class counts."""
    if spec.openml is None:
        raise DatasetUnavailableError(
            f"{spec.name} is in no folder searched and has no address. {by_hand(spec)}"
        )
    name, number = spec.openml
    source = f"openml.org data set {number}"
    bunch = _download(spec, number)
    got = str(bunch.details.get("name", ""))
    if got.lower() != name.lower():
        raise ValueError(f"{source} is {got!r}, not {name!r}. {by_hand(spec)}")
    X = np.asarray(bunch.data, dtype=float)
    return spec.checked(X, _signs(spec, np.asarray(bunch.target), source), source)


def _download(spec: Spec, number: int) -> Any:
    from sklearn.datasets import fetch_openml

    try:
        with _timeout(), warnings.catch_warnings():
            # "retrying" is said once, by our own error
            warnings.simplefilter("ignore", UserWarning)
            return fetch_openml(data_id=number, as_frame=True, parser="auto", n_retries=1)
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetUnavailableError(
            f"{spec.name} is in no folder searched and openml.org cannot be reached ({reason}). "
            f"{by_hand(spec)}"
        ) from None


@contextmanager
def _timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def by_hand(spec: Spec) -> str:
    """Say how to put the data set in place without a network."""
    last = "y last" if spec.environments is None else "then env, y last"
    return (
        f"Put {spec.file} (comma-separated, a header, features first, {last}) in a folder "
        f"and name the folder by {FOLDER} or --data."
    )


def _signs(spec: Spec, target: Array, source: str) -> Array:
    """Return -1/+1: the classes are told apart by their counts, whatever they are called."""
    labels, counts = np.unique(target.astype(str), return_counts=True)
    assert spec.counts is not None
    if sorted(counts.tolist()) != sorted(spec.counts):
        raise ValueError(
            f"{source} has classes of {counts.tolist()} rows; {spec.name} has "
            f"{list(spec.counts)}. {by_hand(spec)}"
        )
    positive = labels[counts == spec.counts[0]][0]
    return np.where(target.astype(str) == positive, 1.0, -1.0)
