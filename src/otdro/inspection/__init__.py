"""Inspection of any linear model: how far its data may move, how far new data has moved, and how
much its predictions depend on the rows that were drawn."""

from .auditing import Audit as Audit
from .auditing import audit as audit
from .bootstrap import Stability as Stability
from .bootstrap import stability as stability
from .drifting import Drift as Drift
from .drifting import Drifts as Drifts
from .drifting import drift as drift
from .drifting import drifts as drifts

__all__ = ["Audit", "Drift", "Drifts", "Stability", "audit", "drift", "drifts", "stability"]
