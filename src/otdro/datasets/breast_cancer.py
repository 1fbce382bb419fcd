"""Breast cancer Wisconsin, diagnostic: benign (+1) or malignant (-1) (UCI, in scikit-learn)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from .base import Dataset, Spec


@dataclass(frozen=True)
class Bundled(Spec):
    """The copy that scikit-learn carries, so that no file is needed."""

    def read(self, folder: str | os.PathLike[str] | None = None) -> Dataset:
        """Return scikit-learn's copy."""
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        source = "scikit-learn load_breast_cancer"
        return self.checked(X, np.where(y == 1, 1.0, -1.0), source)


SPEC = Bundled(
    name="BC",
    title="breast cancer Wisconsin",
    file="",
    shape=(569, 30),
    counts=(357, 212),
    aliases=("breast-cancer", "wdbc"),
    openml=("wdbc", 1510),
)
