"""Inspection of any linear model: how far its data may move, and how far new data has moved."""

from .auditing import Audit as Audit
from .auditing import audit as audit
from .drifting import Drift as Drift
from .drifting import drift as drift

__all__ = ["Audit", "Drift", "audit", "drift"]
