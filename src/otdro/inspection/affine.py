"""The affine map x -> xA + a that the steps of a pipeline make, where all of them are affine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FactorAnalysis, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from ..design import as_dense

Array = NDArray[Any]

#: Transformers that are affine whatever their parameters; an imputer is, where nothing is missing.
AFFINE = (
    StandardScaler,
    MinMaxScaler,
    MaxAbsScaler,
    RobustScaler,
    PCA,
    IncrementalPCA,
    TruncatedSVD,
    FactorAnalysis,
    SelectorMixin,
    SimpleImputer,
    GaussianRandomProjection,
    SparseRandomProjection,
)


class NotAffineError(ValueError):
    """A step bends the rows, so that the model is not linear in the raw columns."""


def affine_map(front: Any, X: Any) -> tuple[Array, Array]:
    """Return A (d, k) and a (k,) with front.transform(x) = xA + a, for rows with X's columns.

    Column j of A is the change of the output for a step of one standard deviation of column j,
    over that step, taken at the mean row.
    """
    require_affine(front)
    rows = np.asarray(as_dense(X), dtype=float)
    center, step = rows.mean(axis=0), rows.std(axis=0)
    step = np.where(step > 0, step, 1.0)
    probes = np.vstack([center, center + np.diag(step)])
    if hasattr(X, "columns"):
        probes = type(X)(probes, columns=X.columns)
    image = np.asarray(as_dense(front.transform(probes)), dtype=float)
    A = (image[1:] - image[0]) / step[:, None]
    return A, image[0] - center @ A


def require_affine(step: Any) -> None:
    """Raise where a step, or a step inside it, is not known to be affine."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return
    inner = _inside(step)
    if inner is not None:
        for part in inner:
            require_affine(part)
        return
    identity = isinstance(step, FunctionTransformer) and step.func is None
    clipped = bool(getattr(step, "clip", False))
    if not (identity or (isinstance(step, AFFINE) and not clipped)):
        raise NotAffineError(
            f"the step {type(step).__name__} is not affine, so that the model is not linear in "
            "the raw columns."
        )


def _inside(step: Any) -> list[Any] | None:
    """Return the transformers that a composite consists of, None for a single one."""
    if isinstance(step, Pipeline):
        return [part for _, part in step.steps]
    if isinstance(step, ColumnTransformer):
        return [part for _, part, _ in step.transformers_]
    if isinstance(step, FeatureUnion):
        return [part for _, part in step.transformer_list]
    return None
