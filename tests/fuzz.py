"""Random fits of every kind: each ends in a certified result, a warning or an error in words.

    python tests/fuzz.py --seconds 600 --seed 0

A failure is printed as the case that repeats it; add it to ``test_fuzz.py``, which runs the same
checks on the cases kept there.
"""

import argparse
import sys
import time
import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from otdro import DROClassifier, DRORegressor, metrics, robust_risk
from otdro.costs import FeatureMap, Graph, Mahalanobis, Norm

CLASSIFICATION = ("logistic", "hinge", "squared_hinge")
REGRESSION = ("squared", "absolute", "huber", "quantile")
NORMS = ("euclidean", "l1", "linf", "learned", "norm3", "mahalanobis")
LEARNERS = ("Association", "Blend", "Diagonal", "Eigen", "GeometricMean", "LogDet", "Robust")
LEARNERS += ("Spectral", "Xing")
COSTS = (*NORMS, *NORMS, *LEARNERS, "feature map", "graph")
#: Losses of other models may fall below the certified bound by this much, relative: rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """A fit: the shape and kind of its rows, and its parameters."""

    seed: int = 0
    n: int = 12
    d: int = 3
    classes: int = 2
    scale: float = 1.0
    offset: float = 0.0
    uneven: float = 0.0
    duplicated: bool = False
    integer: bool = False
    constant_column: bool = False
    separable: bool = False
    sparse: bool = False
    weights: str = "none"
    groups: bool = False
    loss: str = "logistic"
    cost: str = "euclidean"
    order: object = "auto"
    delta: object = 0.1
    fit_intercept: bool = True
    price: float = np.inf
    rule: str = "auto"


def rows(case):
    """Return X, y and the arguments of fit."""
    rng = np.random.default_rng(case.seed)
    X = rng.standard_normal((case.n, case.d))
    if case.integer:
        X = np.round(X)
    if case.duplicated:
        X = X[rng.integers(0, max(1, case.n // 3), case.n)]
    if case.constant_column:
        X[:, 0] = 1.0
    noise = 0.0 if case.separable else rng.logistic(size=case.n)
    z = X @ rng.standard_normal(case.d) + noise
    X = (X + case.offset) * case.scale * 10.0 ** (case.uneven * rng.uniform(-1, 1, case.d))
    if case.loss in REGRESSION:
        y = z
    else:
        cuts = np.quantile(z, np.linspace(0, 1, case.classes + 1)[1:-1])
        y = np.searchsorted(cuts, z)
    extra = {}
    if case.weights != "none":
        weights = rng.uniform(0.1, 2, case.n)
        if case.weights == "zeros":
            weights[rng.uniform(size=case.n) < 0.3] = 0.0
        elif case.weights == "far apart":
            weights = 10.0 ** rng.uniform(-8, 8, case.n)
        extra["sample_weight"] = weights
    if case.groups:
        extra["groups"] = np.arange(case.n) % 3
    return (csr_array(X) if case.sparse else X), y, extra


def estimator(case):
    """Return the estimator of a case."""
    cost = case.cost
    if cost == "norm3":
        cost = Norm(3)
    elif cost == "mahalanobis":
        A = np.random.default_rng(case.seed).standard_normal((case.d, case.d))
        cost = Mahalanobis(A @ A.T + np.eye(case.d))
    elif cost == "feature map":
        cost = FeatureMap()
    elif cost == "graph":
        cost = Graph()
    elif cost == "Blend":
        cost = metrics.Blend([metrics.Spectral(), metrics.Diagonal()])
    elif cost in LEARNERS:
        cost = getattr(metrics, cost)()
    kind = DRORegressor if case.loss in REGRESSION else DROClassifier
    price = "target_cost" if case.loss in REGRESSION else "label_cost"
    return kind(
        case.loss,
        cost=cost,
        order=case.order,
        delta=case.delta,
        fit_intercept=case.fit_intercept,
        cv=3,
        rule=case.rule,
        **{price: case.price},
    )


def check(case):
    """Fit a case and check what comes back; return how it ended, in a word."""
    X, y, extra = rows(case)
    model = estimator(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y, **extra)
        except ValueError as error:
            sentence = str(error)
            assert len(sentence) > 20 and "Traceback" not in sentence, repr(sentence)
            return "refused"
    known = (ConvergenceWarning, UserWarning)
    for warning in caught:
        assert issubclass(warning.category, known), (warning.category, str(warning.message))
    told = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    gap, risk = np.atleast_1d(model.gap_), np.atleast_1d(model.robust_risk_)
    plain = np.atleast_1d(model.empirical_risk_)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(risk).all()
    assert (gap >= 0).all()
    assert np.isfinite(gap).all() or told, gap
    assert (risk >= plain - ROUNDING * (1 + np.abs(plain))).all(), (risk, plain)
    # the risk under a graph or a feature map depends on the rows that the fit saw
    local = case.cost in ("feature map", "graph")
    if case.classes == 2 and not extra and not local and np.isfinite(gap).all():
        _no_model_is_better(case, model, X, y, float(gap[0]), float(risk[0]))
    return "warned" if told else "certified"


def _no_model_is_better(case, model, X, y, gap, risk):
    """Check that models near the solution and far from it do not undercut the certificate."""
    rng = np.random.default_rng(case.seed)
    targets = y if case.loss in REGRESSION else np.where(y == 1, 1.0, -1.0)
    coef, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    own = robust_risk(X, targets, coef, b, model.loss_, model.ball_)
    dense = X.toarray() if case.sparse else X
    # the sum of the terms of a score is rounded: by 5 units in its last place
    terms = float(np.max(np.abs(dense) @ np.abs(coef)))
    size = 1 + abs(risk) + 5 * np.finfo(float).eps * terms / ROUNDING
    assert own <= risk + ROUNDING * size, (own, risk)
    assert own >= risk - gap - ROUNDING * size, (own, risk, gap)
    largest = np.abs(dense).max(axis=0)
    spread = 1 / np.where(largest > 0, largest, 1.0)
    for length in (1e-6, 1e-3, 0.1, 1.0):
        move = rng.standard_normal(len(coef)) * length * np.maximum(np.abs(coef), 0.1 * spread)
        shift = rng.standard_normal() * length if case.fit_intercept else 0.0
        for factor in (1.0, 1 - length / 2):
            other = robust_risk(
                X, targets, factor * coef + move, b + shift, model.loss_, model.ball_
            )
            assert other >= risk - gap - ROUNDING * size, (other, risk, gap, length)


@st.composite
def cases(draw):
    """Draw a case; small shapes and plain rows come first when a failure is shrunk."""
    loss = draw(st.sampled_from(CLASSIFICATION + REGRESSION))
    folds = draw(st.sampled_from(["given", "given", "given", "cv", "theory"]))
    delta = folds
    if folds == "given":
        delta = draw(st.sampled_from([0.1, 0.0, 1e-3, 1.0, 1e-8, 1e3, 1e-320]))
    return Case(
        seed=draw(st.integers(0, 10_000)),
        n=draw(st.integers(2, 40)),
        d=draw(st.integers(1, 12)),
        classes=draw(st.sampled_from([2, 2, 2, 3])) if loss in CLASSIFICATION else 2,
        scale=10.0 ** draw(st.integers(-12, 12)) if draw(st.booleans()) else 1.0,
        offset=draw(st.sampled_from([0.0, 0.0, 1.0, 1e3, 1e6])),
        uneven=draw(st.sampled_from([0.0, 0.0, 1.0, 4.0])),
        duplicated=draw(st.booleans()),
        integer=draw(st.booleans()),
        constant_column=draw(st.booleans()),
        separable=draw(st.booleans()),
        sparse=draw(st.booleans()),
        weights=draw(st.sampled_from(["none", "none", "uneven", "zeros", "far apart"])),
        groups=draw(st.booleans()) and delta == "cv",
        loss=loss,
        cost=draw(st.sampled_from(COSTS)),
        order=draw(st.sampled_from(["auto", 1, 2])),
        delta=delta,
        fit_intercept=draw(st.booleans()),
        price=draw(st.sampled_from([np.inf, np.inf, 1.0, 0.1])),
        rule=draw(st.sampled_from(["auto", "min", "1se", "tolerance"])),
    )


def run(seconds, first_seed, batch=200):
    """Check random cases in batches until the time is over.

    Return the counts by ending, the failed cases with their errors, and the slowest case.
    """
    counts = {"certified": 0, "warned": 0, "refused": 0}
    failed = []
    slowest, begun, number = (0.0, None), time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:

        @seed(first_seed * 1_000_000 + number)
        @settings(
            max_examples=batch,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases())
        def one(case):
            nonlocal slowest
            if time.perf_counter() - begun > seconds:
                return
            at = time.perf_counter()
            try:
                counts[check(case)] += 1
            except Exception as error:
                failed.append((case, error))
            slowest = max(slowest, (time.perf_counter() - at, case), key=lambda pair: pair[0])

        one()
        number += 1
    return counts, failed, slowest


def main():
    """Run for the time asked for and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts, failed, (longest, case) = run(asked.seconds, asked.seed)
    for wrong, error in failed:
        print(f"{type(error).__name__}: {error}\n  {wrong}")
    print(", ".join(f"{count} {word}" for word, count in counts.items()), f"{len(failed)} failed")
    print(f"longest: {longest:.1f} s, {case}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
