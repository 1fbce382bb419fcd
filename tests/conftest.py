"""Settings of the whole suite: hypothesis without randomness or deadlines; shared fixtures."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from streaming import made_rows

settings.register_profile(
    "whole",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("whole"), max_examples=40)


#: What a fit says of a model that says nothing.
CONSTANT = ("every coefficient of the fit", "the model.* is hardly better")


def pytest_collection_modifyitems(items):
    """Let tests of constant models be warned of them; for all others a warning is an error."""
    for item in items:
        marked = item.get_closest_marker("constant_model")
        if marked is not None:
            assert marked.args, f"{item.nodeid}: the mark constant_model needs a reason"
            for text in CONSTANT:
                # before the marks of the test, which overrule it
                mark = pytest.mark.filterwarnings(f"ignore:{text}:UserWarning")
                item.add_marker(mark, append=False)


def pytest_configure(config):
    """Try fewer examples of each property where slow tests are left out."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "whole")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few_penalties(monkeypatch):
    """Let the models that ours is compared with choose among three penalties, not 10 to 50."""
    monkeypatch.setattr("otdro.comparison.STRENGTHS", np.logspace(-2, 1, 3))
    monkeypatch.setattr("otdro.comparison.RIDGE", np.logspace(-1, 2, 3))
    monkeypatch.setattr("otdro.comparison.LASSO", 3)


@pytest.fixture(scope="session")
def rows():
    """The rows, labels and targets of the tests of rows in chunks."""
    return made_rows()


@pytest.fixture
def few_kept(monkeypatch):
    """Of rows in chunks keep few in memory, so that passes over all of them do the work."""
    monkeypatch.setattr("otdro.solvers.streamed.stream.KEPT", 300)


@pytest.fixture(scope="session")
def table():
    """A table with numbers, a category, a flag, an id, missing cells and two targets."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 120
    found = pd.DataFrame(rng.standard_normal((n, 3)), columns=["a", "b", "c"])
    found["city"] = rng.choice(["Rome", "Bonn", "Oslo"], n)
    found["flag"] = rng.random(n) > 0.5
    found["id"] = [f"user{k}" for k in range(n)]
    found["y"] = np.where(found.a + (found.city == "Rome") + 0.3 * found.b > 0.3, "yes", "no")
    found["size"] = 3 * found.a - found.b + 0.1 * rng.standard_normal(n)
    found.loc[3:9, "b"] = np.nan
    found.loc[5, "city"] = None
    return found
