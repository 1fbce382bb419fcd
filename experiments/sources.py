"""Data sets of the studies: the paper's, and others that scikit-learn ships or makes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets as sk

from otdro.datasets import load

PAPER = {"BC": 40, "BN": 20, "QSAR": 80, "Magic": 30, "SB": 150}


def binary(data, positive, among=None):
    """Return rows of two groups of classes, labels -1/+1."""
    X, y = data
    rows = slice(None) if among is None else np.isin(y, among)
    return X[rows].astype(float), np.where(np.isin(y[rows], positive), 1.0, -1.0)


def no_signal():
    """Return ten columns that hardly say anything about the label."""
    X, y = sk.make_classification(
        6000, 10, n_informative=1, n_redundant=0, flip_y=0.9, class_sep=0.3, random_state=7,
        n_clusters_per_class=1,
    )  # fmt: skip
    return X, 2.0 * y - 1


OTHER = {
    "wine": lambda: binary(sk.load_wine(return_X_y=True), [1]),
    "digits 3/8": lambda: binary(sk.load_digits(return_X_y=True), [3], [3, 8]),
    "no signal": no_signal,
    "hastie": lambda: sk.make_hastie_10_2(6000, random_state=3),
}
REGRESSION = {
    "diabetes": lambda: sk.load_diabetes(return_X_y=True),
    "friedman": lambda: sk.make_friedman1(4000, noise=1.0, random_state=3),
    "linear": lambda: sk.make_regression(4000, 20, n_informative=8, noise=60, random_state=2),
    "concrete": lambda: fetch("concrete"),
}


def fetch(name):
    """Return (X, y) of a data set of the package."""
    data = load(name)
    return np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)


def get(name):
    """Return (X, y, task) by name."""
    if name in REGRESSION:
        return (*REGRESSION[name](), "regression")
    X, y = OTHER[name]() if name in OTHER else fetch(name)
    return X, y, "classification"


def split(X, y, n, seed, task, test=3000):
    """Return standardised train and test rows; both classes are in the training part."""
    rng = np.random.default_rng([seed, n])
    while True:
        order = rng.permutation(len(y))
        train, rest = order[:n], order[n : n + test]
        if task == "regression" or min((y[train] > 0).sum(), (y[train] < 0).sum()) >= 2:
            break
    mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(sd > 0, sd, 1.0)
    return Z[train], y[train], Z[rest], y[rest]


def environments(name):
    """Return (X, y, env, task) of a set with natural environments, from OTDRO_DATA/shift."""
    frame = pd.read_csv(Path(os.environ["OTDRO_DATA"]) / "shift" / f"{name}.csv.gz")
    y = frame["y"].to_numpy(float)
    task = "classification" if set(np.unique(y)) <= {-1.0, 1.0} else "regression"
    return frame.iloc[:, :-2].to_numpy(float), y, frame["env"].to_numpy(), task
