"""Choosing delta: the whole path, cross-validation, and the robust Wasserstein profile."""

from ..problem import Sample as Sample
from .grid import Path, path
from .profile import theory
from .region import ConfidenceRegion as ConfidenceRegion
from .region import confidence_region as confidence_region
from .selection import choose as choose
from .trials import Settings as Settings

__all__ = ["Path", "path", "theory"]
