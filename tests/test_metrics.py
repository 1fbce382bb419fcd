"""Learners against the programs they solve: conic optima, stationarity, equivariance."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import fractional_matrix_power
from scipy.stats import ortho_group
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from otdro.metrics import (
    Association,
    Diagonal,
    Eigen,
    GeometricMean,
    Learned,
    LogDet,
    Robust,
    Spectral,
    Xing,
    learn,
)
from otdro.metrics.base import scatters
from otdro.pairs import Pairs, from_indices, from_labels


def two_classes(seed, n=120, d=4):
    rng = np.random.RandomState(seed)
    y = np.repeat([0, 1], n // 2)
    X = rng.randn(n, d) @ (np.eye(d) + 0.3 * rng.randn(d, d))
    X[:, 0] += 2 * y
    return X, y


@pytest.fixture(params=range(3))
def problem(request):
    X, y = two_classes(request.param)
    pairs = from_labels(X, y, k=3)
    return X, pairs, *scatters(X, pairs)


def test_well_conditioned_scatters_are_left_alone(problem):
    X, pairs, S_M, S_N = problem
    assert_allclose(S_M, pairs.must.scatter(X), rtol=0, atol=0)
    assert_allclose(S_N, pairs.cannot.scatter(X), rtol=0, atol=0)


def test_eigen_solves_the_printed_program(problem):
    X, pairs, S_M, S_N = problem
    Lam = cp.Variable(S_M.shape, PSD=True)
    program = cp.Problem(cp.Minimize(cp.trace(Lam @ S_M)), [cp.trace(Lam @ S_N) >= 1])
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    ours = Eigen().fit(X, pairs=pairs).solution_
    assert_allclose(np.trace(ours @ S_N), 1)
    assert_allclose(np.trace(ours @ S_M), program.value, rtol=1e-6)
    assert_allclose(ours, Lam.value, atol=1e-6 * np.abs(ours).max())


def test_xing_reaches_the_optimum(problem):
    X, pairs, S_M, _ = problem
    D = X[pairs.cannot.index[:, 0]] - X[pairs.cannot.index[:, 1]]
    Lam = cp.Variable((4, 4), PSD=True)
    squared = cp.sum(cp.multiply(D @ Lam, D), axis=1)
    program = cp.Problem(cp.Maximize(cp.sum(cp.sqrt(squared))), [cp.trace(Lam @ S_M) <= 1])
    best = program.solve(solver=cp.CLARABEL) / len(D)
    learner = Xing().fit(X, pairs=pairs)
    ours = learner.solution_
    assert np.trace(ours @ S_M) <= 1 + 1e-9
    reached = np.sqrt(((D @ ours) * D).sum(axis=1)).mean()
    assert_allclose(reached, learner.objective_, rtol=1e-8)
    assert reached >= best * (1 - 1e-4)
    # the certificate covers the distance to the optimum
    assert best <= learner.objective_ + learner.gap_ + 1e-6 * best
    assert learner.gap_ <= learner.tol * learner.objective_


def test_xing_says_when_it_stops_early():
    X, y = two_classes(0)
    with pytest.warns(ConvergenceWarning, match="relative gap of .* raise max_iter or tol"):
        Xing(max_iter=1).fit(X, y)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.5, 0.9, 1.0, 3.0])
def test_log_det_is_stationary(problem, mu):
    X, pairs, S_M, S_N = problem
    Lam = LogDet(mu).fit(X, pairs=pairs).solution_
    strength = mu / np.trace(np.linalg.solve(S_M, S_N))
    far = np.trace(Lam @ S_N)
    # S_M - strength Lam^-1 = kappa S_N with kappa >= 0, and kappa = 0 unless tr(Lam S_N) = 1
    rest = S_M - strength * np.linalg.inv(Lam)
    kappa = np.trace(rest) / np.trace(S_N)
    assert_allclose(rest, kappa * S_N, atol=1e-8 * np.abs(S_M).max())
    assert kappa > -1e-12
    assert far >= 1 - 1e-8
    assert abs(kappa * (far - 1)) < 1e-8


def test_log_det_runs_from_eigen_to_the_inverse(problem):
    X, pairs, S_M, _ = problem
    inverse = LogDet(1.0, shrinkage=0).fit(X, pairs=pairs).solution_
    assert_allclose(inverse @ S_M / (inverse @ S_M)[0, 0], np.eye(4), atol=1e-8)
    rank_one = Eigen(shrinkage=0.1).fit(X, pairs=pairs).metric_
    nearly = LogDet(1e-6, shrinkage=0.1).fit(X, pairs=pairs).metric_
    assert_allclose(nearly, rank_one, atol=1e-4)


def test_geometric_mean_solves_the_riccati_equation(problem):
    X, pairs, S_M, S_N = problem
    Lam = GeometricMean(0.5).fit(X, pairs=pairs).solution_
    assert_allclose(Lam @ S_M @ Lam, S_N, atol=1e-8 * np.abs(S_N).max())


@pytest.mark.parametrize("t", [0.0, 0.1, 0.25, 0.75, 1.0])
def test_geometric_mean_lies_on_the_geodesic(problem, t):
    X, pairs, S_M, S_N = problem
    Lam = GeometricMean(t).fit(X, pairs=pairs).solution_
    # A^-1 (A #_t B) = (A^-1 B)^t with A = S_M^-1, B = S_N
    power = np.real(fractional_matrix_power(S_M @ S_N, t))
    assert_allclose(S_M @ Lam, power, atol=1e-8 * np.abs(power).max())


def test_diagonal_is_stationary(problem):
    X, pairs, S_M, S_N = problem
    for power in (0.5, 1.0, 2.0):
        price = np.diag(Diagonal(power).fit(X, pairs=pairs).solution_)
        slope = price ** (1 / power) * np.diag(S_M) / np.diag(S_N)
        assert_allclose(slope, slope[0], rtol=1e-8)


@pytest.mark.parametrize("learner", [Xing(tol=1e-9), Eigen(), LogDet(), GeometricMean(), Robust()])
def test_rotation_of_the_rows_rotates_the_metric(learner):
    X, y = two_classes(1)
    R = ortho_group.rvs(4, random_state=0)
    before = learner.fit(X, y).metric_
    assert_allclose(learner.fit(X @ R, y).metric_, R.T @ before @ R, atol=1e-4)


@pytest.mark.parametrize("learner", [LogDet(), GeometricMean(), Diagonal(), Eigen()])
def test_units_do_not_matter(learner):
    X, y = two_classes(1)
    assert_allclose(learner.fit(100 * X, y).metric_, learner.fit(X, y).metric_, atol=1e-8)


def test_robust_climbs_and_is_global_without_trimming(problem):
    X, pairs, *_ = problem
    learner = Robust(0.6).fit(X, pairs=pairs)
    assert (np.diff(learner.objective_) >= 0).all()
    assert learner.n_iter_ == len(learner.objective_)
    full = Robust(1.0).fit(X, pairs=pairs)
    Lam, G = full.solution_, pairs.cannot.scatter(X) - pairs.must.scatter(X)
    # the projection of G: Lam >= 0, Lam - G >= 0, tr Lam (Lam - G) = 0
    assert np.linalg.eigvalsh(Lam - G)[0] > -1e-9
    assert abs(np.trace(Lam @ (Lam - G))) < 1e-9


def test_robust_is_the_identity_where_nothing_is_to_be_learned():
    X = np.array([[0.0, 0], [0, 1], [5, 5], [5, 6]])
    learner = Robust(shrinkage=0).fit(X, pairs=([[0, 3], [1, 2]], [[0, 1], [2, 3]]))
    assert learner.objective_[-1] == 0
    assert_allclose(learner.metric_, np.eye(2), atol=1e-5)


def test_robust_says_when_it_stops_early():
    X, y = two_classes(0)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        Robust(max_iter=1).fit(X, y)


def swapped(pairs: Pairs, share: float, rng: np.random.RandomState) -> Pairs:
    """Move a share of each kind of pairs, drawn at random, to the other kind."""
    must, cannot = (rng.permutation(p.index) for p in (pairs.must, pairs.cannot))
    m, c = int(share * len(must)), int(share * len(cannot))
    return from_indices(
        np.vstack([must[m:], cannot[:c]]), np.vstack([cannot[c:], must[:m]]), len(must) * 10
    )


def random_pairs(y: np.ndarray, rng: np.random.RandomState) -> Pairs:
    index = np.column_stack([rng.randint(300, size=6000), rng.randint(300, size=6000)])
    index = np.unique(index[index[:, 0] < index[:, 1]], axis=0)
    same = y[index[:, 0]] == y[index[:, 1]]
    return from_indices(index[same], index[~same], 300)


@pytest.mark.parametrize("which", ["neighbours", "random"])
def test_robust_survives_a_fifth_of_wrong_pairs(which):
    """Two Gaussian classes in 6-D, means 3 apart, 300 rows, 20% of each kind swapped, 20 seeds."""
    moved = {Xing: [], Robust: []}
    for seed in range(20):
        rng = np.random.RandomState(seed)
        y = np.repeat([0, 1], 150)
        X = rng.randn(300, 6)
        X[:, 0] += 3 * y
        clean = from_labels(X, y) if which == "neighbours" else random_pairs(y, rng)
        dirty = swapped(clean, 0.2, rng)
        for kind, distances in moved.items():
            learner = kind(shrinkage=0.1)  # the same for both: shrinkage alone brings them together
            before = learner.fit(X, pairs=clean).metric_
            after = learner.fit(X, pairs=dirty).metric_
            distances.append(np.linalg.norm(after - before) / np.linalg.norm(before))
            # it learned which axis matters
            assert after[0, 0] > 2 * np.diag(after)[1:].mean()
    assert np.mean(moved[Robust]) <= 0.5 * np.mean(moved[Xing])


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (LogDet(0), "mu must be a number > 0, got mu=0"),
        (GeometricMean(1.5), r"t must be a number in \[0, 1\], got t=1.5"),
        (Diagonal(-1), "power must be at least 0"),
        (Robust(0), r"alpha must be a number in \(0, 1\], got alpha=0"),
    ],
)
def test_parameters_out_of_range_are_refused(learner, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(*two_classes(0))


def test_foreign_learners_are_wrapped():
    X, y = two_classes(0)
    nca = NeighborhoodComponentsAnalysis(n_components=1, random_state=0, max_iter=5)
    matrix = learn(nca, X, y, shrinkage=0.2).matrix
    L = nca.fit(X, y).components_
    assert_allclose(matrix, 0.8 * 4 * L.T @ L / np.trace(L.T @ L) + 0.2 * np.eye(4))
    # rank one, and yet a cost
    learn(nca, X, y).check(4)


def test_learn_wraps_a_matrix_and_refuses_the_rest():
    class Given(Diagonal.__mro__[3]):  # BaseEstimator
        def fit(self, X, y):
            return self

        def get_mahalanobis_matrix(self):
            return np.diag([3.0, 1.0])

    assert_allclose(learn(Given(), np.eye(2), [0, 1]).matrix, np.diag([1.5, 0.5]), atol=1e-5)
    Given.get_mahalanobis_matrix = lambda self: np.zeros((2, 2))
    with pytest.raises(ValueError, match="Given learned a zero or non-finite matrix"):
        learn(Given(), np.eye(2), [0, 1])
    del Given.get_mahalanobis_matrix
    with pytest.raises(TypeError, match="Given is not a metric learner"):
        learn(Given(), np.eye(2), [0, 1])


def test_learn_passes_shrinkage_and_task():
    X, y = two_classes(0)
    assert_allclose(learn(Eigen(), X, y).matrix, Eigen().fit(X, y).metric_)
    shrunk = Eigen(shrinkage=0.9).fit(X, y).metric_
    assert_allclose(learn(Eigen(), X, y, shrinkage=0.9).matrix, shrunk)
    as_numbers = learn(Eigen(), X, y, task="regression").matrix
    assert_allclose(as_numbers, Eigen(task="regression").fit(X, y).metric_)


def test_learned_has_the_euclidean_cost_first():
    spec = Learned([Diagonal(), NeighborhoodComponentsAnalysis(max_iter=2)], shrinkage=[0.1, 0.5])
    names = spec.names()
    assert names[:2] == ["Euclidean", "Diagonal, shrinkage 0.1"]
    matrices = spec.matrices(*two_classes(0))
    assert len(matrices) + 1 == len(names) == 5
    assert all(np.isclose(np.trace(matrix), 4) for matrix in matrices)


def test_learned_defaults_are_few_and_have_their_own_shrinkage():
    own = [Spectral(), GeometricMean(), Association()]
    assert Learned().names() == Learned(own, shrinkage=None).names()
    parts = zip(Learned().matrices(*two_classes(0)), own, strict=True)
    assert all(np.allclose(M, learn(one, *two_classes(0)).matrix) for M, one in parts)


def test_learned_refuses_what_cannot_learn():
    with pytest.raises(TypeError, match=r"learners must have fit\(X, y\), got 3"):
        Learned([3]).names()
    with pytest.raises(ValueError, match="shrinkage must be a number"):
        Learned(shrinkage=[2]).names()


def test_memory_stays_below_the_square_of_the_rows():
    import tracemalloc

    rng = np.random.RandomState(0)
    X = rng.randn(8000, 3)
    tracemalloc.start()
    for learner in (GeometricMean(k=2), Eigen(kind="opposite", k=2), Diagonal(task="regression")):
        learner.fit(X, (X[:, 0] > 0).astype(float))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8000**2  # bytes: an eighth of one n x n array


@pytest.mark.parametrize("value", [0.0, 3.0, 1e6])
def test_eigen_with_a_constant_column_follows_the_others(value):
    """With one more column its ridges tied with the only direction that tells classes apart."""
    rng = np.random.default_rng(0)
    for d in (1, 3):
        X = rng.normal(size=(20, d))
        y = np.where(X[:, 0] + rng.normal(size=20) > 0, 1, -1)
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        turn = np.eye(d + 1)
        turn[:d, :d] = Q
        fits = [
            Eigen().fit(np.column_stack([rows, np.full(20, value)]), y).metric_
            for rows in (X, X + 100, 7 * X, X @ Q)
        ]
        fits[3] = turn @ fits[3] @ turn.T
        for metric in fits[1:]:
            assert_allclose(metric, fits[0], atol=1e-6)
        assert fits[0][0, 0] > fits[0][d, d]
