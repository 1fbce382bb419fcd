"""Drift per column."""


class DriftDisplay:
    """See below."""
