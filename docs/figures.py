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
#: The examples whose pictures pages show.
PICTURES = (
    "ball/plot_ball",
    "new_data/plot_audit",
    "ball/plot_displays",
    "support/plot_figure_1a",
    "cost/plot_figure_1b",
)


def stack(figure):
    """Put two panels beside each other below each other, so that a phone shows them legibly."""
    figure.set_layout_engine("none")
    figure.set_size_inches(4.6, 9.8)
    for axes, bottom in zip(figure.axes, (0.58, 0.12), strict=True):
        axes.set_position((0.1, bottom, 0.88, 0.4))
        axes.tick_params(labelleft=True)
    [legend] = figure.legends
    entries = {"handles": legend.legend_handles, "labels": [t.get_text() for t in legend.texts]}
    legend.remove()
    figure.legend(**entries, loc="lower center", ncols=2, frameon=False)


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "figures"
folder.mkdir(parents=True, exist_ok=True)
for example in PICTURES:
    name = example.split("plot_")[1]
    runpy.run_path(str(HERE.parent / "examples" / f"{example}.py"))
    plt.savefig(folder / f"{name}.png", dpi=100, bbox_inches="tight")
    if name == "ball":
        stack(plt.gcf())
        plt.savefig(folder / "ball_phone.png", dpi=100, bbox_inches="tight")
    plt.close("all")
