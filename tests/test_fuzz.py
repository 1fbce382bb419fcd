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
    "a gap of 0 at an excess of 1.6e-3: the least risk is at infinity": Case(
        seed=757, n=5, d=1, uneven=1.0, integer=True, delta=0.0, fit_intercept=False,
    ),
    "the same with an intercept and sparse rows": Case(
        seed=5083, n=28, d=1, scale=1e-08, uneven=1.0, integer=True, sparse=True, cost="linf",
        delta=0.0,
    ),
    "the same in fewer dimensions than columns": Case(
        seed=11, n=11, d=10, scale=1e11, duplicated=True, constant_column=True,
        cost="Association", delta=0.0, fit_intercept=False,
    ),
    "a LinAlgError where all slopes are 0 under a feature map": Case(
        seed=0, n=20, d=1, uneven=4.0, duplicated=True, integer=True, constant_column=True,
        separable=True, sparse=True, weights="zeros", loss="absolute", cost="feature map",
        delta=1e-8,
    ),
    "a LinAlgError where features are 1e26": Case(
        seed=7, n=8, d=8, scale=1e7, offset=1e6, uneven=1.0, duplicated=True, integer=True,
        constant_column=True, sparse=True, weights="uneven", loss="hinge", cost="feature map",
        order=2, delta=1.0, fit_intercept=False,
    ),
    "the risk of a plain squared fit was refused at order 1": Case(
        seed=1, n=10, d=1, offset=1.0, duplicated=True, integer=True, constant_column=True,
        loss="squared", cost="mahalanobis", order=1, delta=0.0,
    ),
    "a mean loss of 2,278 above a risk of .54: the intercept lost digits": Case(
        seed=81, n=17, d=5, scale=100.0, offset=1e6, duplicated=True, integer=True, loss="huber",
        cost="graph", order=1, delta=1e-3,
    ),
    "40 s of cutting planes that no longer lowered the gap": Case(
        seed=3, n=3, d=11, scale=1e11, offset=1e3, uneven=4.0, duplicated=True,
        constant_column=True, sparse=True, weights="zeros", loss="quantile", cost="Eigen",
        delta=1e-8, fit_intercept=False, price=1.0,
    ),
    "a slack of 0 in a logarithm under a label price": Case(
        seed=1, n=2, d=1, offset=1e6, duplicated=True, integer=True, constant_column=True,
        sparse=True, weights="far apart", cost="mahalanobis", price=1.0,
    ),
    "0 divided by 0 in a stopped search under a label price": Case(
        seed=32, n=3, d=3, scale=0.1, offset=1e6, uneven=1.0, duplicated=True, sparse=True,
        weights="zeros", loss="squared_hinge", cost="Blend", order=2, delta=1e-3, price=1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", KEPT)
@pytest.mark.constant_model("cases at random")
def test_what_failed_once_passes(why):
    check(KEPT[why])
