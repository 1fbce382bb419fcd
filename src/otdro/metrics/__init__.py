"""Metric learners: pairs of rows in, a positive definite matrix out; one learner a file."""

from .base import MetricLearner as MetricLearner
from .base import learn as learn
from .diagonal import Diagonal
from .eigen import Eigen
from .geometric_mean import GeometricMean
from .learned import Candidate as Candidate
from .learned import Learned
from .log_det import LogDet
from .robust import Robust
from .xing import Xing

__all__ = ["Diagonal", "Eigen", "GeometricMean", "Learned", "LogDet", "Robust", "Xing"]
