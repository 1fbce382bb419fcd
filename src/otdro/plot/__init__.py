"""Pictures as Display objects: data in, ``plot(ax=...)`` draws, artists are attributes.

No global setting of matplotlib is touched; the caller saves and shows.
"""

from __future__ import annotations

from .charts import CertifiedAccuracyDisplay as CertifiedAccuracyDisplay
from .charts import CoefficientPathDisplay as CoefficientPathDisplay
from .charts import DriftDisplay as DriftDisplay
from .charts import PathDisplay as PathDisplay
from .charts import PriceDisplay as PriceDisplay
from .charts import StabilityDisplay as StabilityDisplay
from .charts import comparison as comparison
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
