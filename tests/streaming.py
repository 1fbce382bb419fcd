"""Rows in chunks for tests: the same few rows as an array, a mapped file or Parquet files."""

import numpy as np
import pytest

from otdro.chunks.memmap import MappedRows

N, D = 1500, 5
FINE = {"cost": "euclidean", "delta": 0.05, "tol": 1e-13}


def made_rows():
    """Return rows, labels of two classes and targets."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * np.linspace(0.5, 2, D) + 3
    beta = rng.standard_normal(D)
    z = (X - 3) @ beta + 0.3
    labels = np.where(rng.random(N) < 1 / (1 + np.exp(-z)), "yes", "no")
    return X, labels, z + rng.standard_normal(N) + 5


def chunks_of(X, y, rows=100):
    """Return rows in chunks of about a hundred."""
    return MappedRows(X, y, chunk_bytes=rows * X.shape[1] * X.dtype.itemsize)


def mapped(tmp_path, X, name="X.bin", **options):
    """Write an array into a file and map it."""
    M = np.memmap(tmp_path / name, X.dtype, "w+", shape=X.shape, **options)
    M[:] = X
    M.flush()
    return np.memmap(tmp_path / name, X.dtype, "r", shape=X.shape, **options)


def write_folder(folder, X, y, target="label", files=3, **more):
    """Write rows, targets and more columns as Parquet files into a new folder."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder.mkdir()
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    table = table.assign(**{target: y}, **more)
    size = -(-len(X) // files)
    for k in range(files):
        part = table[k * size : (k + 1) * size]
        part.to_parquet(folder / f"part{k}.parquet", row_group_size=200, index=False)
    return folder
