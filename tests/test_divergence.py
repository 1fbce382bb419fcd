"""How the stochastic solver ends when it goes astray, and what a verbose run shows."""

import logging

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from otdro import DROClassifier
from otdro.losses import Logistic
from otdro.solvers import Smoothed


def data(signal=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, np.where(signal * X[:, 0] + rng.logistic(size=60) > 0, "yes", "no")


def astray(solver, why, advice, signal=1.0, **settings):
    """Fit, and check the warning, the advice and that all numbers are finite."""
    X, y = data(signal)
    fixed = {"order": 2, "delta": 0.05, "cost": "euclidean"}
    model = DROClassifier(**{**fixed, **settings}, solver=solver)
    with pytest.warns(ConvergenceWarning, match=why) as caught:
        model.fit(X, y)
    assert any(advice in str(w.message) for w in caught)
    for value in (model.coef_, model.intercept_, model.robust_risk_, model.multiplier_):
        assert np.isfinite(value).all()
    return model


@pytest.mark.parametrize("stopping", ["statistical", "paper"])
def test_lam_at_its_bound(stopping):
    solver = Smoothed(lam_min=20.0, stopping=stopping, random_state=0)
    astray(solver, "left lam at its bound", "lower lam_min")


class Cliff(Logistic):
    """A loss that is no number at scores beyond the ones that are checked first."""

    edge = 3.5

    def value(self, z, y):
        return np.where(np.abs(z) < self.edge, super().value(z, y), np.nan)

    def derivative(self, z, y):
        return np.where(np.abs(z) < self.edge, super().derivative(z, y), np.nan)

    def evaluate(self, z, y):
        value, slope, bend = super().evaluate(z, y)
        inside = np.abs(z) < self.edge
        return np.where(inside, value, np.nan), np.where(inside, slope, np.nan), bend


def test_a_loss_that_stops_being_a_number():
    astray(Smoothed(random_state=0), "not finite", "raise eps", 6.0, delta=1e-3, loss=Cliff())


def test_verbose_shows_its_lines_and_leaves_no_trace(capsys):
    X, y = data()
    logger = logging.getLogger("otdro")
    before = (logger.level, logger.propagate, list(logger.handlers))
    quiet, loud = (
        DROClassifier(
            cost="euclidean",
            order=2,
            delta=0.05,
            solver=Smoothed(M=32, L=8, random_state=0, verbose=verbose),
        )
        for verbose in (False, True)
    )
    quiet.fit(X, y)
    assert capsys.readouterr().err == ""
    loud.fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("smoothed: step") for line in lines)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    np.testing.assert_array_equal(quiet.coef_, loud.coef_)


@pytest.mark.slow
def test_verbose_goes_through_the_users_logging(caplog, capsys):
    X, y = data()
    model = DROClassifier(order=2, delta=0.05, solver=Smoothed(random_state=0, verbose=True))
    with caplog.at_level(logging.INFO, logger="otdro"):
        model.fit(X, y)
    assert "smoothed: step" in caplog.text
    assert capsys.readouterr().err == ""
