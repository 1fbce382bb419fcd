"""Euclidean costs: closed form from one spectrum, Newton, Newton jointly in the multiplier."""

from .newton import JointNewton as JointNewton
from .newton import Newton as Newton
from .pieces import Pieces as Pieces
from .spectral import Spectral as Spectral
