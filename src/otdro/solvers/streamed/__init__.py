"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from .batch import Columns, Minima, minimise
from .joint import JointStream, solve_joint
from .newton import StreamedProblem, solve
from .passes import Passes, together
from .reading import Folds
from .stream import Stream, opened
from .sums import FencedSums, GroupSums, Models, ProfileSums, ScatterSums

__all__ = [
    "Columns",
    "FencedSums",
    "Folds",
    "GroupSums",
    "JointStream",
    "Minima",
    "Models",
    "Passes",
    "ProfileSums",
    "ScatterSums",
    "Stream",
    "StreamedProblem",
    "minimise",
    "opened",
    "solve",
    "solve_joint",
    "together",
]
