"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from .batch import Minima as Minima
from .batch import minimise as minimise
from .columns import Columns as Columns
from .newton import StreamCoordinates as StreamCoordinates
from .newton import StreamedProblem as StreamedProblem
from .order_two import JointStream as JointStream
from .passes import Passes as Passes
from .passes import together as together
from .priced import PricedStream as PricedStream
from .reading import Folds as Folds
from .softmax import SoftmaxStream as SoftmaxStream
from .stream import Stream as Stream
from .stream import opened as opened
from .sums import FencedSums as FencedSums
from .sums import GroupSums as GroupSums
from .sums import HeldSums as HeldSums
from .sums import Models as Models
from .sums import ProfileSums as ProfileSums
from .sums import ScatterSums as ScatterSums
