"""Every example runs by itself, without a warning, within its time, and stays short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: 30 seconds on a machine of its own; the tests may run beside others.
LIMIT = 180


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path, tmp_path):
    pytest.importorskip("matplotlib")
    # a copy beside a docs folder of its own: examples write figures next to themselves
    copy = tmp_path / "examples" / path.name
    copy.parent.mkdir()
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    copy.write_text(path.read_text())
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(copy)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 80
