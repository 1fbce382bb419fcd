"""Environments of their own, into which the package is installed as a user would.

They are kept in a temporary folder (``OTDRO_ENVIRONMENTS`` names another) for as long as the
requirements of ``pyproject.toml`` stay the same: only the package itself is installed anew.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from functools import cache
from pathlib import Path

from pages import ROOT

#: What every environment has before a package is installed.
BARE = {"pip", "setuptools"}


def folder() -> Path:
    """Return where the environments are; every worker of a parallel run has its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    name = f"otdro-environments-{os.getuid()}{worker}"
    return Path(os.environ.get("OTDRO_ENVIRONMENTS", Path(tempfile.gettempdir()) / name))


def run(*command, cwd=None, check=True, code=0):
    """Run a command as a user would, without this repository on the path; return its result."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"MPLBACKEND": "Agg", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != code:
        raise AssertionError(f"{command} left with {done.returncode}: {done.stderr[-3000:]}")
    return done


def kept(name: str, *packages: object) -> Path:
    """Return the Python of an environment with these packages, made anew where it is outdated."""
    place = folder() / f".venv-{name}"
    python, stamp = place / "bin" / "python", place / "requirements"
    if not stamp.exists() or stamp.read_text() != requirements():
        venv.create(place, with_pip=True, clear=True)
        run(python, "-m", "pip", "install", "--quiet", *packages)
        stamp.write_text(requirements())
    return python


@cache
def distributions() -> dict[str, Path]:
    """Return the wheel and the sdist of this repository, built once a run."""
    python = kept("build", "build")
    out = Path(tempfile.mkdtemp(prefix="otdro-dist-"))
    run(python, "-m", "build", "--outdir", out, ROOT)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@cache
def environment(extras: str = "", kind: str = "wheel") -> Path:
    """Return the Python of an environment with the package and these extras, nothing else."""
    package = distributions()[kind]
    python = kept(extras.replace(",", "-") or "core", f"{package}[{extras}]" if extras else package)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", package)
    return python


def requirements() -> str:
    """Return what decides whether an environment is still good."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str((sys.version, project["dependencies"], project["optional-dependencies"]))
