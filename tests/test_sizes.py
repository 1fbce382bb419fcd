"""Files that can be read in one go, and one class per name where the mathematics is solved."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import otdro

SOURCE = Path(otdro.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST = 400
#: The packages (or modules) between the problem and its worst case.
SOLVING = {"solvers", "duality", "worst_case"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_is_longer_than_can_be_read(path):
    assert len(path.read_text().splitlines()) <= LONGEST


def test_no_class_name_twice():
    homes = defaultdict(list)
    for path in FILES:
        place = path.relative_to(SOURCE)
        if place.parts[0].removesuffix(".py") in SOLVING:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(str(place))
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    assert not twice
