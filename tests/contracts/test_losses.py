"""The contract of a loss, over every class that ``otdro.losses`` exports."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro import losses

#: Losses with parameters are tried at these too; a loss not listed is tried as it is built.
MORE = {"Huber": [{"M": 0.3}, {"M": 5.0}], "Quantile": [{"tau": 0.1}, {"tau": 0.9}]}
LOSSES = [
    getattr(losses, name)(**settings)
    for name in losses.__all__
    for settings in [{}, *MORE.get(name, [])]
]
every = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def targets(loss):
    if loss.task == "classification":
        return np.array([-1.0, 1.0])
    return np.array([-2.5, 0.0, 1.0, 7.0])


def grid(loss, points=801, reach=10.0):
    """Scores that straddle the kinks without standing on them, and each with every target."""
    z = np.linspace(-reach, reach, points) + 0.00123
    y = targets(loss)
    return np.repeat(z, len(y)), np.tile(y, len(z))


@every
def test_value_is_nonnegative_with_infimum_zero(loss):
    z, y = grid(loss, reach=60.0, points=20001)
    value = loss.value(z, y)
    assert (value >= 0).all()
    for target in targets(loss):
        assert value[y == target].min() < 1e-2


@every
def test_value_is_convex(loss):
    z, y = grid(loss)
    middle = loss.value(z, y)
    for h in (0.01, 0.7, 5.0):
        chord = (loss.value(z - h, y) + loss.value(z + h, y)) / 2
        assert (middle <= chord + 1e-12 * (1 + chord)).all()


@every
def test_derivative_is_a_subgradient(loss):
    z, y = grid(loss)
    for h in (-3.0, -0.1, 0.1, 3.0):
        slack = loss.value(z + h, y) - loss.value(z, y) - h * loss.derivative(z, y)
        assert (slack >= -1e-10).all()


@every
def test_derivative_and_curvature_are_those_of_differences(loss):
    z, y = grid(loss)
    h = 1e-5
    first = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    second = (loss.derivative(z + h, y) - loss.derivative(z - h, y)) / (2 * h)
    smooth = np.abs(second) < 1e3  # differences across a kink say nothing of the curvature
    assert smooth.mean() > 0.95
    assert_allclose(loss.derivative(z, y)[smooth], first[smooth], atol=2e-6)
    assert_allclose(loss.curvature(z, y)[smooth], second[smooth], atol=2e-6)


@every
def test_bounds_hold_and_are_tight(loss):
    z, y = grid(loss, reach=40.0)
    slope, bend = np.abs(loss.derivative(z, y)).max(), loss.curvature(z, y).max()
    assert slope <= loss.lipschitz * (1 + 1e-12)
    assert bend <= loss.smoothness * (1 + 1e-12)
    if np.isfinite(loss.lipschitz):
        assert slope >= 0.999 * loss.lipschitz
    else:
        assert slope > 50
    if np.isfinite(loss.smoothness):
        assert bend >= 0.99 * loss.smoothness


@every
def test_finite_far_out(loss):
    y = targets(loss)
    for z in (-1e4, 1e4):
        for method in (loss.value, loss.derivative, loss.curvature):
            assert np.isfinite(method(np.full_like(y, z), y)).all()


@every
def test_evaluate_is_the_three_together(loss):
    z, y = grid(loss)
    for got, method in zip(
        loss.evaluate(z, y), (loss.value, loss.derivative, loss.curvature), strict=True
    ):
        assert_allclose(got, method(z, y), rtol=1e-12, atol=1e-15)


@every
def test_conjugate_is_the_supremum(loss):
    y = targets(loss)
    z = np.linspace(-200, 200, 400001)
    for alpha in (-0.7, -0.25, 0.0, 0.25, 0.7):
        a = np.full_like(y, alpha)
        got = loss.conjugate(a, y)
        for k, target in enumerate(y):
            terms = alpha * z - loss.value(z, np.full_like(z, target))
            if np.isinf(got[k]):
                assert terms.argmax() in (0, len(z) - 1)
            else:
                assert_allclose(got[k], terms.max(), atol=1e-4)
                assert got[k] >= terms.max() - 1e-9


@every
def test_fenchel_equality_at_the_derivative(loss):
    z, y = grid(loss)
    a = loss.derivative(z, y)
    assert_allclose(loss.value(z, y) + loss.conjugate(a, y), a * z, atol=1e-8)


@every
def test_constant_minimises_the_risk_of_constants(loss):
    y = targets(loss)
    weights = np.linspace(1, 2, len(y))
    weights /= weights.sum()

    def risk(b):
        return weights @ loss.value(np.full_like(y, b), y)

    b = loss.constant(y, weights)
    assert min(risk(c) for c in np.linspace(-10, 10, 2001)) >= risk(b) - 1e-9


@every
@pytest.mark.parametrize("lam", [0.02, 0.06, 0.2, 0.7, 3.0, 50.0])
def test_inner_is_the_supremum_of_the_moved_loss(loss, lam):
    """sup_s l(z + s) - lam s^2/w^2 on a grid of s; infinite if the loss outgrows the price."""
    w = 0.8
    y = np.repeat(targets(loss), 5)
    z = np.tile([-3.0, -0.4, 0.3, 1.7, 5.0], len(targets(loss)))
    found = loss.inner(z, y, w, lam)
    s = np.sinh(np.linspace(-9, 9, 100001))
    for i in range(len(z)):
        gain = loss.value(z[i] + s, np.full_like(s, y[i])) - lam * s**2 / w**2
        best = found.value[:, i].max()
        if np.isinf(best):
            assert gain.argmax() in (0, len(s) - 1)
            continue
        assert_allclose(best, gain.max(), atol=1e-6 * (1 + lam * s[gain.argmax()] ** 2))
        assert best >= gain.max() - 1e-9
        k = found.value[:, i].argmax()
        at = loss.value(z[i] + found.shift[k, i : i + 1], y[i : i + 1])[0]
        assert_allclose(at - lam * found.shift[k, i] ** 2 / w**2, best, atol=1e-9)


@every
@pytest.mark.parametrize("lam", [0.02, 0.06, 0.2, 0.7, 3.0, 50.0])
def test_inner_of_the_base_class_is_that_of_the_formula(loss, lam):
    """The search that a new loss gets by default agrees with the formulas, one w per row."""
    y = np.repeat(targets(loss), 5)
    z = np.tile([-3.0, -0.4, 0.3, 1.7, 5.0], len(targets(loss)))
    w = np.linspace(0.5, 1.2, len(z))
    own = loss.inner(z, y, w, lam).best
    other = losses.Loss.inner(loss, z, y, w, lam).best
    assert_allclose(other.value, own.value, atol=1e-12, rtol=1e-12)


@every
def test_scores_and_slopes_are_inverse_to_each_other(loss):
    z, y = grid(loss)
    if not np.isfinite(loss.smoothness):
        return
    slope = loss.derivative(z, y)
    low, high = loss.slope_range(y)
    assert (low <= slope).all()
    assert (slope <= high).all()
    inside = (loss.curvature(z, y) > 1e-3) & (slope > low) & (slope < high)
    found = loss.score_at(slope[inside], y[inside])
    assert_allclose(found, z[inside], rtol=1e-6, atol=1e-6)


@every
def test_survives_clone_and_pickle(loss):
    for copy in (clone(loss), pickle.loads(pickle.dumps(loss))):
        assert type(copy) is type(loss)
        assert copy.get_params() == loss.get_params()


@every
def test_every_loss_has_a_short_name(loss):
    names = [name for name, kind in losses.KNOWN.items() if kind is type(loss)]
    assert len(names) == 1
    assert type(losses.resolve(names[0], loss.task)) is type(loss)


def test_every_loss_of_the_folder_is_exported():
    def below(kind):
        return {kind} | {k for child in kind.__subclasses__() for k in below(child)}

    own = {
        k.__name__
        for k in below(losses.Loss)
        if k.__module__.startswith("otdro.losses.")
        # the cross-entropy has several scores per row and is reached through "logistic"
        and not k.__module__.endswith((".base", ".piecewise", ".softmax"))
    }
    assert own == set(losses.__all__)


@pytest.mark.parametrize(
    ("loss", "match"),
    [(losses.Huber(M=0.0), "M > 0"), (losses.Quantile(tau=1.0), "0 < tau < 1")],
)
def test_parameters_out_of_range_are_refused(loss, match):
    with pytest.raises(ValueError, match=match):
        loss.value(np.zeros(1), np.zeros(1))
