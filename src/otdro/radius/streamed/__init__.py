"""The ball of a fit to rows in chunks."""

from .choosing import choose, lacks
from .grouping import group_folds

__all__ = ["choose", "group_folds", "lacks"]
