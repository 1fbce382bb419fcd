"""Costs that are no norm: linearised near each row, then by ascent."""

from .linearised import Linearised as Linearised
from .minimise import InnerAscent as InnerAscent
