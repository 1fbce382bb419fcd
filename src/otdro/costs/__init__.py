"""Transport costs: a norm, its dual norm and the adversary's direction; one class per file."""

import numpy as np

from .base import Cost as Cost
from .base import Geometry as Geometry
from .callable import CallableCost as CallableCost
from .callable import is_function as is_function
from .feature_map import FeatureMap
from .graph import Graph
from .mahalanobis import Mahalanobis
from .norm import Norm
from .table import CostTable as CostTable

__all__ = ["FeatureMap", "Graph", "Mahalanobis", "Norm"]

#: The short names of costs: the adversary's norm.
KNOWN = {"euclidean": Norm(2), "l1": Norm(1), "linf": Norm(np.inf)}
