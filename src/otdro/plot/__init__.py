"""Pictures as Display objects: data in, ``plot(ax=...)`` draws, artists are attributes.

No global setting of matplotlib is touched; the caller saves and shows.
"""

from __future__ import annotations

from .displays import AdversaryDisplay as AdversaryDisplay
from .displays import BallDisplay as BallDisplay
from .displays import CertifiedAccuracyDisplay as CertifiedAccuracyDisplay
from .displays import CoefficientPathDisplay as CoefficientPathDisplay
from .displays import ConfidenceRegionDisplay as ConfidenceRegionDisplay
from .displays import DriftDisplay as DriftDisplay
from .displays import PathDisplay as PathDisplay
from .displays import PriceDisplay as PriceDisplay
from .displays import StabilityDisplay as StabilityDisplay
from .displays import comparison as comparison

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
