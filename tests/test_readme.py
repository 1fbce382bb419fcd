"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_prints_what_the_readme_shows():
    text = README.read_text()
    code, shown = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", text, re.S).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    # the gap is a rounding-level certificate: everything else must agree to the digit
    mask = re.compile(r"gap \S+")
    assert mask.sub("gap", printed.getvalue()) == mask.sub("gap", shown)


def test_the_readme_is_one_screen_and_its_links_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 120
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / link).exists(), link
