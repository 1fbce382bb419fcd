"""Pictures as Display objects: data in, ``plot(ax=...)`` draws, artists are attributes.

No global setting of matplotlib is touched; the caller saves and shows.
"""

from __future__ import annotations

from .adversary import AdversaryDisplay as AdversaryDisplay
from .ball import BallDisplay as BallDisplay
from .certified import CertifiedAccuracyDisplay as CertifiedAccuracyDisplay
from .coefficients import CoefficientPathDisplay as CoefficientPathDisplay
from .comparison import comparison as comparison
from .drift import DriftDisplay as DriftDisplay
from .path import PathDisplay as PathDisplay
from .prices import PriceDisplay as PriceDisplay
from .region import ConfidenceRegionDisplay as ConfidenceRegionDisplay

__all__ = [
    "AdversaryDisplay",
    "BallDisplay",
    "CertifiedAccuracyDisplay",
    "CoefficientPathDisplay",
    "ConfidenceRegionDisplay",
    "DriftDisplay",
    "PathDisplay",
    "PriceDisplay",
    "comparison",
]
