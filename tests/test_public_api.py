"""The names that other people's code depends on, and what importing them loads."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import otdro
from otdro import DROClassifier, DRORegressor

FIXED = {
    "otdro": "DROClassifier DRORegressor Ball WorstCase discrepancy robust_risk "
    "Audit Drift audit drift",
    "otdro.costs": "Norm Mahalanobis FeatureMap Graph",
    "otdro.losses": "Logistic Hinge SquaredHinge Squared Absolute Huber Quantile",
    "otdro.metrics": "Xing Eigen LogDet GeometricMean Diagonal Robust Learned",
    "otdro.solvers": "Smoothed Quadrature Sinkhorn",
    "otdro.radius": "path theory",
}
NAMES = [(module, name) for module, names in FIXED.items() for name in names.split()]
OPTIONAL = "cvxpy clarabel matplotlib pandas ot torch typer rich skops dask pyarrow"
PARAMETERS = [
    "loss",
    "cost",
    "order",
    "delta",
    "solver",
    "fit_intercept",
    "class_weight",
    "cv",
    "scoring",
    "rule",
    "tolerance",
    "deltas",
    "confidence",
    "n_jobs",
    "random_state",
    "tol",
    "max_iter",
    "verbose",
]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda v: v)
def test_fixed_name(module, name):
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "module", ["otdro", "otdro.losses", "otdro.costs", "otdro.solvers", "otdro.metrics"]
)
def test_everything_listed_exists_and_is_sorted(module):
    loaded = importlib.import_module(module)
    assert all(hasattr(loaded, name) for name in loaded.__all__)
    assert list(loaded.__all__) == sorted(loaded.__all__)


def loaded(code):
    """Return the optional modules that a fresh interpreter has after running the code."""
    code += f"\nimport sys; print(*[m for m in {OPTIONAL.split()!r} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(found.stdout.split())


@pytest.fixture(scope="module")
def baseline():
    """What scikit-learn loads by itself where it is installed (since 1.9: pandas, rich)."""
    return loaded("import sklearn.linear_model")


def test_import_loads_no_optional_dependency(baseline):
    assert loaded("import otdro") <= baseline


def test_fit_and_worst_case_load_no_optional_dependency(baseline):
    code = """
import numpy as np
from otdro import DROClassifier, DRORegressor
X = np.random.default_rng(0).normal(size=(30, 3))
for loss in ("logistic", "hinge", "squared_hinge"):
    DROClassifier(loss, cost="euclidean", delta=0.1).fit(X, X[:, 0] > 0).predict(X)
for loss in ("squared", "absolute", "huber", "quantile"):
    DRORegressor(loss, cost="euclidean", delta=0.1).fit(X, X[:, 0] + X[:, 1] ** 2).worst_case()
"""
    assert loaded(code) <= baseline


def test_parameters_of_the_estimators():
    own = ["multi_class", "label_cost"]
    assert list(inspect.signature(DROClassifier).parameters) == [*PARAMETERS, *own]
    without = [name for name in PARAMETERS if name != "class_weight"]
    assert list(inspect.signature(DRORegressor).parameters) == [*without, "target_cost"]


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_parameters_of_fit(kind):
    fit = inspect.signature(kind.fit).parameters
    assert list(fit) == ["self", "X", "y", "sample_weight", "groups", "support", "unlabelled"]
    assert fit["groups"].kind is fit["support"].kind is inspect.Parameter.KEYWORD_ONLY


def test_fields_of_a_worst_case():
    fields = list(inspect.signature(otdro.WorstCase).parameters)
    assert fields == [
        "points",
        "targets",
        "weights",
        "origin",
        "budget",
        "risk",
        "attained",
        "shortfall",
        "equilibrium",
    ]


def test_parameters_of_the_inspection():
    given = list(inspect.signature(otdro.audit).parameters)
    assert given[:6] == ["model", "X", "y", "cost", "order", "deltas"]
    assert given[6:] == ["tau", "space", "sample_weight", "groups", "new", "random_state"]
    given = list(inspect.signature(otdro.drift).parameters)
    assert given == ["reference", "new", "cost", "order", "model", "random_state"]


def test_version_is_a_version():
    assert otdro.__version__[0].isdigit()


ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(
    script
    for folder in ("benchmarks", "docs", "examples", "experiments")
    for script in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_scripts_import_names_that_exist(script):
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "otdro":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


def test_names_that_are_gone_name_what_replaces_them():
    with pytest.raises(ImportError, match=r"solve_many is gone: .*Exact\(\)\.solve"):
        from otdro.solvers import solve_many  # noqa: F401
    with pytest.raises(ImportError, match=r"experiments/datasets\.py"):
        from otdro import datasets  # noqa: F401
