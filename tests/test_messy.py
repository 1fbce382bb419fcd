"""Messy tables are read as docs/cli.md says: none is misread in silence."""

from pathlib import Path

import numpy as np
import pytest

from messy import TABLES

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

from otdro.cli.errors import UserError  # noqa: E402
from otdro.cli.options import Learning  # noqa: E402
from otdro.cli.preparing import prepared  # noqa: E402

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"


@pytest.mark.parametrize("name", TABLES)
def test_a_messy_table_is_read_as_the_page_says(name, tmp_path):
    content, what, said, used = TABLES[name]
    file = tmp_path / "t.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    options = Learning(data=str(file), target="y")
    if what == "refused":
        with pytest.raises(UserError) as error:
            prepared(options)
        assert said in str(error.value)
        return
    data = prepared(options)
    assert used is None or list(data.X.columns) == used.split()
    assert said in " ".join(data.notes)
    assert said or not data.notes
    # what is written as a number is a number
    assert data.kinds.get("a") != "texts"


def test_the_tables_are_as_many_as_the_page_says():
    assert f"({len(TABLES)} such tables: `tests/messy.py`)" in PAGE.read_text()


@pytest.mark.slow
def test_a_million_rows(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.standard_normal(1_000_000).round(3)
    pd.DataFrame({"a": a, "y": a > 0}).to_csv(tmp_path / "t.csv", index=False)
    assert len(prepared(Learning(data=str(tmp_path / "t.csv"), target="y")).y) == 1_000_000
