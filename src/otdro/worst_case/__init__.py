"""The least favourable distribution of a model over its ball, and the discrepancy D_c."""

from .best_response import WorstCase as WorstCase
from .best_response import risk_of_scores as risk_of_scores
from .discrepancy import discrepancy as discrepancy
from .equilibrium import robust_risk_of as robust_risk_of
from .equilibrium import worst_case as worst_case
