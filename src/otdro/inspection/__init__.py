"""What a linear model stands: how far its data may move, and how far new data has moved."""

from .auditing import Audit as Audit
from .auditing import audit as audit

__all__ = ["Audit", "audit"]
