"""Pictures as Display objects: data in, ``plot(ax=...)`` draws, artists are attributes.

No global setting of matplotlib is touched; the caller saves and shows.
"""

from __future__ import annotations

from .bars import DriftDisplay as DriftDisplay
from .bars import PriceDisplay as PriceDisplay
from .bars import comparison as comparison
from .curves import CertifiedAccuracyDisplay as CertifiedAccuracyDisplay
from .curves import CoefficientPathDisplay as CoefficientPathDisplay
from .curves import PathDisplay as PathDisplay
from .curves import StabilityDisplay as StabilityDisplay
from .plane import AdversaryDisplay as AdversaryDisplay
from .plane import BallDisplay as BallDisplay
from .plane import ConfidenceRegionDisplay as ConfidenceRegionDisplay

__all__ = [
    "AdversaryDisplay",
    "BallDisplay",
    "CertifiedAccuracyDisplay",
    "CoefficientPathDisplay",
    "ConfidenceRegionDisplay",
    "DriftDisplay",
    "PathDisplay",
    "PriceDisplay",
    "StabilityDisplay",
    "comparison",
]
