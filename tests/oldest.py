"""The lowest versions that pyproject.toml declares, as pip constraints.

python tests/oldest.py > constraints.txt
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
#: Tools that check the code and build the site, which no test of behaviour runs.
TOOLS = {"mypy", "ruff", "scipy-stubs", "sphinx"}


def constraints():
    """Return ``name==version`` of every dependency that declares a lowest version."""
    declared = list(PROJECT["dependencies"])
    for extra, requirements in PROJECT["optional-dependencies"].items():
        declared += requirements if extra not in ("docs", "torch") else []
    lowest = {}
    for requirement in declared:
        match = re.fullmatch(r"([\w-]+)(\[\w+\])?>=([\d.]+)", requirement)
        if match and match[1] not in TOOLS:
            lowest[match[1]] = match[3]
    return [f"{name}=={version}" for name, version in sorted(lowest.items())]


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints()) + "\n")
