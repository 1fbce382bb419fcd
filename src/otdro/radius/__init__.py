"""Choosing delta: the whole path, cross-validation, and the robust Wasserstein profile."""

from .grid import Path, Sample, path
from .profile import theory
from .region import ConfidenceRegion, confidence_region
from .selection import Choice, Settings, choose

__all__ = ["Path", "path", "theory"]
