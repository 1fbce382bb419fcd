"""The core that every solver shares: multiplier, zero model, chain rule, ties, lower bounds."""

from .bound import Atoms as Atoms
from .bound import lower_bound as lower_bound
from .chain import DualNorm as DualNorm
from .chain import DualRows as DualRows
from .chain import Local as Local
from .chain import Round as Round
from .chain import RowDerivatives as RowDerivatives
from .chain import move_derivatives as move_derivatives
from .labels import priced_risk as priced_risk
from .multiplier import Dual as Dual
from .multiplier import Tangent as Tangent
from .multiplier import best_multiplier as best_multiplier
from .multiplier import best_multipliers as best_multipliers
from .multiplier import first_multiplier as first_multiplier
from .multiplier import least as least
from .multiplier import least_finite as least_finite
from .multiplier import require_lipschitz as require_lipschitz
from .multiplier import rooted as rooted
from .multiplier import worst_risk as worst_risk
from .pairs import Pair as Pair
from .pairs import pair_norms as pair_norms
from .pairs import steepest_pair as steepest_pair
from .zero import ZeroModel as ZeroModel
from .zero import local_threshold as local_threshold
from .zero import threshold as threshold
from .zero import zero_model as zero_model
