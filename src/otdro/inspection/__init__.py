"""What a linear model stands: how far its data may move, and how far new data has moved."""

from .auditing import audit as audit
from .certificate import Audit as Audit
from .drifting import Drift as Drift
from .drifting import drift as drift

__all__ = ["Audit", "Drift", "audit", "drift"]
