"""The README's example prints what the README says; every block of Python in the pages runs."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
#: Makes an import of what a core install lacks fail.
CORE = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        lacking = {"pandas", "typer", "rich", "skops", "matplotlib", "ot", "pyarrow"}
        if name.split(".")[0] in lacking:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
"""


#: What the pages speak of without making it: rows of before and after, and a model of them.
GIVEN = """
import numpy as np
from otdro import DROClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "yes", "no")
hospital = np.resize(["va", "city"], 60)
X_old, y_old, X_test, y_test, X_new, y_new = X, y, X, y, X[:30] + 0.1, y[:30]
model = DROClassifier(cost="euclidean", order=2, delta=0.01).fit(X, y)
"""


def example():
    return re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README.read_text(), re.S).groups()


def test_the_example_prints_what_the_readme_shows():
    code, shown = example()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    # the gap is a rounding-level certificate: everything else must agree to the digit
    mask = re.compile(r"gap \S+")
    assert mask.sub("gap", printed.getvalue()) == mask.sub("gap", shown)


def test_the_example_runs_on_a_core_install():
    code, _ = example()
    done = subprocess.run(
        [sys.executable, "-c", CORE + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda p: p.name)
def test_blocks_of_python_run(page, tmp_path):
    """The blocks of a page in order, as one script in an empty folder."""
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        return
    done = subprocess.run(
        [sys.executable, "-c", GIVEN + "\n".join(blocks)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_readme_is_one_screen_and_its_links_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 120
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / link).exists(), link
