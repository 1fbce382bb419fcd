"""The package as a user has it: built, installed into an empty environment, and used there."""

import json
import zipfile

import numpy as np
import pytest

from installed import BARE, distributions, environment, run
from pages import PAGES, blocks, extras, script

pytestmark = [pytest.mark.slow, pytest.mark.package]

#: The bars of a core install: megabytes on the disk, and packages, this one among them.
MEGABYTES, PACKAGES = 310, 10

FIT = """
import numpy as np
from otdro import DROClassifier
X = np.random.default_rng(0).normal(size=(60, 3))
model = DROClassifier().fit(X, X[:, 0] > 0)
assert model.score(X, X[:, 0] > 0) > 0.8 and model.worst_case().budget <= model.delta_ + 1e-9
"""
SIZE = """
import sysconfig
from pathlib import Path
site = Path(sysconfig.get_paths()["purelib"])
files = [f for f in site.rglob("*") if f.is_file() and not f.is_symlink()]
bare = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
print(sum(f.stat().st_size for f in files if not f.relative_to(site).parts[0].startswith(bare)))
"""


def packages(python):
    """Return the names of what is installed beside what an empty environment has."""
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json").stdout)
    return {entry["name"].lower() for entry in listed} - BARE


@pytest.mark.parametrize(("named", "kind"), [("", "wheel"), ("cli", "sdist")])
def test_wheel_and_sdist_install_and_fit(named, kind, tmp_path):
    python = environment(named, kind)
    run(python, "-W", "error", "-c", FIT, cwd=tmp_path)


def test_a_core_install_is_small():
    python = environment()
    assert len(packages(python)) <= PACKAGES
    assert int(run(python, "-c", SIZE).stdout) <= MEGABYTES * 1e6


def test_a_core_install_says_what_the_command_line_needs():
    done = run(environment(), "-m", "otdro", "demo", check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "otdro: error: the command line needs typer: pip install 'otdro[cli]'.\n"
    )


def test_the_wheel_holds_the_package_and_the_sdist_is_small():
    held = set(zipfile.ZipFile(distributions()["wheel"]).namelist())
    assert {"otdro/__main__.py", "otdro/py.typed", "otdro/persistence.py"} <= held
    assert "otdro/report/page.css" in held
    assert all(name.startswith("otdro") for name in held)
    assert distributions()["sdist"].stat().st_size <= 5e6


def table(rng, n):
    """Return the lines of a table with a number, a category and a label."""
    x = rng.normal(size=(n, 2))
    labels = np.where(x[:, 0] + 0.5 * rng.normal(size=n) > 0, "yes", "no")
    cities = rng.choice(["Rome", "Oslo"], n)
    rows = zip(*x.T, cities, labels, strict=True)
    return "a,b,city,y\n" + "".join(f"{a:.4f},{b:.4f},{c},{y}\n" for a, b, c, y in rows)


def test_the_extra_cli_is_all_that_the_command_line_needs(tmp_path):
    python = environment("cli", "sdist")
    assert not {"cvxpy", "clarabel", "torch", "dask"} & packages(python)
    rng = np.random.default_rng(0)
    (tmp_path / "old.csv").write_text(table(rng, 80))
    (tmp_path / "new.csv").write_text(table(rng, 40))

    def otdro(*arguments):
        return run(python, "-W", "error", "-m", "otdro", *arguments, cwd=tmp_path).stdout

    saved = ("--save", "m.skops", "--report", "fit.html")
    assert "Verdict" in otdro("fit", "old.csv", "--target", "y", *saved)
    otdro("compare", "old.csv", "--target", "y", "--splits", "2", "--plot", "c.png", "-q")
    assert otdro("predict", "m.skops", "new.csv").startswith("prediction,p_no,p_yes\n")
    asked = ("--target", "y", "--new", "new.csv", "--report", "audit.html", "--json")
    told = json.loads(otdro("audit", "m.skops", "old.csv", *asked))
    assert told["drift"]["estimate"] > 0
    assert "transport cost" in otdro("drift", "old.csv", "new.csv", "--target", "y")
    made = {"fit.html", "audit.html", "c.png", "m.skops"}
    assert all((tmp_path / name).stat().st_size > 1000 for name in made)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name
)
def test_blocks_run_with_just_the_extras_they_name(page, tmp_path):
    run(environment(extras(page)), "-c", script(page), cwd=tmp_path)
