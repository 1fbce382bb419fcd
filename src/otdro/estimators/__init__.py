"""scikit-learn estimators: validate, assemble, solve, store."""

from .classifier import DROClassifier
from .regressor import DRORegressor
from .risk import robust_risk

__all__ = ["DROClassifier", "DRORegressor", "robust_risk"]
