"""Distributionally robust machine learning whose uncertainty is shaped by the data."""

__version__ = "0.1.0"
