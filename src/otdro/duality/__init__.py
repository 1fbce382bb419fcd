"""The core that every solver shares: multiplier, zero model, chain rule, lower bounds."""

from .multiplier import Dual as Dual
from .multiplier import Tangent as Tangent
from .multiplier import best_multiplier as best_multiplier
from .multiplier import first_multiplier as first_multiplier
from .multiplier import least as least
from .multiplier import least_finite as least_finite
from .multiplier import require_lipschitz as require_lipschitz
from .multiplier import rooted as rooted
from .multiplier import worst_risk as worst_risk
