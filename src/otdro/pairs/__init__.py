"""Side information: which pairs of rows belong together and which do not."""

from .making import KINDS as KINDS
from .making import MAX_PAIRS as MAX_PAIRS
from .making import from_graph as from_graph
from .making import from_indices as from_indices
from .making import from_labels as from_labels
from .making import from_target as from_target
from .making import generator as generator
from .making import resolve as resolve
from .making import target_kind as target_kind
from .sets import Listed as Listed
from .sets import NoPairsError as NoPairsError
from .sets import Opposite as Opposite
from .sets import Pairs as Pairs
from .teaching import DIGITS as DIGITS
from .teaching import sketch as sketch
from .teaching import teaching_rows as teaching_rows
from .teaching import unlabelled_rows as unlabelled_rows
