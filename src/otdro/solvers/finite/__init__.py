"""Finite support and graphs: the adversary moves mass between given nodes."""

from .support import FiniteSupport as FiniteSupport
