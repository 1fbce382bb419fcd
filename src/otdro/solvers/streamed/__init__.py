"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from .folds import Columns as Columns
from .folds import Minima as Minima
from .folds import minimise as minimise
from .newton import Passes as Passes
from .newton import StreamCoordinates as StreamCoordinates
from .newton import StreamedProblem as StreamedProblem
from .newton import together as together
from .order_two import JointStream as JointStream
from .softmax import SoftmaxStream as SoftmaxStream
from .stream import Folds as Folds
from .stream import Stream as Stream
from .stream import opened as opened
from .sums import FencedSums as FencedSums
from .sums import GroupSums as GroupSums
from .sums import HeldSums as HeldSums
from .sums import Models as Models
from .sums import ProfileSums as ProfileSums
from .sums import ScatterSums as ScatterSums
