"""The pictures of the pages, drawn by the examples.

python docs/figures.py [folder]      (default: docs/figures)
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
#: The picture of each example that a page shows.
PICTURES = ("ball", "audit", "displays", "figure_1a", "figure_1b")

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "figures"
folder.mkdir(parents=True, exist_ok=True)
for name in PICTURES:
    runpy.run_path(str(HERE.parent / "examples" / f"plot_{name}.py"))
    plt.savefig(folder / f"{name}.png", dpi=100, bbox_inches="tight")
    plt.close("all")
