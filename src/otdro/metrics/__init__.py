"""Metric learners: pairs of rows in, a positive definite matrix out; one learner a file."""

from .base import MetricLearner, learn
from .diagonal import Diagonal
from .eigen import Eigen
from .geometric_mean import GeometricMean
from .learned import Candidate, Learned
from .log_det import LogDet
from .robust import Robust
from .xing import Xing

__all__ = ["Diagonal", "Eigen", "GeometricMean", "Learned", "LogDet", "Robust", "Xing"]
