"""Published models: a file of ``otdro fit --save``, or coefficients in the units of a table.

A published model is averaged with a fit to the rows at hand by ``MixClassifier`` or
``MixRegressor``, in prepared columns in which both are linear: those of the saved model, or, for
coefficients in raw units, columns that are scaled by an affine map.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from .. import persistence
from ..comparison import MIX
from ..estimators.columns import column_groups
from ..mix import MixClassifier, MixRegressor
from .errors import UserError
from .preparing import Prepared, check_column, kinds_of, listed, pipeline
from .reading import WORDS, locate, read, required_numbers

Array = NDArray[Any]

#: The line of a table of coefficients that holds the intercept.
INTERCEPT = "(intercept)"
#: The names of the rows of a comparison.
SOURCE = "source"
RECALIBRATED = "source, recalibrated"


@dataclass(frozen=True, eq=False)
class Published:
    """A published linear model: ``saved`` is the pipeline, or ``coefficients`` are in raw units."""

    file: str
    saved: Any = None
    coefficients: dict[str, float] | None = None

    def preparation(self, data: Prepared, scale: str) -> Any:
        """Return an unfitted preparation of the columns in which the model is linear."""
        if self.saved is None:
            if scale not in ("auto", "standard", "none"):
                raise UserError(
                    f"--source {self.file} is in raw units, in which --scale {scale} is not "
                    "linear; use --scale standard or none."
                )
            return pipeline(data, "standard" if scale == "auto" else scale, most=None)
        parts, kinds = self.saved[0].transformers_, kinds_of(self.saved[0])
        missing = [name for name in kinds if name not in data.kinds]
        if missing:
            raise UserError(
                f"--source {self.file} needs columns that the table lacks or that are left out: "
                f"{listed(missing)}. Add them, or keep them by --keep."
            )
        other = [name for name, kind in kinds.items() if data.kinds[name] != kind]
        if other:
            raise UserError(
                f"column {other[0]!r} holds {data.kinds[other[0]]}, for --source {self.file} it "
                f"held {kinds[other[0]]}; write it alike."
            )
        steps = [(kind, FrozenEstimator(step), columns) for kind, step, columns in parts]
        added = {name: kind for name, kind in data.kinds.items() if name not in kinds}
        if added:
            own = pipeline(Prepared(data.X, data.y, data.task, kinds=added), scale)
            more = "more " * len(steps)
            steps += [(more + kind, step, columns) for kind, step, columns in own.transformers]
        return ColumnTransformer(steps, sparse_threshold=0, verbose_feature_names_out=False)

    def linear(self, columns: Any, data: Prepared) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) in fitted prepared columns."""
        names = [str(name) for name in columns.get_feature_names_out()]
        if self.saved is not None:
            own = self.saved[-1]
            coef, intercept = np.atleast_2d(own.coef_), np.atleast_1d(own.intercept_)
            wide = np.zeros((len(coef), len(names)))
            wide[:, : coef.shape[1]] = coef
            return wide, intercept
        assert self.coefficients is not None
        raw = dict(self.coefficients)
        shift = raw.pop(INTERCEPT)
        coef = np.array([raw.get(name, 0.0) for name in column_groups(columns, names).names])
        # the image of 0 and 1 in every column of numbers gives its affine map
        numbers = [name for name, kind in data.kinds.items() if kind == "numbers"]
        probes = data.X.iloc[[0, 0]].copy()
        probes[numbers] = np.array([[0.0], [1.0]]) @ np.ones((1, len(numbers)))
        zero, one = np.asarray(columns.transform(probes), dtype=float)
        scaled = one != zero
        coef[scaled] /= (one - zero)[scaled]
        return coef[None], np.array([shift - coef[scaled] @ zero[scaled]])

    def models(self, columns: Any, own: Any, data: Prepared) -> dict[str, Any]:
        """Return the source, with its intercept refitted, and averaged with our model."""
        coef, intercept = self.linear(columns, data)
        regression = data.task == "regression"
        fixed: Any = LinearRegression() if regression else LogisticRegression()
        fixed.coef_, fixed.intercept_ = (coef[0], intercept[0]) if regression else (coef, intercept)
        if not regression:
            fixed.classes_ = np.unique(data.y)
        kind = MixRegressor if regression else MixClassifier
        settings = {"cv": own.cv, "random_state": own.random_state}
        sources = [(SOURCE, (coef, intercept))]
        return {
            SOURCE: FrozenEstimator(fixed),
            RECALIBRATED: kind([], sources, **settings),
            MIX: kind([("otdro", clone(own))], sources, **settings),
        }


def published(file: Path | None, data: Prepared) -> Published | None:
    """Return the published model in a file; refuse one that is of another kind than the table."""
    if file is None:
        return None
    if not file.exists():
        raise UserError(f"no such file: {file}. --source names a saved model or coefficients.")
    labels = sorted({str(label) for label in data.y}) if data.task == "classification" else []
    if not zipfile.is_zipfile(file):
        return Published(str(file), coefficients=_coefficients(file, data, labels))
    saved = persistence.load(file)
    steps = getattr(saved, "named_steps", {})
    if not kinds_of(steps.get("columns")) or not hasattr(saved[-1], "coef_"):
        raise UserError(f"--source {file} holds a {type(saved).__name__}, not one of otdro fit.")
    own = sorted(str(label) for label in getattr(saved, "classes_", []))
    if own != labels:
        raise UserError(
            f"--source {file} predicts {listed(own) or 'a number'}, and the target here holds "
            f"{listed(labels) or 'numbers'}; both must be the same."
        )
    return Published(str(file), saved=saved)


def _coefficients(file: Path, data: Prepared, labels: list[str]) -> dict[str, float]:
    """Return the coefficients in a table of ``column,coefficient``; the rest has none."""
    if len(labels) > 2:
        raise UserError(
            f"--source {file} is a table of coefficients, for two classes or a number; the target "
            f"has {len(labels)} classes: use a model from otdro fit --save."
        )
    table = read(locate(str(file)))
    for name in ("column", "coefficient"):
        if name not in table.columns:
            raise UserError(f"--source {file} must have the columns column,coefficient.")
    names = [str(name).strip() for name in table["column"]]
    twice = [name for name in names if names.count(name) > 1]
    values = required_numbers(table["coefficient"])
    if twice or not np.isfinite(values).all():
        raise UserError(
            f"--source {file} needs one number for each column; see {listed(twice) or 'the gaps'}."
        )
    if INTERCEPT not in names:
        raise UserError(f"--source {file} has no line {INTERCEPT}; add it, if need be with 0.")
    coefficients = {INTERCEPT: 0.0}
    for name, value in zip(names, values.tolist(), strict=True):
        column, _, category = name.rpartition("=")
        kind, truth = data.kinds.get(column), WORDS.get(category.lower())
        if kind == "numbers" and truth is not None:
            name = column
            if truth == 0:
                # no is one minus yes
                coefficients[INTERCEPT] += value
                value = -value
        elif name != INTERCEPT and kind != "texts" and data.kinds.get(name) != "numbers":
            if name in data.kinds:
                raise UserError(
                    f"column {name!r} holds categories: --source {file} must name them, as "
                    f"{name}=value."
                )
            check_column(column if kind is None and column else name, list(data.kinds))
        coefficients[name] = coefficients.get(name, 0.0) + value
    return coefficients
