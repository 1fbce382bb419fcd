"""The contract of a cost, over every class that ``otdro.costs`` exports."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro import costs

MATRIX = [[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]]
#: How to build the costs that take arguments. A new cost without arguments needs no entry.
ARGUMENTS = {
    "Norm": [{"p": 1}, {"p": 2}, {"p": np.inf}],
    "Mahalanobis": [{"matrix": MATRIX}, {"matrix": np.diag([1e-8, 1.0, 1e8])}],
}
#: Costs that are no norm have contract tests of their own, named here with the file.
ELSEWHERE = {"FeatureMap": "test_feature_map.py", "Graph": "test_graph.py"}


def build():
    for name in costs.__all__:
        if name in ELSEWHERE:
            continue
        for settings in ARGUMENTS.get(name, [{}]):
            try:
                yield getattr(costs, name)(**settings)
            except TypeError:
                pytest.fail(f"{name} needs arguments: add an entry {name!r} to ARGUMENTS")


every = pytest.mark.parametrize("cost", list(build()), ids=lambda c: repr(c)[:40])
number = st.floats(-1e3, 1e3).map(lambda v: 0.0 if abs(v) < 1e-6 else v)
vectors = arrays(float, 3, elements=number)


@every
@given(w=vectors)
def test_direction_attains_the_dual_norm(cost, w):
    v = cost.direction(w)
    assert_allclose(w @ v, cost.dual_norm(w), rtol=1e-9, atol=1e-12)
    assert_allclose(cost.norm(v), 1.0, rtol=1e-9)


@every
@given(w=vectors, v=vectors)
def test_hoelder(cost, w, v):
    assert w @ v <= cost.dual_norm(w) * cost.norm(v) * (1 + 1e-9) + 1e-12


@every
@given(w=vectors, v=vectors)
def test_direction_is_a_subgradient_of_the_dual_norm(cost, w, v):
    linear = cost.dual_norm(w) + (v - w) @ cost.direction(w)
    assert cost.dual_norm(v) >= linear - 1e-9 * (1 + abs(linear) + cost.dual_norm(w))


@every
@given(v=vectors, u=vectors, k=st.floats(-5, 5))
def test_norm_is_a_norm(cost, v, u, k):
    for size in (cost.norm, cost.dual_norm):
        assert_allclose(size(k * v), abs(k) * size(v), rtol=1e-9, atol=1e-12)
        assert size(u + v) <= (size(u) + size(v)) * (1 + 1e-9) + 1e-12
        assert size(v) >= 0
    assert cost.norm(np.zeros(3)) == cost.dual_norm(np.zeros(3)) == 0


@every
def test_arrays_act_along_the_last_axis(cost):
    W = np.random.default_rng(0).normal(size=(2, 5, 3))
    for method in (cost.norm, cost.dual_norm):
        assert method(W).shape == (2, 5)
        assert_allclose(method(W)[1, 3], method(W[1, 3]))
    assert cost.direction(W[0]).shape == (5, 3)
    assert_allclose(cost.direction(W[0])[2], cost.direction(W[0, 2]))


@every
def test_distance_is_the_norm_of_differences(cost):
    rng = np.random.default_rng(1)
    U, V = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    D = cost.distance(U, V)
    assert D.shape == (4, 6)
    assert_allclose(D[1, 5], cost.norm(U[1] - V[5]))


@every
def test_euclidean_costs_have_a_factor(cost):
    v = np.array([0.3, -1.0, 2.0])
    if not cost.euclidean:
        with pytest.raises(ValueError, match="Euclidean"):
            cost.factor()
        return
    L = np.eye(3) if cost.factor() is None else cost.factor()
    assert_allclose(np.linalg.norm(L.T @ v), cost.norm(v))
    assert_allclose(np.linalg.norm(cost.transform(v[None])), cost.norm(v))
    assert_allclose(np.linalg.norm(np.linalg.solve(L, v)), cost.dual_norm(v))


@every
def test_survives_clone_and_pickle(cost):
    v = np.array([0.3, -1.0, 2.0])
    for copy in (clone(cost), pickle.loads(pickle.dumps(cost))):
        assert type(copy) is type(cost)
        assert copy.norm(v) == cost.norm(v)


def test_mahalanobis_takes_the_matrix_as_given():
    v = np.array([1.0, 2.0, -1.0])
    cost = costs.Mahalanobis(MATRIX)
    assert_allclose(cost.norm(v), np.sqrt(v @ np.array(MATRIX) @ v))
    assert_allclose(cost.dual_norm(v), np.sqrt(v @ np.linalg.solve(MATRIX, v)))


def test_names_are_the_norms_of_the_adversary():
    assert {name: cost.p for name, cost in costs.KNOWN.items()} == {
        "euclidean": 2, "l1": 1, "linf": np.inf,
    }  # fmt: skip
    # the penalty is the dual norm: "linf" gives the lasso-type one
    assert costs.KNOWN["linf"].dual_norm(np.array([1.0, -2.0])) == 3.0
