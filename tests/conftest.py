"""Settings of the whole suite: hypothesis without randomness or deadlines; fixtures of commands."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "whole",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("whole"), max_examples=40)


def pytest_configure(config):
    """Try fewer examples of each property where slow tests are left out."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "whole")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
