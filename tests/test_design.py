"""Products with the rows of a problem, against the rows themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from otdro.design import Design, column_scale, written_product


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "far from zero"])
@pytest.mark.parametrize("B", [0, 1, 3])
def test_moments_of_whitened_centred_rows(equal, kind, B):
    rng = np.random.default_rng(B)
    n, d = 40, 5
    X = rng.normal(size=(n, d)) + (1e6 if kind == "far from zero" else 0.5)
    if kind == "float32":
        X = X.astype(np.float32)
    center, factor = X.mean(axis=0, dtype=float), np.tril(rng.normal(size=(d, d)))
    D = np.full((n, B), 0.3) if equal else rng.uniform(0, 1, (n, B))
    D = D if B else (np.full(n, 0.3) if equal else rng.uniform(0, 1, n))
    design = Design(sparse.csr_array(X) if "csr" in kind else X, factor, center)
    G, s = design.moments(D)
    Z = (X - center) @ factor
    columns = D.reshape(n, -1)
    assert_allclose(G.reshape(-1, d, d), np.einsum("ni,nb,nj->bij", Z, columns, Z), atol=1e-8)
    assert_allclose(s.reshape(d, -1), Z.T @ columns, atol=1e-7)
    assert_allclose(design.gram(D), G, atol=1e-12)
    assert s.shape == design.adjoint(D).shape


@pytest.mark.parametrize("right", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_product_of_sparse_matrices_is_written_in_float64(right, index):
    rng = np.random.default_rng(0)
    A, B = (sparse.csr_array(rng.random((6, 6)) * (rng.random((6, 6)) < 0.5)) for _ in range(2))
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    found = written_product(A.T, B.astype(right))
    assert found.dtype == np.float64
    assert_allclose(found, A.toarray().T @ B.toarray(), rtol=1e-6)
    assert not written_product(A[:, :0], B[:0]).any()


@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array, np.float32])
def test_a_constant_column_has_no_scale(rows):
    n = 30
    X = np.c_[np.arange(n) % 3 - 1.0, np.full(n, 0.1), np.full(n, 1e5 / 3)]
    scale = column_scale(rows(X), np.full(n, 1 / n))
    assert_allclose(scale, [np.sqrt(2 / 3), 0.0, 0.0], rtol=1e-12, atol=0)
