"""The code blocks of README and docs, and the extras that a page names above them.

``python tests/pages.py FILE`` prints the blocks of Python and of the shell as one shell script.
"""

import re
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]

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


def blocks(page: Path, language: str = "python") -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.S | re.M)


def extras(page: Path) -> str:
    """Return the extras that ``otdro[...]`` names above the last block of Python."""
    above = page.read_text().rpartition("```python\n")[0]
    named = re.findall(r"otdro\[([a-z,]+)\]", above)
    return ",".join(sorted({extra for group in named for extra in group.split(",")}))


def script(page: Path) -> str:
    """Return the blocks of Python of a page as one script; those of README stand by themselves."""
    return ("" if page == README else GIVEN) + "\n".join(blocks(page))


def shell(page: Path) -> str:
    """Return the blocks in their order as a shell script; neighbours in Python are one program."""
    found = re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.S | re.M)
    lines = []
    for language, group in groupby(found, key=lambda block: block[0]):
        code = "\n".join(text for _, text in group)
        lines.append(
            code if language == "sh" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(shell(Path(sys.argv[1])))
