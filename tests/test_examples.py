"""Every example runs by itself, without a warning, within its time, and stays short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
#: `make docs`, and so every run of continuous integration, runs those of the gallery as well.
QUICK = ("custom_loss.py",)
TO_RUN = [
    pytest.param(path, marks=[] if path.name in QUICK else [pytest.mark.slow]) for path in EXAMPLES
]
#: 30 seconds on a machine of its own; the tests may run beside others.
LIMIT = 180


@pytest.mark.parametrize("path", TO_RUN, ids=lambda p: p.name)
def test_example_runs_and_writes_no_file(path, tmp_path):
    pytest.importorskip("matplotlib")
    copy = tmp_path / "examples" / path.name
    copy.parent.mkdir()
    copy.write_text(path.read_text())
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    # without a screen there is nothing that plt.show() could do
    quiet = ["-W", "error", "-W", "ignore:FigureCanvasAgg is non-interactive"]
    command = [sys.executable, *quiet, str(copy)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [copy]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 80
