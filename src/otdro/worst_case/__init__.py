"""The least favourable distribution of a model over its ball, and the discrepancy D_c."""

from .adversary import WorstCase as WorstCase
from .adversary import risk_of_scores as risk_of_scores
from .adversary import robust_risk_of as robust_risk_of
from .adversary import worst_case as worst_case
from .discrepancy import discrepancy as discrepancy
