"""Quadratic programs over the shares of tied rows: optimality of each, many at a time."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otdro import DROClassifier
from otdro.duality import Padded, TieModels, box_quadratics


def programs(rank, seed, T=30, R=9):
    """Return T programs of R shares whose matrices have a given rank, and starts in the box."""
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(T, R, rank)) * 10.0 ** rng.uniform(-2, 2, (T, 1, 1))
    q = rng.normal(size=(T, R)) * 10.0 ** rng.uniform(-2, 2, (T, 1))
    return J @ np.swapaxes(J, 1, 2), q, rng.integers(0, 2, (T, R)).astype(float)


@pytest.mark.parametrize("rank", [1, 3, 9])
@pytest.mark.parametrize("seed", range(5))
def test_shares_are_optimal(rank, seed):
    Q, q, p = programs(rank, seed)
    assert_optimal(Q, q, box_quadratics(Q, q, p))


def test_starts_at_an_end_but_for_rounding_reach_the_optimum():
    Q, q, p = programs(6, 0, T=300, R=7)
    rng = np.random.default_rng(1)
    near = np.where(p > 0, 1e-17 * rng.random(p.shape), 0.1 * rng.random(p.shape))
    assert_optimal(Q, q, box_quadratics(Q, q, near))


def assert_optimal(Q, q, found):
    assert ((found >= 0) & (found <= 1)).all()
    g = (Q @ found[:, :, None])[:, :, 0] + q
    # a convex program: the linear bound g'(x - p) over the box is what could be gained
    gain = np.maximum(g, 0) * found + np.maximum(-g, 0) * (1 - found)
    scale = np.abs(q).max(axis=1) + np.einsum("tii->t", Q)
    assert_allclose(gain.sum(axis=1) / scale, 0, atol=1e-9)


def test_a_program_does_not_depend_on_its_company():
    Q, q, p = programs(3, 7)
    alone = [box_quadratics(Q[t : t + 1], q[t : t + 1], p[t : t + 1])[0] for t in range(len(q))]
    values = [x @ A @ x / 2 + c @ x for x, A, c in zip(alone, Q, q, strict=True)]
    together = box_quadratics(Q, q, p)
    assert_allclose(np.einsum("ti,tij,tj->t", together, Q, together) / 2
                    + np.einsum("ti,ti->t", q, together), values, rtol=1e-9)  # fmt: skip


def test_places_of_few_and_many_entries():
    mask = np.array([[False, True, True], [True, False, False], [True, True, True]])
    padded = Padded.of(mask)
    assert [list(i[h]) for i, h in zip(padded.index, padded.held, strict=True)] == [
        [1, 2], [0], [0, 1, 2],
    ]  # fmt: skip


def test_places_without_a_row_change_nothing():
    rng = np.random.default_rng(0)
    T, D, R = 4, 5, 3
    A = rng.normal(size=(T, D, D))
    H, base = A @ np.swapaxes(A, 1, 2) + np.eye(D), rng.normal(size=(T, D))
    d, J = rng.normal(size=(T, R)), rng.normal(size=(T, R, D))
    move, p, _ = TieModels(base, H, d, J).minimise(np.zeros((T, R)))
    wide = np.concatenate([d, -np.ones((T, 2))], axis=1)
    longer = np.concatenate([J, np.zeros((T, 2, D))], axis=1)
    again, shares, _ = TieModels(base, H, wide, longer).minimise(np.zeros((T, R + 2)))
    assert_allclose(again, move, atol=1e-10)
    assert_allclose(shares, np.pad(p, [(0, 0), (0, 2)]), atol=1e-10)


@pytest.mark.parametrize(
    ("seed", "delta"), [(6, 1.6337e-3), (10, 7.0542e-3), (30, 1.5020e-3), (48, 1.1477e-3)]
)
def test_fits_are_certified_where_the_two_branches_of_rows_part(seed, delta):
    # 2 lam/w^2 is about 1/4: there slopes change fast and a bound is late, long after F is least
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((24, 10))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.where(X[:, 0] + 0.7 * rng.standard_normal(24) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", order=2, delta=delta).fit(X, y)
    assert 0.22 < 2 * model.multiplier_ / np.linalg.norm(model.coef_) ** 2 < 0.28
    assert model.gap_ <= 1e-6 * np.log(2)


@pytest.mark.parametrize(("seed", "delta"), [(4, 0.05045022649999329), (56, 0.06004316523380418)])
def test_a_descent_along_the_cusp_goes_on_until_it_is_certified(seed, delta):
    """Next to 2 lam/w^2 = 1/4 steps are short: small progress was taken for none."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24, 10))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.7 * rng.normal(size=24) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", order=2, delta=delta).fit(X, y)
    a = 2 * model.multiplier_ / np.linalg.norm(model.coef_) ** 2
    assert abs(a - 0.25) < 0.01
    assert model.gap_ <= 1e-6
