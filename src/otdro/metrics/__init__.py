"""Metric learners: pairs of rows in, a positive definite matrix out; one learner a file."""

from .base import MetricLearner, learn
from .diagonal import Diagonal
from .eigen import Eigen
from .geometric_mean import GeometricMean
from .log_det import LogDet
from .xing import Xing

__all__ = ["Diagonal", "Eigen", "GeometricMean", "LogDet", "Xing"]
