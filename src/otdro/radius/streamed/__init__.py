"""The ball of a fit to rows in chunks."""

from .choosing import StreamedChoice, choose, lacks
from .grouping import group_folds

__all__ = ["StreamedChoice", "choose", "group_folds", "lacks"]
