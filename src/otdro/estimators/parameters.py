"""The documentation of what the two estimators share, written once and shown in full by both."""

from __future__ import annotations

from inspect import cleandoc
from typing import TypeVar

Estimator = TypeVar("Estimator")

MODEL = """
cost : str, Cost, array, metric learner or callable, default="learned"
    What a move costs the adversary: a distance, taken to the power ``order``.

    - "euclidean", "l1" or "linf": a norm of the move in the units of the columns. The penalty is
      its dual norm, so "linf" gives the lasso-type one.
    - "learned": a blend of the Euclidean cost, ``Spectral``, ``GeometricMean`` and
      ``Association``, weighted by what the folds say of each; ``cost_.weights_`` tells.
      ``Learned`` has other candidates, and ``how="choose"``. Where X has more than 2,000 columns,
      or more than 256 and more than rows, ``GeometricMean`` is left out, and where the rows hold
      nothing to learn from it is the Euclidean cost; ``message_`` says so.
    - a Cost of ``otdro.costs``, e.g. ``Mahalanobis(matrix)``, ``FeatureMap()`` or ``Graph``; the
      matrix of ``Mahalanobis`` is used as given.
    - a symmetric positive definite array: the same as ``Mahalanobis`` of it.
    - a metric learner of ``otdro.metrics``, or any object whose ``fit(X, y)`` leaves
      ``components_`` or ``get_mahalanobis_matrix()``; it is fitted to the rows, and again inside
      every fold.
    - a function c(u, x) of two arrays of rows that returns the costs: the cost itself.
order : {1, 2, "auto"}, default="auto"
    The power of the distance that is the cost. 1 needs a Lipschitz loss. "auto" is 1 for Lipschitz
    losses with a norm as cost, else 2.
delta : float >= 0, "cv" or "theory", default="cv"
    The bound on the mean cost of the move from the sample to any distribution of the ball, in the
    units of the cost (squared units of the columns at order 2); 0 is plain empirical risk. "cv"
    chooses it by folds and ``rule``, "theory" by the robust Wasserstein profile at ``confidence``.
    A number with ``cost="learned"`` leaves only the cost to the folds.
solver : {"auto", "exact", "smoothed", "quadrature", "sinkhorn"} or Solver, default="auto"
    Who solves. "auto" is exact, or stochastic where the cost is a function. An object of
    ``otdro.solvers`` keeps its own settings, and ``tol`` and ``max_iter`` must be set in it.
fit_intercept : bool, default=True
    Whether the score has an intercept b; without one b = 0.
"""

CHOICE = """
cv : int, splitter, iterable of splits or None, default=5
    The folds that choose ``delta`` and the cost. An int makes that many shuffled folds, stratified
    by label, of whole groups where ``fit`` gets ``groups``, and repeated three times for up to 120
    rows under the rule "auto"; fewer where rows, members of a class or groups are fewer. None is
    scikit-learn's default of five.
scoring : str, callable or None, default=None
    The score of a model on the test rows of a fold, more is better; None is minus the mean of the
    own loss, by the weights of the fit. A scorer gets the ``sample_weight`` of the test rows if
    ``fit`` was given one and the scorer takes it; ``class_weight`` is for training only, as in
    scikit-learn.
rule : {"auto", "smoothed", "min", "1se", "profile", "worst"}, default="auto"
    How fold scores become a delta: "min" takes the best mean score, "1se" the largest delta within
    one standard error of it, "profile" a multiple of the noise in the coefficients, "smoothed"
    (which "auto" stands for) the least smoothed out-of-fold loss with the profile as prior. None
    of these but "min" and "1se" is moved far by one bad row. "worst" minimises the loss of the
    worst environment, and needs ``groups``; "auto" then divides the number of rows by how alike
    those of an environment are, so that the prior weighs more.
deltas : array-like of shape (m,) or None, default=None
    The grid of deltas that "cv" tries, sorted; None: 20 deltas from the least one at which the
    coefficients are zero, geometrically down.
confidence : float in (0, 1), default=0.95
    The probability with which the ball of ``delta="theory"``, and the confidence region, cover the
    true coefficients.
n_jobs : int or None, default=None
    Folds solved at the same time, as in joblib; None is 1.
random_state : int, RandomState or None, default=None
    Shuffles the folds, and seeds a stochastic solver. None is a fixed seed: fits repeat bit for
    bit whatever numpy's global generator holds.
tol : float >= 0, default=1e-6
    The gap at which a solver stops, relative to the risk of the best constant model.
max_iter : int >= 1, default=1000
    Iterations after which a solver stops with a ConvergenceWarning.
verbose : bool, default=False
    Whether to show the progress of folds and solver on standard error: the INFO lines of the
    logger "otdro".
"""

ATTRIBUTES = """
loss_ : Loss
    The loss that was fitted.
ball_ : Ball
    The ball of distributions: cost, delta and order.
cost_ : Cost
    The cost of the ball. A learned one has ``comparison_``, what was tried, and a blend
    ``weights_``, a dict from each candidate to its share.
delta_ : float
    The bound on the mean cost, as given or chosen; one for all classes.
path_ : Path
    Only where folds chose: ``deltas`` (m,) descending, and along them, the deltas always the first
    axis, ``coef`` (m, d), ``intercept``, ``empirical_risk``, ``robust_risk`` and ``gap`` (m,); of
    more than two classes ``coef`` is (m, K, d), ``intercept`` (m, K), and for one-vs-rest so are
    the others. Then the fold scores ``score_mean`` and ``score_se`` (m,) (larger is better; None if
    no folds could be made), ``candidates``, one entry for each cost tried, and ``environments``,
    where ``fit`` got groups: their ``names`` (G,), ``counts`` (G,) and mean out-of-fold ``losses``
    (G, m).
n_iter_ : int
    Iterations of the solver, at least 1; the most of any class.
n_features_in_ : int
    The number of columns.
feature_names_in_ : ndarray of shape (n_features,)
    The names of the columns, where X had names that are all strings.
"""

MARKERS = {"<model>": MODEL, "<choice>": CHOICE, "<attributes>": ATTRIBUTES}


def documented(estimator: type[Estimator]) -> type[Estimator]:
    """Put the shared parts in the place of their markers in the docstring of a class."""
    text = cleandoc(estimator.__doc__ or "")
    for marker, part in MARKERS.items():
        text = text.replace(marker, part.strip())
    estimator.__doc__ = text
    return estimator
