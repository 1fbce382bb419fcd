"""Metric learners: pairs of rows in, a positive definite matrix out; one learner per file."""

from .association import Association
from .base import Metric as Metric
from .base import MetricLearner as MetricLearner
from .base import learn as learn
from .blend import Blend
from .diagonal import Diagonal
from .eigen import Eigen
from .geometric_mean import GeometricMean
from .learned import Learned
from .log_det import LogDet
from .robust import Robust
from .spectral import Spectral
from .xing import Xing

__all__ = [
    "Association",
    "Blend",
    "Diagonal",
    "Eigen",
    "GeometricMean",
    "Learned",
    "LogDet",
    "Robust",
    "Spectral",
    "Xing",
]
