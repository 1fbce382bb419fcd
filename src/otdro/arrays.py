"""The library, the device and the memory of arrays: NumPy, torch or CuPy by the array API standard.

An array with an entry per row (X, targets, weights, scores, slopes) is where the rows are. What has
an entry per column, delta or problem is NumPy: the products below bring it back. Products of
float32 rows are float32, their sums over rows float64.

A fit that would need more memory than is left is refused before it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config

Array = NDArray[Any]

#: The least number that is divided by: its root and its inverse are numbers too.
TINY = 1e-300
#: Libraries whose arrays stay where they are.
LIBRARIES = ("torch", "cupy")
#: Rows whose products are summed in the precision of X; these sums are added in float64.
BLOCK_ROWS = 4_096
#: Entries of rows that are scaled at a time: what a Gram matrix takes beside X.
CHUNK = 2**28
#: Where the system tells of its memory.
SYSTEM = Path("/proc/meminfo")
#: Where a container tells of the limit of its control group, of version 2.
CONTAINER = Path("/sys/fs/cgroup")
#: Bytes up to which rows are small: asking the system for its memory would take longer than a fit
#: should, and reading them in chunks longer than a fit in memory.
SMALL = 2**28
#: float64 numbers per row that a fit holds at least: scores, slopes, curvatures, weights, targets.
PER_ROW = 6
#: The same with folds, which have scores and slopes of their own.
PER_ROW_WITH_FOLDS = 20
#: Formats of X that are taken as they are.
FORMATS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


def library(x: Any) -> str | None:
    """Return the library of an array that is not NumPy's, None for everything else."""
    if isinstance(x, np.ndarray):
        return None
    name = type(x).__module__.partition(".")[0]
    return name if name in LIBRARIES else None


def namespace(x: Any) -> Any:
    """Return the functions for an array: NumPy, or those of its library in the standard's names."""
    if isinstance(x, np.ndarray):
        return np
    name = library(x)
    return np if name is None else _functions(name)


@cache
def _functions(name: str) -> Any:
    """Return the functions of a library."""
    try:
        return import_module(f"array_api_compat.{name}")
    except ImportError:
        raise ImportError(
            f"{name} arrays need array-api-compat: pip install 'otdro[torch]'."
        ) from None


def place(x: Any) -> str:
    """Return library and device in words, for messages."""
    name = library(x)
    return "NumPy" if name is None else f"{name} on {x.device}"


def numpy(x: Any) -> Array:
    """Return an array as NumPy's; one on a device is copied."""
    name = library(x)
    if name is None:
        return np.asarray(x)
    return np.asarray(x.detach().cpu().numpy() if name == "torch" else x.get())


def beside(v: Any, x: Any, dtype: Any = None) -> Any:
    """Return v as an array of the library and on the device of x, float64 unless told."""
    if isinstance(x, np.ndarray) or library(x) is None:
        return v
    if isinstance(v, bool | int | float):
        return v
    xp = namespace(x)
    if library(v) is None:
        v = np.array(v, order="C")
    if dtype is None and str(v.dtype).rpartition(".")[2].startswith("float"):
        dtype = xp.float64
    return xp.asarray(v, dtype=dtype, device=x.device)


def factor_of(v: Array, x: Any) -> Any:
    """Return v (B,) for sums and products with x (n, B): of one problem on a device a number."""
    if isinstance(x, np.ndarray) or not isinstance(v, np.ndarray) or v.shape != (1,):
        return beside(v, x)
    return v.item()


def mass(weights: Any, mask: Any) -> float:
    """Return the sum of the weights where a mask holds."""
    if isinstance(weights, np.ndarray):
        return float(weights[mask].sum())
    return float(namespace(weights).where(mask, weights, 0.0).sum())


def class_masses(codes: Any, weights: Any, count: int) -> Array:
    """Return the weight of every class, NumPy (count,); codes are whole numbers of any type."""
    if isinstance(codes, np.ndarray):
        return np.bincount(as_index(codes), weights, minlength=count)
    return np.array([mass(weights, codes == k) for k in range(count)])


def full(shape: Any, value: Any, x: Any) -> Any:
    """Return a float64 array of one value, of the library and on the device of x."""
    if isinstance(x, np.ndarray) or library(x) is None:
        return np.full(shape, value, dtype=float)
    xp = namespace(x)
    return xp.full(shape, float(value), dtype=xp.float64, device=x.device)


def numbers(n: int, x: Any) -> Any:
    """Return 0 to n - 1, of the library and on the device of x."""
    return namespace(x).arange(n, device=x.device)


def as_float(x: Any) -> Any:
    """Return an array as float64, itself where it is that."""
    if isinstance(x, np.ndarray) or library(x) is None:
        return np.asarray(x, dtype=float)
    xp = namespace(x)
    return xp.astype(x, xp.float64, copy=False)


def as_index(x: Any) -> Any:
    """Return whole numbers of any type as those that index arrays."""
    if isinstance(x, np.ndarray) or library(x) is None:
        return np.asarray(x).astype(int)
    xp = namespace(x)
    return xp.astype(x, xp.int64, copy=False)


def copied(x: Any) -> Any:
    """Return a copy, where the array is."""
    return x.copy() if isinstance(x, np.ndarray) else namespace(x).asarray(x, copy=True)


def pick(x: Any, index: Any) -> Any:
    """Return some rows of x, by numbers or a mask that are NumPy or beside x."""
    return x[index] if isinstance(index, slice) else x[beside(index, x)]


def pick_columns(x: Any, index: Any) -> Any:
    """Return some entries along the last axis, by numbers or a mask that are NumPy or beside x."""
    return x[..., beside(index, x) if isinstance(index, np.ndarray) else index]


def entries(x: Any, *index: Array) -> Array:
    """Return the entries of x at NumPy places along its last axes, as NumPy."""
    if isinstance(x, np.ndarray):
        at: Any = (..., *index)
        return x[at]
    return numpy(x[..., *(beside(numbers, x) for numbers in index)])


def column_sums(weights: Any, v: Any) -> Array:
    """Return the sums over rows of weights times v, both (n, B), as NumPy (B,)."""
    if isinstance(v, np.ndarray):
        return np.einsum("nb,nb->b", weights, v)
    return numpy(namespace(v).sum(weights * v, axis=0))


def branch_sums(mass: Any, v: Any) -> Array:
    """Return the sums over branches and rows of mass times v, both (k, n, B), as NumPy (B,)."""
    if isinstance(v, np.ndarray):
        return np.einsum("knb,knb->b", mass, v)
    return numpy(namespace(v).sum(mass * v, axis=(0, 1)))


def product_of_rows(X: Any, beta: Array) -> Any:
    """Return X beta in float64, for rows on a device and NumPy coefficients (d,) or (d, B)."""
    return as_float(X @ beside(beta, X, X.dtype))


def adjoint_of_rows(X: Any, r: Any) -> Array:
    """Return X'r as NumPy, for rows on a device and r (n,) or (n, B) beside them."""
    xp = namespace(X)
    R = xp.astype(r if r.ndim == 2 else r[:, None], X.dtype, copy=False)
    total = sum(
        xp.sum(as_float(xp.matmul(xp.matrix_transpose(part), block)), axis=0)
        for block, part in _blocks(X, R)
    )
    found = numpy(total).T
    return found if r.ndim == 2 else found[:, 0]


def gram_of_rows(X: Any, D: Any, center: Array | None = None) -> Array:
    """Return (X - c)' diag(D) (X - c) as NumPy, rows on a device and D >= 0 (n,) beside them."""
    xp = namespace(X)
    shift = None if center is None else beside(center, X, X.dtype)
    root = xp.astype(xp.sqrt(D), X.dtype, copy=False)[:, None]
    total: Any = 0.0
    for block, part in _blocks(X, root):
        S = (block if shift is None else block - shift) * part
        total = total + xp.sum(as_float(xp.matmul(xp.matrix_transpose(S), S)), axis=0)
    return numpy(total)


def _blocks(X: Any, R: Any) -> Iterator[tuple[Any, Any]]:
    """Yield X and R as (m, k, .) blocks of k rows each, in chunks that bound the memory taken."""
    n, d = X.shape
    k = max(BLOCK_ROWS, 4 * d)
    step = max(1, CHUNK // (k * max(d, 1))) * k
    xp, whole = namespace(X), n - n % k
    for start in range(0, whole, step):
        rows = slice(start, min(start + step, whole))
        yield xp.reshape(X[rows], (-1, k, d)), xp.reshape(R[rows], (-1, k, R.shape[1]))
    if whole < n or n == 0:
        yield X[None, whole:], R[None, whole:]


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
    """Refuse arrays of a call of another library or device than X, under array API dispatch.

    Lists, tables and text have neither.
    """
    if not get_config()["array_api_dispatch"]:
        return
    home = place(X)
    for name, other in others.items():
        placed = library(other) is not None or (
            isinstance(other, np.ndarray) and other.dtype.kind in "biuf"
        )
        if placed and place(other) != home:
            raise ValueError(
                f"X is an array of {home} and {name} one of {place(other)}: move one of them, so "
                "that all arrays of a call are of one library and on one device."
            )


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


def missing_entries(v: Any) -> Array:
    """Return which entries of a column are missing: None, NaN, or NA and NaT of pandas."""
    if hasattr(v, "isna"):
        return np.ravel(v.isna())
    # a list as it is: NumPy would write its NaN as the text "nan"
    entries = np.asarray(v, dtype=None if isinstance(v, np.ndarray) else object).ravel()
    if entries.dtype.kind != "O":
        # NaN and NaT differ from themselves
        return np.asarray(entries != entries)
    # by name: comparisons with pandas.NA have no truth value
    absent = (entry is None or type(entry).__name__ == "NAType" for entry in entries)
    return np.array([a or bool(b != b) for a, b in zip(absent, entries, strict=True)], dtype=bool)


@contextmanager
def told_of_text(name: str = "X or y") -> Iterator[None]:
    """Say in a sentence that an argument holds text where numbers are needed."""
    try:
        yield
    except ValueError as error:
        before, _, text = str(error).partition("could not convert string to float: ")
        if before or not text:
            raise
        text = text.removeprefix("np.str_(").removesuffix(")")
        raise ValueError(
            f"{name} holds text, {text} first, where numbers are needed: encode such columns, as "
            "by OneHotEncoder in a pipeline, or pass the whole pipeline."
        ) from None


def on_host(X: Any) -> Any:
    """Return an array that stays on its device as NumPy's, anything else as it is."""
    return numpy(X) if stays(X) else X


def available_memory() -> int:
    """Return the free memory in bytes: the system's, or what a container leaves of it."""
    try:
        lines = SYSTEM.read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (
            int((CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current")
        )
        stat = (CONTAINER / "memory.stat").read_text().split()
    except (OSError, ValueError):
        # no container, or "max": no limit
        return free
    # pages of files are given back when memory is short
    pages = [int(stat[stat.index(name) + 1]) for name in ("active_file", "inactive_file")]
    return min(free, max(0, limit - used + sum(pages)))


def require_memory(need: float, what: str, instead: str) -> None:
    """Refuse what would need more memory than there is, before it starts."""
    free = available_memory()
    if need > free:
        raise MemoryError(
            f"{what} needs about {need / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are "
            f"free: {instead}."
        )


def fit_need(X: Any, *, folds: bool) -> float:
    """Return the bytes that a fit needs at least, beside X: less than that cannot be enough.

    They are numbers per row, and with ``folds`` a copy of the rows.
    """
    parts = (X.data, X.indices, X.indptr) if hasattr(X, "indptr") else (X,)
    copy = sum(int(part.nbytes) for part in parts) if folds else 0
    return 8.0 * (PER_ROW_WITH_FOLDS if folds else PER_ROW) * X.shape[0] + copy


def require_fit(X: Any, *, folds: bool, learned: bool) -> None:
    """Refuse a fit to X that cannot fit into memory, with what would."""
    need = fit_need(X, folds=folds)
    if need < SMALL:
        return
    n, d = X.shape
    smaller = [
        *(["cost='euclidean'"] if learned else []),
        *(["a number as delta"] if folds else []),
        "rows in chunks (a memmap, a Dask array or a folder of Parquet files)",
    ]
    what = f"a fit to {n:,} rows of {d:,} columns"
    require_memory(need, what, f"use {', or '.join(smaller)}")


def require_dense(n: int, d: int) -> None:
    """Refuse to write sparse rows out as a dense array that cannot fit into memory."""
    need = 8.0 * n * d
    if need >= SMALL:
        what = f"writing {n:,} sparse rows of {d:,} columns as a dense array"
        instead = "use the logistic loss with cost='euclidean', which keeps rows sparse, or fewer"
        require_memory(need, what, f"{instead} rows or columns")


@contextmanager
def told_of_memory(X: Any) -> Iterator[None]:
    """Say how much memory was needed where a device has too little."""
    try:
        yield
    except Exception as error:
        # each library has a class of its own
        if library(X) is None or "OutOfMemory" not in type(error).__name__:
            raise
        n, d = X.shape
        size = n * d * (8 if str(X.dtype).endswith("64") else 4)
        # the scaled copy of a chunk of X, and arrays of one float64 per row
        needed = size + min(size, 8 * CHUNK) + 8 * n * PER_ROW_WITH_FOLDS
        raise MemoryError(
            f"the device ({place(X)}) ran out of memory: X has {size / 2**30:.2f} GiB and a fit "
            f"needs about {needed / 2**30:.2f} GiB with it. Use fewer rows or float32, or fit "
            "NumPy arrays."
        ) from error
