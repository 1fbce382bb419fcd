"""A default fit enters the packages in the order of the picture in docs/design.md."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import otdro
from otdro import DROClassifier, DRORegressor

SOURCE = Path(otdro.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "design.md"
#: Packages that call the rest, and those that a fit does not need.
CALLERS = {"estimators", "radius", "inspection", "comparison", "plot", "report", "cli"}
ON_DEMAND = {"worst_case"}


def picture():
    """Return the pairs (before, after) of packages that arrows of the picture connect."""
    block = re.search(r"```\n(X, y.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert block, "docs/design.md has no picture"
    lines = block.group(1).splitlines()
    first = re.findall(r"[a-z_]+", lines[0].split("─┐")[0].removeprefix("X, y"))
    second = re.findall(r"[a-z_]+", lines[1])
    # costs and losses both go into the problem, which stands after losses in the second line
    assert second[0] == "losses"
    assert second[1] == "problem"
    return [*pairwise(first), (first[-1], second[1]), *pairwise(second)]


def entered(fit):
    """Return the packages of otdro in the order in which a call first enters their functions."""
    order = []

    def trace(frame, event, arg):
        name = frame.f_code.co_filename
        # names that are looked up and settings that are stored carry no data
        empty = frame.f_code.co_name in ("resolve", "__init__")
        if event != "call" or not name.startswith(str(SOURCE)) or empty:
            return
        package = Path(name).relative_to(SOURCE).parts[0].removesuffix(".py")
        if package not in order:
            order.append(package)

    sys.setprofile(trace)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return order


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_a_default_fit_goes_the_way_of_the_picture(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    z = X @ [1.0, -1.0, 0.5] + rng.normal(size=40)
    y = z if kind is DRORegressor else np.where(z > 0, 1, -1)
    order = entered(lambda: kind().fit(X, y))
    for before, after in picture():
        if not {before, after} & (CALLERS | ON_DEMAND):
            assert before in order, f"a default fit never enters {before}"
            assert after in order, f"a default fit never enters {after}"
            assert order.index(before) < order.index(after), (before, after, order)


def test_the_picture_names_packages():
    for pair in picture():
        for name in pair:
            assert (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file(), name


def test_every_idea_of_the_core_has_one_home():
    """The homes that docs/design.md names exist, and no other function has the name."""
    homes = dict(re.findall(r"\| (`[a-z_]+`) \| `([a-z_/.]+)` \|", PAGE.read_text()))
    assert {"`least`", "`threshold`", "`inner`", "`minimise`", "`derivatives`"} <= set(homes)
    for name, place in homes.items():
        source = (SOURCE / place).read_text()
        assert f"def {name.strip('`')}(" in source, (name, place)
