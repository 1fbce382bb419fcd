"""The README's example prints what the README says; every block of Python in the pages runs."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

from pages import PAGES, README, blocks, script

#: Pages whose blocks take seconds; tests/test_installed.py runs those of all pages in CI.
QUICK = ("choosing", "start", "output", "mix", "classes_and_labels", "custom")
TO_RUN = [
    pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.slow])
    for page in PAGES[1:]
    if blocks(page)
]
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


@pytest.mark.parametrize("page", TO_RUN, ids=lambda p: p.name)
def test_blocks_of_python_run(page, tmp_path):
    """The blocks of a page in order, as one script in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-c", script(page)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_readme_is_one_screen_and_its_links_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 90
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / link).exists(), link
