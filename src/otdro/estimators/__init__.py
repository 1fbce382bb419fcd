"""scikit-learn estimators: validate, assemble, solve, store."""

from .base import robust_risk
from .classifier import DROClassifier
from .regressor import DRORegressor

__all__ = ["DROClassifier", "DRORegressor", "robust_risk"]
