"""Every cost with every loss, order, choice of delta and shape of data: certified, or refused.

Each case ends within ``SECONDS`` of processor time in a finite model whose certificate holds, or in
a ``ValueError`` whose message says what to do instead. There is no list of exceptions.

The certificate is checked from outside the solver:

* above: ``robust_risk`` of the model, computed anew, is ``robust_risk_`` to the gap;
* below: the worst case is a distribution within the budget, both computed here from points and
  weights, and its risk is ``robust_risk_`` to its shortfall;
* optimal: no model tried has a worst-case risk below ``robust_risk_ - gap_``: steps against the
  gradient of the worst case's risk, shorter coefficients, random neighbours, the constant model.

All pairs of values of two factors occur in ``make test``, all triples in ``make test-all``.
"""

import time
import warnings
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from otdro import DROClassifier, DRORegressor, costs, losses, metrics, robust_risk
from otdro.costs import FeatureMap, Graph, Mahalanobis

#: Seconds of processor time that a case may take.
SECONDS = 20.0
#: The default of ``tol``: a gap is at most this share of the risk of the best constant model.
TOL = 1e-6
#: A refusal names a remedy if it has one of these words.
REMEDIES = ("use ", "pass ", "give ", "raise ", "choose ", "set ", "fit ", "drop ", "add ")

LEARNERS = {
    name: metrics.Blend([metrics.Spectral(), metrics.GeometricMean(), "euclidean"])
    if name == "Blend"
    else getattr(metrics, name)()
    for name in metrics.__all__
}
FACTORS = {
    "cost": (
        *costs.KNOWN,
        *(name for name in costs.__all__ if name not in ("Norm", "FeatureMap")),
        *LEARNERS,
        "FeatureMap",
        *(f"FeatureMap({name})" for name in LEARNERS if name != "Learned"),
    ),
    "shape": ("30x5", "300x3", "40x30", "60x300", "sparse", "three classes", "weights", "groups"),
    "loss": tuple(losses.KNOWN),
    "order": ("auto", 1, 2),
    # the expensive last: they are taken only where they cover something new
    "delta": ("given", "theory", "folds"),
}


class Case(NamedTuple):
    """A value of each factor."""

    cost: str
    shape: str
    loss: str
    order: object
    delta: str

    def __str__(self):
        return "-".join(map(str, self))


def covering(strength):
    """Return cases in which every ``strength`` values of different factors occur together.

    All values of the first factors together, the others chosen to cover the most; then what is
    left, a case for each.
    """
    values = list(FACTORS.values())
    subsets = list(combinations(range(len(values)), strength))
    missing = {
        (subset, chosen) for subset in subsets for chosen in product(*(values[i] for i in subset))
    }

    def covered(case):
        return {(subset, tuple(case[i] for i in subset)) for subset in subsets} & missing

    # the expensive pair of folds and the widest shape, at a cheap cost
    cases = [Case("euclidean", "60x300", "logistic", "auto", "folds")]
    missing -= covered(cases[0])
    for first in product(*values[:strength]):
        case = max(
            (first + rest for rest in product(*values[strength:])), key=lambda c: len(covered(c))
        )
        missing -= covered(case)
        cases.append(Case(*case))
    while missing:
        subset, chosen = min(missing, key=repr)
        case = [options[0] for options in values]
        for i, value in zip(subset, chosen, strict=True):
            case[i] = value
        missing -= covered(tuple(case))
        cases.append(Case(*case))
    return cases


PAIRS = covering(2)


class Data(NamedTuple):
    """Rows as they are given, the arguments of a fit, and rows of equal weight as an array."""

    X: object
    y: np.ndarray
    extra: dict
    rows: np.ndarray
    targets: np.ndarray


@cache
def data(shape, task):
    """Return the sample of a shape."""
    rng = np.random.default_rng(0)
    n, d = map(int, shape.split("x")) if "x" in shape else (40, 4)
    X = rng.normal(size=(n, d))
    if shape == "sparse":
        X *= rng.random(size=X.shape) < 0.5
    z = X[:, 0] - X[:, 1] + 0.5 * X[:, 2] + rng.logistic(size=n)
    if shape == "three classes":
        y = np.digitize(z, np.quantile(z, [0.4, 0.7])).astype(float)
    else:
        y = z if task == "regression" else np.where(z > np.median(z) - 0.3, 1.0, -1.0)
    extra = {}
    repeats = np.ones(n, dtype=int)
    if shape == "weights":
        repeats = rng.integers(1, 4, size=n)
        extra["sample_weight"] = repeats.astype(float)
    if shape == "groups":
        extra["groups"] = np.arange(n) % 8
    given = sparse.csr_array(X) if shape == "sparse" else X
    return Data(given, y, extra, np.repeat(X, repeats, axis=0), np.repeat(y, repeats))


def cost_of(name, d):
    """Return the value of the parameter ``cost``."""
    if name == "Mahalanobis":
        A = np.random.default_rng(1).normal(size=(d, d)) / np.sqrt(d) + 1.5 * np.eye(d)
        return Mahalanobis(A @ A.T)
    if name == "Graph":
        return Graph(k=8)
    if name.startswith("FeatureMap"):
        learner = name.removeprefix("FeatureMap").strip("()")
        return FeatureMap(metric=LEARNERS[learner] if learner else None, linearised=True)
    return LEARNERS.get(name, name)


def fit(case):
    """Return the fitted model of a case, with what it warned of."""
    task = losses.KNOWN[case.loss].task
    sample = data(case.shape, task)
    kind = DROClassifier if task == "classification" else DRORegressor
    model = kind(
        case.loss,
        cost=cost_of(case.cost, sample.rows.shape[1]),
        order=case.order,
        delta={"given": 0.05, "folds": "cv", "theory": "theory"}[case.delta],
        cv=2,
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(sample.X, sample.y, **sample.extra)
    return model, [
        w for w in caught if issubclass(w.category, (ConvergenceWarning, RuntimeWarning))
    ]


class Part(NamedTuple):
    """One problem of a model: a class against the rest, or all of it."""

    coef: np.ndarray
    intercept: object
    y: np.ndarray
    risk: float
    gap: float
    class_: object


def parts(model, y):
    """Yield the problems that a model solved."""
    softmax = model.loss_.outputs > 1
    risks, gaps = np.ravel(model.robust_risk_), np.ravel(model.gap_)
    if softmax:
        yield Part(model.coef_, model.intercept_, y, risks[0], gaps[0], None)
        return
    coefs, intercepts = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    several = len(coefs) > 1
    for k, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
        class_ = model.classes_[k] if several else None
        own = np.where(y == class_, 1.0, -1.0) if several else y
        yield Part(coef, float(intercept), own, risks[k], gaps[k], class_)


def loss_value(loss, z, y):
    """Return the losses of scores; of K scores a row the cross-entropy."""
    if loss.outputs == 1:
        return loss.value(z, y)
    shifted = z - z.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y.astype(int)]


def move_prices(cost, worst, X, order):
    """Return the price of every move of a worst case."""
    U, x = worst.points, X[worst.origin]
    if cost.geometry == "finite":
        # moves are to rows of X
        to = np.abs(U[:, None] - X[None]).sum(axis=2).argmin(axis=1)
        assert np.array_equal(X[to], U)
        return cost.distance_to_nodes(X, None)[worst.origin, to] ** order
    if cost.geometry == "local":
        A = cost.shape(X)[worst.origin]
        return np.einsum("nd,nde,ne->n", U - x, A, U - x)
    return cost.norm(U - x) ** order


def gradient(loss, worst, part):
    """Return the gradient in (coef, intercept) of the risk under the worst case."""
    U, y, w = worst.points, worst.targets, worst.weights
    z = U @ np.transpose(part.coef) + part.intercept
    if loss.outputs == 1:
        slope = (w * loss.derivative(z, y))[:, None]
    else:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y.astype(int)] -= 1
        slope = w[:, None] * p
    return (slope.T @ U).reshape(np.shape(part.coef)), slope.sum(axis=0)


def other_models(loss, worst, part):
    """Yield models that could be better than the one fitted."""
    push, shift = gradient(loss, worst, part)
    size = np.linalg.norm(part.coef) or 1.0
    steepness = np.sqrt(np.sum(push**2) + np.sum(shift**2)) or 1.0
    move = 1e-3 * size / steepness
    intercept = part.intercept - move * (shift if loss.outputs > 1 else shift[0])
    yield part.coef - move * push, intercept
    yield 0.98 * part.coef, part.intercept
    rng = np.random.default_rng(0)
    noise = rng.normal(size=np.shape(part.coef)) / np.sqrt(np.size(part.coef))
    yield part.coef + 1e-3 * size * noise, part.intercept


def constant_risk(loss, y, outputs):
    """Return the risk of the best constant model, which no cost changes."""
    if outputs > 1:
        share = np.bincount(y.astype(int)) / len(y)
        return float(-share @ np.log(share))
    b = loss.constant(y, np.full(len(y), 1 / len(y)))
    return float(loss.value(np.full(len(y), b), y).mean())


def check(model, case):
    """Check the certificate of a fitted model from outside."""
    sample = data(case.shape, losses.KNOWN[case.loss].task)
    X, ball, loss = sample.rows, model.ball_, model.loss_
    for part in parts(model, sample.targets):
        assert np.isfinite(part.coef).all()
        assert np.isfinite(part.intercept).all()
        assert np.isfinite(part.risk)
        assert part.gap >= 0
        slack = 1e-9 * (1 + abs(part.risk))

        def risk(coef, intercept, y=part.y):
            return robust_risk(X, y, coef, intercept, loss, ball)

        constant = constant_risk(losses.KNOWN[case.loss](), part.y, loss.outputs)
        assert part.gap <= 1.001 * TOL * constant + slack
        assert constant >= part.risk - part.gap - slack
        own = risk(part.coef, part.intercept)
        assert part.risk - part.gap - slack <= own <= part.risk + slack
        worst = model.worst_case(part.class_)
        given = sample.X.toarray() if case.shape == "sparse" else sample.X
        prices = move_prices(ball.cost, worst, given, ball.order)
        budget = float(worst.weights @ prices)
        assert budget <= ball.delta * (1 + 1e-6) + 1e-12
        assert abs(budget - worst.budget) <= 1e-6 * (1 + ball.delta)
        z = worst.points @ np.transpose(part.coef) + part.intercept
        reached = float(worst.weights @ loss_value(loss, z, worst.targets))
        assert abs(reached - worst.risk) <= 1e-6 * (1 + abs(part.risk))
        assert own - worst.shortfall - 1e-6 * (1 + abs(own)) <= reached
        assert reached <= own + 1e-6 * (1 + abs(own))
        for coef, intercept in other_models(loss, worst, part):
            assert risk(coef, intercept) >= part.risk - part.gap - slack


def certified_or_refused(case):
    """Fit a case; check its certificate or its refusal, and the time that it took."""
    start = time.process_time()
    refusal = None
    try:
        model, alarms = fit(case)
    except ValueError as error:
        refusal = str(error)
    if refusal is None:
        assert not alarms, [str(alarm.message) for alarm in alarms]
        check(model, case)
    else:
        assert any(word in refusal.lower() for word in REMEDIES), f"no remedy: {refusal}"
    assert time.process_time() - start <= SECONDS


@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_pairs(case):
    certified_or_refused(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in covering(3) if c not in set(PAIRS)], ids=str)
def test_triples(case):
    certified_or_refused(case)
