"""scikit-learn estimators: validate, assemble, solve, store."""

from typing import TYPE_CHECKING

from ..first_use import at_first_use
from .classifier import DROClassifier
from .regressor import DRORegressor

if TYPE_CHECKING:
    from .risk import robust_risk

__getattr__ = at_first_use(__name__, {"robust_risk": "risk"})

__all__ = ["DROClassifier", "DRORegressor", "robust_risk"]
