"""Pairs against their definitions by brute force, and every kind of bad input."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.spatial.distance import cdist

from otdro import pairs as making
from otdro.pairs import (
    Listed,
    Opposite,
    Pairs,
    from_graph,
    from_indices,
    from_labels,
    from_target,
)


@pytest.fixture
def blobs():
    rng = np.random.RandomState(0)
    y = np.repeat(["a", "b", "c"], [14, 9, 7])
    return rng.randn(30, 3) + (y == "b")[:, None], y


def unordered(index):
    return {tuple(sorted(map(int, pair))) for pair in index}


def nearest(X, allowed, k):
    """Brute force: for each row the k nearest among the rows where allowed[i] holds."""
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    links = set()
    for i, row in enumerate(np.where(allowed, D, np.inf)):
        near = [int(j) for j in np.argsort(row)[:k] if np.isfinite(row[j])]
        links |= {tuple(sorted((i, j))) for j in near}
    return links


def scatter(X, index):
    D = X[index[:, 0]] - X[index[:, 1]]
    return D.T @ D / len(D)


def test_each_links_the_k_nearest_of_its_class_and_of_the_others(blobs):
    X, y = blobs
    found = from_labels(X, y, kind="each", k=3)
    same = y[:, None] == y
    assert unordered(found.must.index) == nearest(X, same, 3)
    assert unordered(found.cannot.index) == nearest(X, ~same, 3)


def test_nearest_splits_the_neighbours_by_label(blobs):
    X, y = blobs
    found = from_labels(X, y, kind="nearest", k=4)
    links = nearest(X, np.ones((30, 30), dtype=bool), 4)
    assert unordered(found.must.index) == {(i, j) for i, j in links if y[i] == y[j]}
    assert unordered(found.cannot.index) == {(i, j) for i, j in links if y[i] != y[j]}


def test_opposite_is_every_pair_of_different_labels(blobs):
    X, y = blobs
    found = from_labels(X, y, kind="opposite", k=2)
    everything = found.cannot.sample(10**6, np.random.RandomState(0))
    expected = {(i, j) for i in range(30) for j in range(i, 30) if y[i] != y[j]}
    assert unordered(everything) == expected
    assert len(found.cannot) == len(expected)
    assert_allclose(found.cannot.scatter(X), scatter(X, everything), rtol=1e-12)
    some = found.cannot.sample(50, np.random.RandomState(0))
    assert len(some) == len(unordered(some)) == 50
    assert unordered(some) <= expected


def test_listed_scatter_is_the_mean_outer_product(blobs):
    X, _ = blobs
    index = np.random.RandomState(1).permutation(30).reshape(15, 2)
    assert_allclose(Listed(index).scatter(X + 100), scatter(X, index), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", making.KINDS)
def test_ties_do_not_see_the_order_of_rows(kind):
    rng = np.random.RandomState(0)
    X = rng.randint(3, size=(60, 2)).astype(float)  # a lattice: ties and duplicates everywhere
    y = rng.randint(2, size=60)
    order = rng.permutation(60)
    one, two = from_labels(X, y, kind=kind, k=3), from_labels(X[order], y[order], kind=kind, k=3)
    for a, b in ((one.must, two.must), (one.cannot, two.cannot)):
        assert len(a) == len(b)
        assert_allclose(a.scatter(X), b.scatter(X[order]), atol=1e-12)


def test_above_max_rows_a_seeded_subsample_that_ignores_row_order(blobs):
    X, y = blobs
    found = from_labels(X, y, k=2, max_rows=20, random_state=0)
    assert len(np.unique(np.concatenate([found.must.index, found.cannot.index]))) <= 20
    again = from_labels(X[::-1], y[::-1], k=2, max_rows=20, random_state=0)
    assert unordered(29 - again.must.index) == unordered(found.must.index)


def test_target_pairs_split_at_the_median(blobs):
    X, _ = blobs
    y = np.random.RandomState(0).randn(30)
    found = from_target(X, y)
    gap = [np.abs(y[p.index[:, 0]] - y[p.index[:, 1]]) for p in (found.must, found.cannot)]
    assert gap[0].max() < gap[1].min()
    assert abs(len(gap[0]) - len(gap[1])) <= 1


def test_target_pairs_of_many_rows_are_a_subsample():
    rng = np.random.RandomState(0)
    X = rng.randn(6000, 2)
    found = from_target(X, X[:, 0], max_pairs=500, random_state=0)
    assert 900 < len(found.must) + len(found.cannot) <= 1000
    order = rng.permutation(6000)
    again = from_target(X[order], X[order, 0], max_pairs=500, random_state=0)
    assert unordered(order[again.must.index]) == unordered(found.must.index)


def test_target_of_two_values_parts_them():
    y = np.array([0.5, 1.5, 0.5, 1.5])
    found = from_target(np.arange(8.0).reshape(4, 2), y)
    assert unordered(found.must.index) == {(0, 2), (1, 3)}


def test_graph_by_sign_and_by_label():
    A = np.zeros((4, 4))
    A[0, 1], A[1, 0], A[2, 3] = 1, 1, -2
    found = from_graph(sparse.csr_array(A))
    assert unordered(found.must.index) == {(0, 1)}
    assert unordered(found.cannot.index) == {(2, 3)}
    split = from_graph(np.abs(A), labels=["u", "u", "u", "v"])
    assert unordered(split.cannot.index) == {(2, 3)}


def test_resolve_takes_pairs_index_arrays_and_graphs():
    must, cannot = [[0, 1]], [[1, 2]]
    given = making.resolve((must, cannot), 3)
    assert making.resolve(given, 3) is given
    graph = sparse.coo_array(([1.0, -1.0], ([0, 1], [1, 2])), shape=(3, 3))
    assert unordered(making.resolve(graph, 3).cannot.index) == {(1, 2)}
    with pytest.raises(TypeError, match="two index arrays or a graph, got int"):
        making.resolve(3, 3)


@pytest.mark.parametrize(
    ("must", "cannot", "message"),
    [
        ([[0, 9]], [[1, 2]], "must-link pair names row 9, but X has rows 0 to 4"),
        ([[0, 1]], [[-1, 2]], "cannot-link pair names row -1"),
        ([[3, 3]], [[1, 2]], "row 3 is must-link with itself"),
        ([[0, 1], [2, 1]], [[1, 2]], r"1 pair\(s\) are both .* the first is \(1, 2\)"),
        ([[0, 1, 2]], [[1, 2]], r"integers of shape \(m, 2\)"),
        ([[0.0, 1.0]], [[1, 2]], "got float64"),
        ([], [[1, 2]], "no must-link pairs"),
        ([[0, 1]], [], "no cannot-link pairs"),
    ],
)
def test_bad_index_pairs_are_refused_by_name(must, cannot, message):
    with pytest.raises(ValueError, match=message):
        from_indices(must, cannot, 5)


def test_bad_graphs_are_refused():
    with pytest.raises(ValueError, match="square"):
        from_graph(np.ones((2, 3)))
    with pytest.raises(ValueError, match="no cannot-link"):
        from_graph(np.array([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="2 nodes but there are 3 labels"):
        from_graph(np.array([[0, 1], [1, 0]]), labels=[1, 2, 3])
    with pytest.raises(ValueError, match="rows 0 to 1"):
        making.resolve(sparse.coo_array(([1.0, -1], ([0, 1], [1, 2])), shape=(3, 3)), 2)


def test_bad_settings_are_refused(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="kind must be one of each, nearest, opposite"):
        from_labels(X, y, kind="knn")
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        from_labels(X, y, k=0)
    with pytest.raises(ValueError, match="task must be one of"):
        making.target_kind(y, "ranking")


def test_k_beyond_the_rows_means_all_of_them(blobs):
    X, y = blobs
    found = from_labels(X, y, k=100)
    assert len(found.must) + len(found.cannot) == 30 * 29 // 2


def test_a_class_with_one_member_has_no_must_link_of_its_own():
    X, y = np.arange(8.0).reshape(4, 2), np.array([0, 0, 0, 1])
    found = from_labels(X, y, k=2)
    assert 3 not in found.must.index
    assert 3 in found.cannot.index
    alone = from_labels(X, np.arange(4), k=2)
    with pytest.raises(ValueError, match="no must-link pairs; raise k, merge classes"):
        alone.check(4)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (np.array(["u", "v", "u"]), "classification"),
        (np.array([True, False, True]), "classification"),
        (np.array([0.5, 1.5, 0.5]), "regression"),
        (np.array([3, 1, 4]), "regression"),
        (np.array([-1.0, 1.0, 1.0]), "classification"),
    ],
)
def test_target_kind(y, kind):
    assert making.target_kind(y) == kind
    assert making.target_kind(y, "regression") == "regression"


def test_two_column_targets_are_refused():
    with pytest.raises(ValueError, match="multilabel-indicator"):
        making.target_kind(np.eye(2, dtype=int))


def test_opposite_and_pairs_check_row_numbers():
    pairs = Pairs(Listed(np.array([[0, 1]])), Opposite(np.arange(4), np.array([0, 0, 1, 1])))
    with pytest.raises(ValueError, match="cannot-link pair names row 3"):
        pairs.check(3)
