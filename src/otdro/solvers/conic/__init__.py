"""The structured interior point: piecewise quadratic losses, any norm."""

from .active_columns import ActiveColumns as ActiveColumns
from .interior import InteriorPoint as InteriorPoint
