"""How the gallery saves figures."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt


def tight(gallery: Any, file: str) -> None:
    """Save figures whole: titles and legends may stand beyond the edge of the canvas."""
    plt.rcParams["savefig.bbox"] = "tight"
