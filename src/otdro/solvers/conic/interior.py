r"""Own primal-dual interior-point method for the convex problems that are not smooth.

With alpha the slope of each row's loss, every problem is a saddle problem with quadratic terms
(``interior_rows``); Mehrotra's predictor-corrector solves it in 8 to 25 Newton steps of O(n d^2)
each, with O(n) memory beside X. The bounds of ``interior_bounds`` certify every iterate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...design import Design, mean
from ...losses import Logistic, PiecewiseQuadratic
from ...losses.base import Array
from ...problem import Problem, Solution
from ..base import Method
from .bounds import Floor, constant, floor, nearest, repaired, risk
from .certified import Run, certified, expanded
from .merging import merged
from .model import Model, Saddle, saddle
from .newton_system import Newton

#: Iterations without progress of the gap before the method gives up.
PATIENCE = 12
#: Dense problems of at most this n d^2 take QR steps from the start, where they cost nothing.
SMALL = 1_000_000


@dataclass(frozen=True)
class Interior:
    """Settings of the method: the gap relative to the best constant's risk, and the iterations."""

    tol: float = 1e-9
    max_iter: int = 100

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Minimise the worst-case risk of the problem."""
        return solve(problem, self.tol, self.max_iter, start)


class InteriorPoint(Method):
    """Piecewise quadratic losses under any norm; logistic loss at order 1."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    accepts_zero = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse other losses, and at order 2 curved Lipschitz losses under other norms."""
        loss, ball = problem.loss, problem.ball
        curved = loss.pieces is None or loss.pieces.kappa > 0
        if ball.order == 2 and curved and np.isfinite(loss.lipschitz) and not ball.cost.euclidean:
            return f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve(problem, tol, max_iter, start)


def solve(
    problem: Problem, tol: float = 1e-9, max_iter: int = 100, start: Solution | None = None
) -> Solution:
    """Minimise the worst-case risk to a certified gap of ``tol`` times the best constant's risk."""
    whole, (problem, place) = problem, merged(problem)
    model = formulate(problem)
    b = constant(model)
    zero = np.zeros(model.design.d)
    base = risk(model, model.residual(zero, b), 0.0)
    if base == 0:
        run = Run(zero, b, Floor(0.0, 0.0 * model.c), 1)
    else:
        run = _run(model, b, tol * base, max_iter)
    return expanded(whole, place, certified(problem, model, run, b, tol * base, start))


def formulate(problem: Problem) -> Model:
    """Return the model of a problem whose rows all have weight, features centred."""
    loss, ball = problem.loss, problem.ball
    X, y, pi = problem.X, problem.y, problem.weights
    factor = ball.cost.factor() if ball.cost.euclidean and ball.delta > 0 else None
    design = Design(X, factor, mean(X, pi) if problem.fit_intercept else None)
    if isinstance(loss, Logistic):
        c, o, (lo, hi), kappa = np.zeros_like(y), y, (0.0, 1.0), 0.0
    elif isinstance(loss, PiecewiseQuadratic):
        c, o = loss.residual(np.zeros_like(y), y), loss.orientation(y)
        (lo, hi), kappa = loss.slopes, loss.kappa
    else:
        raise ValueError(
            f"the interior-point method has no rows for {loss!r}; use solver='smoothed'."
        )
    form, rate = _form(problem)
    dual = 2 if ball.cost.euclidean else {1: np.inf, np.inf: 1}[ball.cost.p]
    return Model(
        design, c, o, pi, lo, hi, kappa, rate, form, dual, problem.fit_intercept,
        entropy=isinstance(loss, Logistic), live=_live(design, pi) if rate == 0 else 1.0,
    )  # fmt: skip


def _live(design: Design, pi: Array) -> Array | float:
    """Return 0 at the columns that are constant up to rounding, else 1."""
    if design.center is None:
        return 1.0
    # X'DX - (sum D) c c' of a sparse X rounds at eps c^2, centred rows of a dense one at (eps c)^2
    rounding = 1e-14 if design.sparse else 1e-26
    return np.where(np.diag(design.gram(pi)) > rounding * design.center**2, 1.0, 0.0)


def _form(problem: Problem) -> tuple[str, float]:
    loss, delta, order = problem.loss, problem.ball.delta, problem.ball.order
    if order == 1 and not np.isfinite(loss.lipschitz):
        raise ValueError(f"order=1 needs a Lipschitz loss; {loss!r} is not. Use order=2.")
    if order == 2 and isinstance(loss, Logistic):
        raise ValueError("the interior-point method has the logistic loss at order=1 only.")
    if delta == 0:
        return "plain", 0.0
    if order == 1:
        return "linear", delta * loss.lipschitz
    if isinstance(loss, PiecewiseQuadratic) and loss.kappa == 0 and sum(loss.slopes) == 0:
        # |r| has one slope: min over nu of delta w^2/(2 nu) + nu hi^2/2 = sqrt(delta) hi w
        return "linear", float(np.sqrt(delta)) * loss.lipschitz
    return ("quadratic", delta) if np.isfinite(loss.lipschitz) else ("root", float(np.sqrt(delta)))


def _run(model: Model, b: float, goal: float, max_iter: int) -> Run:
    """Solve a model in scaled units and return the result in its own."""
    unit, slope = _units(model, b)
    inner, basis = _row_space(model.rescaled(b, unit, slope, 1.0))
    size = _size(inner)
    inner = inner.rescaled(0.0, 1.0, 1.0, size)
    inner = replace(inner, noise=4e-16 * inner.sizes())
    if _small(inner.design):
        inner = replace(inner, table=inner.dense(np.arange(inner.design.n)))
    run = iterate(inner, goal / (unit * slope), max_iter)
    theta = run.theta * (unit / size)
    bound = Floor(run.floor.value * unit * slope, run.floor.alpha * slope)
    return replace(
        run, theta=theta if basis is None else basis @ theta, b=b + unit * run.b, floor=bound
    )


def _small(design: Design) -> bool:
    return not design.sparse and design.n * design.d**2 <= SMALL


def _units(model: Model, b: float) -> tuple[float, float]:
    """Return the size of residuals and of slopes at the best constant model."""
    if model.entropy:
        return 1.0, 1.0
    unit = float(model.pi @ np.abs(model.c - model.o * b))
    curved = model.kappa > 0 and model.form != "root"
    return unit, min(model.hi, unit / model.kappa) if curved else 1.0


def _row_space(model: Model) -> tuple[Model, Array | None]:
    """Return the model on the row space of Z, and its basis, if only ||theta||_2 is penalised."""
    n, d = model.design.n, model.design.d
    if model.dual != 2 and model.rate > 0:
        return model, None
    sizes = model.sizes()
    # an SVD would drown the small columns of a tall Z in the rounding of the large ones
    tall = model.design.sparse or n * d**2 > SMALL or sizes.max() > 1e5 * sizes.min()
    if n >= d and tall:
        return model, None
    Z = model.design.dense() * model.live
    # without a penalty columns may be scaled, so that no small one is lost as rounding
    scale = np.linalg.norm(Z, axis=0) if model.rate == 0 else np.ones(d)
    scale[scale == 0] = 1.0
    U, D, Vt = np.linalg.svd(Z / scale, full_matrices=False)
    keep = 4e-16 * max(n, d) * D[0] < D
    keep[0] = True
    basis = Vt[keep].T / scale[:, None]
    return replace(model, design=Design(U[:, keep] * D[keep]), live=1.0), basis


def _size(model: Model) -> float:
    """Return the size of the smallest column of Z that can pay its penalty."""
    sizes = model.sizes()
    sizes = sizes[sizes > 0]
    worth = np.sqrt(model.rate) if model.form == "quadratic" else model.rate
    return float(np.clip(worth, sizes.min(), sizes.max())) if sizes.size else 1.0


def iterate(model: Model, goal: float, max_iter: int) -> Run:
    """Follow the central path of a scaled model until the gap is at most ``goal``.

    A path that strays too far to return is left for one with a heavier barrier on the head rows.
    """
    best, n_iter = _Best(model, goal), 0
    for share in (1 / len(model.c), 1.0, 1e-2, 1e2):
        q = saddle(model)
        if n_iter > 0:
            q.head.share, q.head.first = share, 1.0
        n_iter = _follow_path(q, best, n_iter, max_iter)
        best.finish(q)
        if best.gap <= goal or n_iter >= max_iter:
            break
    return Run(best.theta, best.b, best.floor, n_iter)


def _follow_path(q: Saddle, best: _Best, n_iter: int, max_iter: int) -> int:
    """Take predictor-corrector steps from the start of q; return the iterations spent so far."""
    theta, xi = np.zeros_like(best.theta), q.start.copy()
    best.restart()
    for rows in q.groups:
        rows.locate(theta, xi)
        rows.begin(xi)
    while n_iter < max_iter:
        n_iter += 1
        mu = _linearise(q)
        best.update(q, theta, xi, mu)
        if best.done:
            break
        try:
            dtheta, dxi, step = _direction(q, Newton(q, xi, best.careful), mu)
        except np.linalg.LinAlgError:
            break
        theta, xi = theta + step * dtheta, xi + step * dxi
        for rows in q.groups:
            rows.advance(step)
            rows.locate(theta, xi)
    return n_iter


def _linearise(q: Saddle) -> float:
    """Linearise both groups and return mu, the mean complementarity."""
    for rows in q.groups:
        rows.linearise()
    return _mean_product(q, [rows.products(0.0) for rows in q.groups])


def _mean_product(q: Saddle, products: list[Array]) -> float:
    count = sum(rows.count for rows in q.groups)
    total = sum(rows.total(product) for rows, product in zip(q.groups, products, strict=True))
    return total / count if count > 0 else 0.0


def _direction(q: Saddle, newton: Newton, mu: float) -> tuple[Array, Array, float]:
    """Return Mehrotra's corrected step and its length."""
    for rows in q.groups:
        rows.aim(0.0)
    dtheta, dxi = _follow(q, newton, None)
    step = _length(q, 1.0)
    ahead = _mean_product(q, [rows.products(step) for rows in q.groups])
    sigma = min(1.0, max(ahead / mu, 1e-2) if mu > 0 else 0.0) ** 3
    for rows in q.groups:
        rows.aim(sigma * mu, corrected=True)
    dtheta, dxi = _follow(q, newton, dxi)
    step = _centred(q, _length(q, 0.995))
    if step < 0.1:
        # the second-order terms can mislead far from the path: centre without them
        for rows in q.groups:
            rows.aim(0.5 * mu)
        dtheta, dxi = _follow(q, newton, None)
        step = _centred(q, _length(q, 0.995))
    return dtheta, dxi, step


def _centred(q: Saddle, step: float) -> float:
    """Shorten a step until no product of a pair falls far behind the others, if that can be."""
    shorter = step
    for _ in range(12):
        products = [rows.products(shorter) for rows in q.groups]
        mu = _mean_product(q, products)
        pairs = zip(q.groups, products, strict=True)
        if all(rows.centred(shorter, mu, product) for rows, product in pairs):
            return shorter
        shorter *= 0.8
    return step


def _follow(q: Saddle, newton: Newton, last: Array | None) -> tuple[Array, Array]:
    dtheta, dxi = newton.step(last)
    if not (np.isfinite(dtheta).all() and np.isfinite(dxi).all()):
        raise np.linalg.LinAlgError("the Newton step is not finite")
    for rows in q.groups:
        rows.move(dtheta, dxi)
    return dtheta, dxi


def _length(q: Saddle, fraction: float) -> float:
    return min(1.0, fraction * min(rows.longest() for rows in q.groups))


class _Best:
    """The best point and the best lower bound seen along the path."""

    def __init__(self, model: Model, goal: float) -> None:
        self.model, self.goal = model, goal
        self.theta, self.b, self.upper = np.zeros(model.design.d), 0.0, np.inf
        self.floor = Floor(0.0, np.zeros_like(model.c))
        self.careful = _small(model.design)
        self.restart()

    def restart(self) -> None:
        """Forget the progress, not the bounds."""
        self.marks, self.since = np.full(3, np.inf), 0

    @property
    def gap(self) -> float:
        return self.upper - self.floor.value

    @property
    def done(self) -> bool:
        return self.gap <= self.goal or self.since > PATIENCE

    def update(self, q: Saddle, theta: Array, xi: Array, mu: float) -> None:
        """Bound the optimum from both sides at the iterate."""
        b = float(xi[0]) if self.model.intercept else 0.0
        nu = float(xi[q.names.index("nu")]) if "nu" in q.names else None
        # rounding can leave nu >= 0 behind
        nu = nu if nu is not None and nu > 0 else None
        r = self.model.residual(theta, b)
        upper = risk(self.model, r, self.model.norm(theta), nu)
        if upper < self.upper:
            self.theta, self.b, self.upper = theta, b, upper
        self._raise(q.sample.alpha)
        if mu <= self.goal and self.gap > self.goal:
            self.finish(q)
        # past the goal a smaller mu is no progress
        progress = np.array([self.gap, self.upper, max(mu, 1e-3 * self.goal)])
        self.since = 0 if np.any(progress < 0.9 * self.marks) else self.since + 1
        self.marks = np.minimum(self.marks, progress)
        # a first stall is mostly one of the squared condition of the Newton matrix
        self.careful = self.careful or self.since > 2 or mu <= self.goal

    def _raise(self, alpha: Array) -> None:
        bound = floor(self.model, alpha, 2 * np.abs(self.theta))
        if bound.value > self.floor.value:
            self.floor = bound

    def finish(self, q: Saddle) -> None:
        """Repair the multiplier of the iterate where shrinking it alone leaves too large a gap."""
        # moving g onto its bound costs a share of the penalty, shrinking alpha one of the risk
        for target in nearest(self.model, q.sample.alpha):
            if self.gap > self.goal:
                self._raise(repaired(self.model, q.sample.alpha, target))
