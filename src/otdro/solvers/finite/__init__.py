"""Finite support and graphs: the adversary moves mass between given nodes.

The interior-point method here is not that of ``conic``. Its constraints are linear in the model
and bent in one level per row, so that the n levels go by a diagonal and a dense system of d + 2
unknowns is left; those of ``conic`` are products of a few scalars shared by all rows and rows that
are cones. Stated as data for one engine, each would lose the elimination that makes it fast.
"""

from .support import FiniteSupport as FiniteSupport
