"""Arrays as they come in: which stay on their device, and whether all are in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config

from .arrays import beside, library, namespace, numpy, place, require_one_place

#: Formats of X that are taken as they are.
FORMATS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


def formats(X: Any) -> dict[str, Any]:
    """Return what ``validate_data`` takes X as: CSR, float64 and float32, on a device dense."""
    if not stays(X):
        return FORMATS
    xp = namespace(X)
    return {"dtype": [xp.float64, xp.float32]}


def stays(X: Any) -> bool:
    """Whether X is an array of another library than NumPy that is to stay where it is.

    So it is under scikit-learn's array API dispatch; without it what can be is NumPy's.
    """
    if library(X) is None:
        return False
    dispatch = bool(get_config()["array_api_dispatch"])
    if not dispatch and str(X.device) != "cpu":
        raise ValueError(
            f"X is an array of {place(X)}, which needs scikit-learn's array API dispatch: set the "
            "environment variable SCIPY_ARRAY_API=1 and call "
            "sklearn.set_config(array_api_dispatch=True)."
        )
    if (dispatch and "sparse" in str(getattr(X, "layout", ""))) or hasattr(X, "tocsr"):
        raise ValueError(
            f"X is a sparse array of {place(X)}; rows on a device must be dense. Use X.to_dense(), "
            "or a SciPy CSR matrix, which stays sparse."
        )
    return dispatch


def check_places(X: Any, **others: Any) -> None:
    """Refuse arrays of a call that are not all of one library and on one device."""
    if get_config()["array_api_dispatch"]:
        require_one_place(X, others)


def check_vector(v: Any, X: Any, name: str) -> Any:
    """Return one number per row of X, on its device; refuse other shapes and what is not finite."""
    v = beside(np.asarray(v) if library(v) is None else v, X)
    xp = namespace(X)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v[:, 0]
    if v.ndim != 1 or v.shape[0] != X.shape[0]:
        raise ValueError(
            f"{name} has shape {tuple(v.shape)}, but X has {X.shape[0]} rows: give one number per "
            "row."
        )
    if xp.isdtype(v.dtype, "real floating") and not bool(xp.all(xp.isfinite(v))):
        raise ValueError(f"Input {name} contains NaN or infinity.")
    return v


def on_host(X: Any) -> Any:
    """Return an array that stays on its device as NumPy's, anything else as it is."""
    return numpy(X) if stays(X) else X
