"""The package: what its extras carry; ``test_installed`` builds and installs it."""

import contextlib
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import otdro

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(requirements):
    return {r.split(">")[0].split("[")[0].lower() for r in requirements}


def test_extras():
    assert names(PROJECT["dependencies"]) == {"numpy", "scipy", "scikit-learn", "joblib"}
    assert names(EXTRAS["cli"]) == {
        "typer",
        "rich",
        "pandas",
        "pyarrow",
        "skops",
        "matplotlib",
        "pot",
    }
    assert "torch" not in str(EXTRAS["all"])
    assert otdro.__version__ == "0.3.0"


def closure(name, wanted, found):
    """Add the names of all that ``name[wanted]`` requires, as far as it is installed here."""
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in wanted or {""}):
            continue
        key = (requirement.name.lower(), frozenset(requirement.extras))
        if key not in found:
            found.add(key)
            with contextlib.suppress(metadata.PackageNotFoundError):
                closure(requirement.name, requirement.extras, found)


def test_all_brings_no_torch():
    found = set()
    closure("otdro", {"all"}, found)
    names = {name for name, _ in found}
    assert {"numpy", "cvxpy", "typer"} <= names
    assert not [name for name in names if name.startswith(("torch", "nvidia"))]
