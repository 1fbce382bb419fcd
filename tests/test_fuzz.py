"""Cases that a run of ``fuzz.py`` found to fail, and a few of every kind."""

import pytest

from fuzz import Case, check

#: What failed once, with what went wrong.
KEPT = {
    "the diagonal of a Gram matrix of sparse rows was -1e-17": Case(
        seed=3631, n=29, d=5, integer=True, constant_column=True, sparse=True,
        loss="squared_hinge", cost="l1", order=2, delta=0.001, rule="1se",
    ),
    "weights far apart and interpolated targets divided 0 by 0": Case(
        seed=288, n=6, d=6, duplicated=True, integer=True, constant_column=True, separable=True,
        weights="far apart", loss="huber", cost="learned", order=2, delta=0.0, price=0.1,
    ),
    "a gap was expected at delta = 0 over the least number": Case(
        seed=758, n=22, d=9, offset=1000.0, integer=True, separable=True, sparse=True,
        delta="theory", fit_intercept=False,
    ),
    "a denormal delta overflowed": Case(
        seed=490, n=15, d=5, scale=0.1, offset=1000.0, sparse=True, loss="squared", cost="linf",
        order=2, delta=1e-320, fit_intercept=False, price=1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", KEPT)
@pytest.mark.constant_model
def test_what_failed_once_passes(why):
    check(KEPT[why])
