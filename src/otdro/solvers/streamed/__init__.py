"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from .batch import Minima, minimise
from .columns import Columns
from .joint import JointStream, solve_joint
from .newton import StreamedProblem, solve
from .passes import Passes, together
from .priced import PricedStream, solve_priced
from .profile_sums import ProfileSums
from .reading import Folds
from .softmax import SoftmaxStream, solve_softmax
from .stream import Stream, opened
from .sums import FencedSums, GroupSums, HeldSums, Models, ScatterSums

__all__ = [
    "Columns",
    "FencedSums",
    "Folds",
    "GroupSums",
    "HeldSums",
    "JointStream",
    "Minima",
    "Models",
    "Passes",
    "PricedStream",
    "ProfileSums",
    "ScatterSums",
    "SoftmaxStream",
    "Stream",
    "StreamedProblem",
    "minimise",
    "opened",
    "solve",
    "solve_joint",
    "solve_priced",
    "solve_softmax",
    "together",
]
