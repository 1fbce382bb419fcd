"""The package: what its extras carry, and a wheel that builds."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

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
    assert otdro.__version__ == "0.2.0"


@pytest.mark.slow
def test_wheel_builds_and_holds_the_package(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "-w", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"otdro/__main__.py", "otdro/persistence.py", "otdro/report/page.css"} <= held
    assert not [name for name in held if name.startswith(("tests", "docs"))]
