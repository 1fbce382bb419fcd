"""The ball of a fit to rows in chunks."""

from .choosing import StreamedChoice, choose, lacks

__all__ = ["StreamedChoice", "choose", "lacks"]
