"""The structured interior point: piecewise quadratic losses, any norm."""

from .interior import InteriorPoint as InteriorPoint
from .l1_penalty import ActiveColumns as ActiveColumns
