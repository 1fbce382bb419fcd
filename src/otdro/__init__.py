"""Distributionally robust machine learning whose uncertainty is shaped by the data."""

from .certificate import WorstCase, discrepancy
from .estimators import DROClassifier, DRORegressor, robust_risk
from .problem import Ball

__version__ = "0.1.0"

__all__ = ["Ball", "DROClassifier", "DRORegressor", "WorstCase", "discrepancy", "robust_risk"]
