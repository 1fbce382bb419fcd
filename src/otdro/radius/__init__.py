"""Choosing delta: the whole path, cross-validation, and the robust Wasserstein profile."""

from .grid import Path, path
from .profile import ConfidenceRegion as ConfidenceRegion
from .profile import confidence_region as confidence_region
from .profile import theory
from .selection import Choice as Choice
from .selection import Settings as Settings
from .selection import choose as choose
from .selection import choose_in_chunks as choose_in_chunks

__all__ = ["Path", "path", "theory"]
