"""Deltas that happened between batches: identities with ``drift``, quantiles, refusals."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from otdro import DROClassifier, drift
from otdro.inspection import Drifts, drifts


def table(months=5, size=40, step=0.0, seed=0):
    rng = np.random.default_rng(seed)
    month = np.repeat(np.arange(months), size)
    X = rng.normal(size=(months * size, 2)) + step * month[:, None] * [1, 0]
    return X, month, np.where(X[:, 1] + 0.5 * rng.normal(size=len(X)) > 0, "yes", "no")


def test_each_step_is_the_drift_from_the_batch_before():
    X, month, y = table(3, step=0.7)
    found = drifts(X, month, y)
    assert isinstance(found, Drifts)
    assert [(step.old, step.new) for step in found.steps] == [("0", "1"), ("1", "2")]
    alone = drift((X[month == 1], y[month == 1]), (X[month == 2], y[month == 2]))
    assert found.steps[1].drift.estimate == alone.estimate
    square = alone.estimate**2 - alone.noise_floor**2
    beyond = [np.sqrt(square), *alone.beyond_noise.values()]
    assert found.deltas[1] == pytest.approx(max(beyond))


@pytest.mark.parametrize("order", [1, 2])
def test_a_shift_is_found_in_its_unit(order):
    X, month, _ = table(4, size=400, step=2.0)
    found = drifts(X, month, order=order)
    # every month moves by 2 in one column; chance is taken off
    assert_allclose(found.deltas ** (1 / order), 2.0, rtol=0.1)
    assert (found.deltas <= [step.drift.estimate for step in found.steps]).all()


@pytest.mark.parametrize("order", [1, 2])
def test_deltas_are_free_of_chance(order):
    """Two batches of one population are at the noise floor; a known shift is recovered."""
    runs = {
        shift: [drifts(*table(2, 120, shift, seed)[:2], order=order).steps[0] for seed in range(31)]
        for shift in (0.0, 0.6)
    }
    share = np.mean([step.drift.estimate > step.drift.noise_floor for step in runs[0.0]])
    assert 0.25 < share < 0.75
    deltas = {s: np.median([step.delta for step in steps]) for s, steps in runs.items()}
    assert deltas[0.0] ** (1 / order) < 0.15
    assert deltas[0.6] ** (1 / order) == pytest.approx(0.6, abs=0.1)


def test_quantiles_are_deltas_that_happened():
    X, month, _ = table(6)
    X[month == 3] += 1.0
    found = drifts(X, month)
    assert found.quantile(1.0) == found.deltas.max()
    for level in (0.2, 0.5, 0.8):
        assert np.mean(found.deltas <= found.quantile(level)) >= level
        assert found.quantile(level) in found.deltas
    told = found.to_dict()
    assert told["quantiles"]["0.5"] == found.quantile(0.5)
    assert [step["new"] for step in told["steps"]] == list("12345")
    assert f"100% within {found.quantile(1):.4g}" in str(found)
    # a line of the table is a batch, and two numbers on its drift have two names
    assert "happened to 5 batches" in str(found)
    assert "delta: the larger of the transport cost and of the lower bound" in str(found)


def test_sites_are_compared_with_all_others_and_a_model_gives_the_unit():
    X, site, y = table(3)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = DROClassifier(cost="euclidean", delta=0.05).fit(frame, y)
    found = drifts(frame, site, y, ordered=False, model=model)
    assert [step.old for step in found.steps] == ["all others"] * 3
    assert found.steps[0].drift.cost is model.cost_
    assert found.steps[0].drift.n_reference == 80
    assert found.steps[0].drift.verdict is not None


def test_small_batches_are_left_out_and_named():
    X, month, _ = table(3)
    month = month.copy()
    month[:5] = 9
    found = drifts(X, month)
    assert len(found.steps) == 2
    assert "1 batches of fewer than 20 rows are left out, as 9" in str(found)
    with pytest.raises(ValueError, match="needs two batches of 20 rows or more, and 0 of the 120"):
        drifts(X, np.arange(120))
