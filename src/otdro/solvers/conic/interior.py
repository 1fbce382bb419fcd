r"""Primal-dual interior point for the convex problems that are not smooth, under any norm.

With alpha the slope of each row's loss, every problem is a saddle problem with quadratic terms
(``saddle``, ``risk``). This module reads from top to bottom as a solution is made: the problem
becomes a ``Model`` over distinct rows, in units near 1; its central path is followed by Mehrotra's
steps, 8 to 25 of them at O(n d^2) each, every iterate bounded from both sides; a norm known by
``dual_norm`` and ``direction`` alone is met by cuts; and the best point is certified.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from ...costs import Cost
from ...design import Design, as_dense, mean
from ...duality import EQUAL, Dual, balance, require_lipschitz, worst_risk
from ...losses.base import Array
from ...problem import Problem, Solution
from ..exact import Method, constant_solution, verdict
from ..predictor_corrector import corrected_step, follow
from .risk import (
    CutNorm,
    EuclideanNorm,
    Form,
    Joint,
    Linear,
    MaxNorm,
    PenaltyNorm,
    Pieces,
    Root,
    RotatedNorm,
    Slopes,
    Smooth,
    SumNorm,
)
from .saddle import (
    REFINEMENTS,
    TOO_SHORT,
    Iterate,
    Orthogonal,
    Rows,
    Saddle,
    SaddleEquations,
    Scalar,
    coefficients,
    stacked,
)

log = logging.getLogger("otdro")

#: A score beyond which a constant model of one class has no loss to speak of.
CERTAIN = 40.0
#: Entries of X up to which rows are merged and ordered, which copies X.
MERGE_UP_TO = 500_000
#: Rounding errors of a sum, relative to the size of its terms.
ROUNDING = 2 * float(np.finfo(float).eps)
#: Rows from which the size of a column is taken.
SAMPLED = 500
#: Dense problems of at most this n d^2 take QR steps from the start, where they cost nothing.
SMALL = 1_000_000
#: Columns whose sizes differ by more keep their own coordinates: an SVD would lose the small ones.
SPREAD = 1e5
#: Rows that many times larger than outlying ones get coordinates of their own.
LARGE = 1e3
#: A row that many times larger than is usual is outlying.
UNUSUAL = 5.0
#: Iterations without progress of the gap before the method gives up.
PATIENCE = 12
#: Iterations without progress before the Newton steps take the QR.
FIRST_STALL = 2
#: Progress is a fall by this factor.
PROGRESS = 0.9
#: A corrected step after which the mean product has grown by more is worse too.
GROWTH = 10.0
#: Directions of Z that the free multipliers settle less than this share of the best are left.
SETTLED = 1e-7
#: The steps of differences of ``direction``, relative to a coefficient, and the least of these,
#: relative to the largest.
DIFFERENCE = 1e-4
#: Differences to both sides that are that much apart, relative to their size, meet a kink.
KINK = 0.5
#: A master is solved to this share of the gap so far: its minimiser only suggests cuts.
LOOSE = 1e-2
#: Cuts with a smaller share of the multipliers have no part in the curvature.
ACTIVE = 1e-3
#: Coefficients below this share of the largest are tried as zeros if the norm leaves zeros.
NEGLIGIBLE = 1e-6


class InteriorPoint(Method):
    """Piecewise quadratic losses, and at order 1 smooth ones, under any norm."""

    geometries = frozenset({"euclidean", "norm"})
    accepts_zero = True
    moves_targets = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse other losses, and at order 2 curved Lipschitz losses under other norms."""
        loss, ball = problem.loss, problem.ball
        name = type(loss).__name__
        if ball.delta == 0 or ball.order == 1:
            smooth = np.isfinite(loss.smoothness) and np.isfinite(loss.lipschitz)
            if loss.pieces is None and not smooth:
                return f"{name} is neither piecewise quadratic nor smooth and Lipschitz"
            return None
        curved = loss.pieces is None or loss.pieces.kappa > 0
        if curved and np.isfinite(loss.lipschitz) and not ball.cost.euclidean:
            return f"order=2 with {name} needs a Euclidean or Mahalanobis cost"
        if loss.pieces is None:
            return f"order=2 with {name} needs a loss that is piecewise quadratic"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Minimise the worst-case risk to a gap of ``tol`` times the best constant's risk."""
        ball = problem.ball
        if ball.order == 1 and ball.delta > 0 and np.isfinite(ball.target_cost):
            # rate max(w, still) is at least rate w: where the rows alone pay, targets stay
            rows = replace(problem, ball=replace(ball, target_cost=np.inf))
            solution = self._solve_one(rows, tol, max_iter, start)
            if float(ball.cost.dual_norm(solution.coef)) >= 1 / ball.target_cost:
                return solution
        small, place = merged(problem)
        model = formulate(small)
        with np.errstate(divide="ignore"):
            b, base = small.constant
        b = float(np.clip(b, -CERTAIN, CERTAIN)) if small.loss.minimum_at_infinity else b
        constant = Candidate(np.zeros(small.X.shape[1]), b, 0.0)
        if base == 0:
            # targets that move cost even the constant model that meets all of them
            worst = constant.risk(small)
            base, pieces = worst.risk, small.loss.pieces
            if pieces is not None and pieces.rooted:
                # every root of a risk, rms + sqrt(delta) gain, is at least sqrt(delta) gain(0)
                solution = constant_solution(problem)
                return replace(solution, objective=base, multiplier=worst.multiplier)
        goal = tol * base
        run = Outcome(np.zeros(model.design.d), b, np.inf, DualPoint(0.0, 0.0 * model.c), 1)
        if base > 0:
            # a smooth loss has no residual: its risk over its largest slope is as good a unit
            unit = base
            if model.form.curve.conjugate is None:
                unit = float(model.pi @ np.abs(model.c - model.o * b))
                unit = unit or float(problem.ball.gain(0.0) * np.sqrt(problem.ball.delta))
            task = scaled(model, b, unit)
            iterate = iterate_cuts if model.norm.by_cuts else iterate_path
            run = task.restored(iterate(task.inner, goal / task.risk_unit, max_iter))
        solution = certified(small, model, run, constant, goal, start)
        log.info("interior point: %d iterations, gap %.2g", solution.n_iter, solution.gap)
        assert solution.dual is not None
        return replace(solution, dual=solution.dual[place])


def merged(problem: Problem) -> tuple[Problem, Array]:
    """Return the problem over distinct rows, and the place of each row among them.

    Integer weights and repeated rows so become one problem, to the order of its rows.
    """
    X, y = problem.X, np.asarray(problem.y, dtype=float)
    if X.shape[0] * X.shape[1] > MERGE_UP_TO:
        return replace(problem, y=y), np.arange(len(y))
    # the bytes of a row, those of 0.0 for -0.0
    rows = np.ascontiguousarray(np.column_stack([as_dense(X), y]) + 0.0)
    bytes_ = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, place = np.unique(bytes_, return_index=True, return_inverse=True)
    return replace(
        problem, X=X[first], y=y[first], weights=np.bincount(place, problem.weights)
    ), place


@dataclass(frozen=True, eq=False)
class Model:
    r"""Minimise over (theta, b) the ``form`` of residuals c - o (Z theta + b) and of ||theta||.

    Z is ``design`` over ``size``; ``live`` is 0 at the columns of Z that are constant up to
    rounding, which must not serve as a second intercept; ``columns`` holds their sizes;
    ``outlying`` >= 1 says how many times larger than is usual a row is; ``table`` may hold A =
    diag(o) Z of a small dense problem.
    """

    design: Design
    c: Array
    o: Array
    pi: Array
    form: Form
    norm: PenaltyNorm
    intercept: bool
    size: float = 1.0
    live: Array | float = 1.0
    columns: Any = 0.0
    outlying: Array | float = 1.0
    table: Array | None = None

    def residual(self, theta: Array, b: float) -> Array:
        """Return c - o (Z theta + b)."""
        return self.c - self.scores(theta) - self.o * b

    def scores(self, theta: Array) -> Array:
        """Return A theta, A = diag(o) Z."""
        if self.table is not None:
            return self.table @ theta
        return self.o * self.design.scores(self.live * theta / self.size)

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        if self.table is not None:
            return (u.T @ self.table).T
        return (self.live * self.design.adjoint((self.o * u.T).T).T).T / self.size

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A, as o is -1 or 1."""
        G = self.design.gram(D) / self.size**2
        return G if isinstance(self.live, float) else G * np.outer(self.live, self.live)

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        if self.table is not None:
            return self.table[at]
        return self.design.rows(at).dense() * (self.o[at] / self.size)[:, None] * self.live

    def sizes(self) -> Array:
        """Return the root mean square of the columns of Z."""
        some = some_rows(self.design)
        # of sparse rows the centre is subtracted from squares, which leaves rounding of either sign
        squares = np.maximum(np.diag(some.gram(np.full(some.n, 1 / some.n))), 0.0)
        return self.live * np.sqrt(squares) / self.size

    def rounding(self, alpha: Array) -> Array:
        """Return the rounding error of Z'(pi o alpha)."""
        if self.table is None:
            return ROUNDING * self.columns
        return ROUNDING * ((self.pi * np.abs(alpha)) @ np.abs(self.table))

    def clipped(self, alpha: Array) -> Array:
        """Return alpha in its box."""
        return np.clip(alpha, self.form.curve.lo, self.form.curve.hi)

    def slopes(self, alpha: Array, g: Array) -> Slopes:
        """Return the facts of slopes alpha with Z'(pi o alpha) = g."""
        return Slopes(alpha, self.pi, self.c, self.norm.polar(g))

    def rescaled(self, b: float, unit: float, slope: float, size: float) -> Model:
        """The model of theta size/unit and (intercept - b)/unit, alpha in units of ``slope``.

        Its risk is that of this model over unit * slope.
        """
        return replace(
            self,
            c=(self.c - self.o * b) / unit,
            form=self.form.rescaled(unit, slope, size),
            size=self.size * size,
        )

    def saddle(self) -> Saddle:
        """Return the model as rows."""
        d = self.design.d
        parts = self.form.parts(self.norm, d)
        b = (Scalar(0.0, 0.0),) if self.intercept else ()
        scalars = (*b, *parts.scalars, *parts.penalty.scalars)
        ones = np.ones_like(self.c)
        R = np.tile(coefficients(parts.r, scalars), (len(ones), 1))
        if self.intercept:
            R[:, 0] = -self.o
        sample = Rows(
            map=self,
            w=self.pi,
            lo=self.form.curve.lo * ones,
            hi=self.form.curve.hi * ones,
            h=self.c,
            R=R,
            K=coefficients(parts.k, scalars)[None],
            k0=parts.k0,
            outlying=self.outlying,
            conjugate=self.form.curve.conjugate,
        )
        # the penalty first: its breathing rows and cuts are the first rows of the head
        blocks = (*parts.penalty.blocks, *parts.blocks)
        return Saddle(
            sample=sample,
            head=stacked(blocks, scalars, d, share=1 / len(self.c)),
            cost=np.array([scalar.cost for scalar in scalars]),
            start=np.array([scalar.start for scalar in scalars]),
            rate=self.form.rate,
            nu=-1 if parts.nu is None else scalars.index(parts.nu),
            d=d,
            bilinear=parts.penalty.bound is not None,
        )


def some_rows(design: Design) -> Design:
    """Return at most ``SAMPLED`` rows, evenly spaced."""
    return design.rows(np.arange(0, design.n, -(-design.n // SAMPLED)))


def is_small(design: Design) -> bool:
    """Return whether QR steps and a dense copy of the rows cost nothing."""
    return not design.sparse and design.n * design.d**2 <= SMALL


def formulate(problem: Problem) -> Model:
    """Return the model of a problem whose rows all have weight, features centred.

    Residuals are r = c - o z, with the larger slope above; a smooth loss has r = z.
    """
    X, ball, pieces = problem.X, problem.ball, problem.loss.pieces
    penalised = ball.delta > 0
    center = None
    if problem.fit_intercept and sparse.issparse(X):
        center = mean(X, np.full(len(problem.y), 1 / len(problem.y)))
    elif problem.fit_intercept:
        # medians: a mean would move with a single cell
        center = np.median(some_rows(Design(X)).dense(), axis=0)
    # max(w, still) has rows of its own under polyhedral norms, else cuts
    above = ball.order == 1 and np.isfinite(ball.target_cost)
    euclidean = ball.cost.euclidean and penalised and not above
    design = Design(X, ball.cost.factor() if euclidean else None, center)
    y = problem.y
    if pieces is None:
        low, high = problem.loss.slope_range(y)
        c, o = np.zeros_like(y), np.full_like(y, -1.0)
        curve: Pieces | Smooth = Smooth(problem.loss, y, low, high)
    else:
        lo, hi = pieces.slopes
        sign = -1.0 if np.isinf(lo) and np.isfinite(hi) else 1.0
        c, o = sign * pieces.residual(np.zeros_like(y), y), sign * pieces.orientation(y)
        curve = Pieces(*((lo, hi) if sign > 0 else (-hi, -lo)), pieces.kappa)
    norm = _norm(ball.cost, design.d, above) if penalised else EuclideanNorm()
    live: Array | float = 1.0
    if not penalised and center is not None:
        # X'DX - (sum D) c c' of a sparse X rounds at eps c^2, centred rows of a dense one at
        # (eps c)^2: columns that vary less are constant
        rounding = 1e-14 if design.sparse else 1e-26
        varies = np.diag(design.gram(problem.weights)) > rounding * center**2
        live = np.where(varies, 1.0, 0.0)
    return Model(
        design=design,
        c=c,
        o=o,
        pi=problem.weights,
        form=_form(problem, curve).rescaled(1.0, 1.0, norm.unit),
        norm=norm,
        intercept=problem.fit_intercept,
        live=live,
    )


def _form(problem: Problem, curve: Pieces | Smooth) -> Form:
    loss, ball = problem.loss, problem.ball
    if ball.order == 1:
        require_lipschitz(loss)
    if ball.delta == 0:
        return Linear(curve, 0.0)
    if ball.order == 1:
        rate = ball.delta * loss.lipschitz
        still = 1 / ball.target_cost
        return Linear(curve, rate, still, above=still > 0)
    if loss.pieces is None:
        raise ValueError(f"{loss!r} has rows at order=1 only: it is not piecewise quadratic.")
    lo, hi = loss.pieces.slopes
    root = float(np.sqrt(ball.delta))
    # 0 where targets stay
    still = float(ball.target_cost**-0.5)
    if loss.pieces.rooted:
        return Root(cast(Pieces, curve), root, still)
    if loss.pieces.kappa == 0 and lo + hi == 0:
        # |r| has one slope: min over nu of delta w^2/(2 nu) + nu hi^2/2 = sqrt(delta) hi w
        return Linear(curve, root * hi, still)
    return Joint(cast(Pieces, curve), ball.delta, still)


def _norm(cost: Cost, d: int, above: bool) -> PenaltyNorm:
    if cost.euclidean and not above:
        return EuclideanNorm()
    if cost.dual_p == 1:
        return SumNorm()
    if cost.dual_p == np.inf:
        return MaxNorm()
    return CutNorm.of(cost, d)


@dataclass(frozen=True, eq=False)
class ScaledModel:
    """A model in units where residuals, slopes and coefficients are near 1.

    theta = basis (unit/size) theta', intercept = b + unit b', nu = (unit/slope) nu' and
    risk = unit slope risk'.
    """

    inner: Model
    b: float
    unit: float
    slope: float
    size: float
    basis: Array | None

    @property
    def risk_unit(self) -> float:
        """The unit of the risk."""
        return self.unit * self.slope

    def restored(self, run: Outcome) -> Outcome:
        """Return a run in the units of the problem."""
        theta = run.theta * (self.unit / self.size)
        bound = DualPoint(run.bound.value * self.risk_unit, run.bound.alpha * self.slope)
        return Outcome(
            theta=theta if self.basis is None else self.basis @ theta,
            b=self.b + self.unit * run.b,
            nu=run.nu * (self.unit / self.slope),
            bound=bound,
            n_iter=run.n_iter,
        )


def scaled(model: Model, b: float, unit: float) -> ScaledModel:
    """Return the model about the constant score b, with residuals in units of ``unit``."""
    slope = model.form.slope_unit(unit)
    inner, basis = model.rescaled(b, unit, slope, 1.0), None
    if inner.form.rate == 0 or inner.norm.rotation_invariant:
        inner, basis = _row_space(inner)
    elif not (inner.design.sparse or inner.norm.by_cuts):
        inner, basis = _along_large_rows(inner)
    # the size of the smallest column of Z that can pay its penalty
    sizes = _usual_sizes(inner)
    sizes = sizes[sizes > 0]
    worth = inner.form.worth
    size = float(np.clip(worth, sizes.min(), sizes.max())) if sizes.size else 1.0
    inner = inner.rescaled(0.0, 1.0, 1.0, size)
    inner = replace(inner, columns=inner.sizes())
    if is_small(inner.design):
        inner = replace(inner, table=inner.dense(np.arange(inner.design.n)))
    inner = replace(inner, outlying=_outlying(inner))
    return ScaledModel(inner, b, unit, slope, size, basis)


def _row_space(model: Model) -> tuple[Model, Array | None]:
    """Return the model on the row space of Z, where only ||theta||_2 is penalised.

    Without a penalty the columns may be scaled, so that no small one is lost as rounding, and a
    direction along which all rows score alike, a second intercept, is left out.
    """
    (n, d), plain = (model.design.n, model.design.d), model.form.rate == 0
    if n >= d and (n * d > MERGE_UP_TO if plain else _is_tall(model)):
        return model, None
    Z = model.design.dense() * model.live
    scale = np.linalg.norm(Z, axis=0) if plain else np.ones(d)
    scale[scale == 0] = 1.0
    U, D, Vt = np.linalg.svd(Z / scale, full_matrices=False)
    if D[0] == 0:
        return model, None
    keep = ROUNDING * max(n, d) * D[0] < D
    U, D, basis = U[:, keep], D[keep], Vt[keep].T / scale[:, None]
    if not plain:
        return replace(model, design=Design(U * D), live=1.0), basis
    basis = basis / D
    if model.intercept:
        _, apart, Vt = np.linalg.svd(U - U.mean(axis=0))
        varies = Vt[: len(apart)][apart > ROUNDING * max(n, d)]
        if len(varies):
            U, basis = U @ varies.T, basis @ varies.T
    # what is left of a zero would be taken for a column's entry
    U = np.where(np.abs(U) > ROUNDING * max(n, d), U, 0.0)
    return replace(model, design=Design(U), live=1.0), basis


def _is_tall(model: Model) -> bool:
    """Whether rows keep their coordinates: many, sparse, or of columns far apart in size."""
    n, d, sizes = model.design.n, model.design.d, model.sizes()
    return bool(model.design.sparse or n * d**2 > SMALL or sizes.max() > SPREAD * sizes.min())


def _along_large_rows(model: Model) -> tuple[Model, Array | None]:
    """Return the model with the directions of the far largest rows as coordinates.

    Scaled columns then condition Newton's equations, which else lose what other rows say.
    """
    large = np.flatnonzero(_outlying(model) > LARGE)
    if len(large) == 0:
        return model, None
    rows = model.design.rows(large).dense()
    size = np.linalg.norm(rows, axis=1)
    order = np.argsort(-size)
    Q = np.linalg.qr((rows / size[:, None])[order].T, mode="complete")[0]
    rotated = Design(model.design.dense() @ Q)
    return replace(model, design=rotated, norm=RotatedNorm(model.norm, Q)), Q


def _usual_sizes(model: Model) -> Array:
    """Return the spreads of the columns of Z, of constant ones their root mean squares.

    Dense columns are taken about their medians and without what few cells add. Coefficients pay for
    the spread: without an intercept an offset may be of any size.
    """
    some = some_rows(model.design)
    sizes = model.sizes()
    if model.design.sparse:
        mean_row = some.adjoint(np.full(some.n, 1 / some.n)) / model.size
        spread = np.sqrt(np.maximum(sizes**2 - mean_row**2, 0.0))
    else:
        Z = some.dense() * (model.live / model.size)
        Z = np.abs(Z - np.median(Z, axis=0))
        spread = np.sqrt((np.minimum(Z, UNUSUAL * _typical(Z)) ** 2).mean(axis=0))
    return np.where(spread > EQUAL * sizes, spread, sizes)


def _outlying(model: Model) -> Array:
    """Return how many times larger than is usual each row is, at least 1.

    Columns are measured by their medians, rows by two signed sums of measured columns.
    """
    n, d = model.design.n, model.design.d
    if model.design.sparse:
        sizes = model.sizes()
        usual = np.where(sizes > 0, sizes, np.inf)
    else:
        usual = _typical(np.abs(model.dense(np.arange(0, n, -(-n // SAMPLED)))))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, d))
    size = np.max([np.abs(model.scores(sign / usual)) for sign in signs], axis=0)
    return np.maximum(size / (UNUSUAL * _typical(size[:, None])[0]), 1.0)


def _typical(sizes: Array) -> Array:
    """Return the median of every column among entries that are not 0 up to rounding, else inf."""
    ordered = np.sort(sizes, axis=0)
    zeros = (ordered <= EQUAL * ordered[-1]).sum(axis=0)
    middle = np.minimum((zeros + len(sizes)) // 2, len(sizes) - 1)
    median = np.take_along_axis(ordered, middle[None], axis=0)[0]
    return np.where(median > 0, median, np.inf)


class DualPoint(NamedTuple):
    """A lower bound and the feasible multiplier alpha that proves it."""

    value: float
    alpha: Array


def dual_point(m: Model, alpha: Array, reach: Array) -> DualPoint:
    """Return the dual value at alpha, made feasible by balancing and by shrinking towards 0.

    Rounding leaves g = Z'(pi o alpha) uncertain by ``noise``, which is charged over the box
    |theta| <= reach. Losses are nonnegative, so 0 is a bound.
    """
    alpha = m.clipped(alpha)
    if m.intercept:
        # E o alpha = 0: the larger side shrinks
        alpha = alpha * balance(m.pi * m.o * alpha)
    g = m.adjoint(m.pi * alpha)
    noise = m.form.roundings * m.rounding(alpha)
    blur = np.clip(g, -noise, noise)
    factor, value = m.form.feasible(m.slopes(alpha, g - blur))
    if value > 0:
        value = m.form.charged(value, float(np.abs(blur) @ reach))
    return DualPoint(value, factor * alpha) if value > 0 else DualPoint(0.0, 0.0 * alpha)


def repaired(m: Model, alpha: Array, target: Array) -> Array:
    """Return alpha moved inside its box so that Z'(pi o alpha) = target and E o alpha = 0."""
    alpha = m.clipped(alpha)
    d = m.design.d
    V = m.o[:, None] if m.intercept else np.empty((len(alpha), 0))
    ends = np.minimum(m.form.curve.hi - alpha, alpha - m.form.curve.lo)
    # outlying rows count like others, or those would be lost in their rounding
    room = np.minimum(ends, 1.0) / np.square(m.outlying)
    # least change in the metric 1/room: alpha - room (A y + o b)
    T = Orthogonal([(m, V, m.pi * room)], d, lift=0.0)
    miss = np.append(m.adjoint(m.pi * alpha) - target, V.T @ (m.pi * alpha))
    inverse = T.truncated(SETTLED)
    y = inverse @ miss
    for _ in range(REFINEMENTS):
        y += inverse @ (miss - T.times(y))
    return m.clipped(alpha - room * (m.scores(y[:d]) + V @ y[d:]))


@dataclass(frozen=True, eq=False)
class Outcome:
    """A point of a model with its nu (inf without one), the best lower bound, the iterations."""

    theta: Array
    b: float
    nu: float
    bound: DualPoint
    n_iter: int


class Best:
    """The best point and the best lower bound seen along central paths.

    A path ends at a gap of ``goal``, or at a mean product of ``enough``.
    """

    def __init__(self, model: Model, goal: float, enough: float = 0.0) -> None:
        self.model = model
        self.goal = goal
        self.enough = enough
        self.theta = np.zeros(model.design.d)
        self.b = 0.0
        self.nu = np.inf
        self.upper = np.inf
        self.bound = DualPoint(0.0, np.zeros_like(model.c))
        self.careful = is_small(model.design)

    def outcome(self, n_iter: int) -> Outcome:
        """Return the best point and bound."""
        return Outcome(self.theta, self.b, self.nu, self.bound, n_iter)

    @property
    def gap(self) -> float:
        """The upper bound less the lower bound."""
        return self.upper - self.bound.value

    def follow(self, q: Saddle, max_iter: int) -> tuple[Iterate, int]:
        """Follow the central path of q; return the last iterate and the number of iterates."""
        marks = np.full(3, np.inf)
        since = 0
        # the equations of one step are kept until the next: new memory costs more than a step
        newton: SaddleEquations | None = None

        def done(x: Iterate) -> bool:
            nonlocal marks, since
            mu = q.mean_product([point.products for point in x.rows])
            self._look(q, x, mu)
            # past the goal a smaller mu is no progress
            progress = np.array([self.gap, self.upper, max(mu, self.goal)])
            since = 0 if np.any(progress < PROGRESS * marks) else since + 1
            marks = np.minimum(marks, progress)
            # a first stall is mostly one of the squared condition of the Newton matrix
            self.careful = self.careful or since > FIRST_STALL or mu <= self.goal
            return mu <= self.enough or self.gap <= self.goal or since > PATIENCE

        def advance(x: Iterate) -> Iterate:
            nonlocal newton
            newton = SaddleEquations(q, x, self.careful)
            step = corrected_step(newton)
            length = newton.centred(step)
            if length < TOO_SHORT or newton.mean_after(step, length) > GROWTH * newton.mean:
                # the second-order terms can mislead far from the path, and where a scalar that
                # squares are divided by tends to 0: centre without them
                step = newton.step(newton.mean / 2)
                length = newton.centred(step)
            return step.taken(x, length)

        x, steps = follow(q.begin(), advance, done, max_iter - 1)
        return x, steps + 1

    def _look(self, q: Saddle, x: Iterate, mu: float) -> None:
        """Bound the optimum from both sides at an iterate."""
        m = self.model
        b = float(x.xi[0]) if m.intercept else 0.0
        nu = float(x.xi[q.nu]) if m.form.has_nu else np.inf
        # rounding can leave nu >= 0 behind
        if nu > 0:
            upper = m.form.risk(m.pi, m.residual(x.theta, b), m.norm.value(x.theta), nu)
            if upper < self.upper:
                self.theta = x.theta
                self.b = b
                self.nu = nu
                self.upper = upper
        alpha = x.rows[0].alpha
        self._raise(alpha)
        if mu <= self.goal and self.enough == 0:
            self.repair(alpha)

    def _raise(self, alpha: Array) -> None:
        """Take the bound of a multiplier if it is the best so far."""
        bound = dual_point(self.model, alpha, 2 * np.abs(self.theta))
        if bound.value > self.bound.value:
            self.bound = bound

    def repair(self, alpha: Array) -> None:
        """Move a multiplier where shrinking it alone leaves too large a gap."""
        m = self.model
        if self.gap <= self.goal:
            return
        # rows that are fitted at infinity have a multiplier of 0 in the limit
        alpha = np.where(np.abs(alpha) <= NEGLIGIBLE * np.abs(alpha).max(initial=0.0), 0.0, alpha)
        # moving g onto its bound costs a share of the penalty, shrinking alpha one of the risk
        g = m.adjoint(m.pi * alpha)
        for radius in m.form.radii(m.slopes(alpha, g)):
            for target in m.norm.within(g, radius):
                if self.gap > self.goal:
                    self._raise(repaired(m, alpha, target))


def iterate_path(model: Model, goal: float, max_iter: int) -> Outcome:
    """Follow the central path of a scaled model until the gap is at most ``goal``.

    A path that strays too far to return is left for one with as heavy a barrier on the head rows
    as on all of the sample.
    """
    best = Best(model, goal)
    n_iter = 0
    light = model.saddle()
    for q in (light, replace(light, head=replace(light.head, share=1.0, first=1.0))):
        end, count = best.follow(q, max_iter - n_iter)
        n_iter += count
        best.repair(end.rows[0].alpha)
        if best.gap <= goal or n_iter >= max_iter:
            break
    return best.outcome(n_iter)


def iterate_cuts(model: Model, goal: float, max_iter: int) -> Outcome:
    r"""Solve masters with more and more cuts of the norm until the gap is at most ``goal``.

    The dual norm is the largest of its cuts, :math:`\|\theta\|_* = \max_{\|v\| \le 1} \langle v,
    \theta\rangle`, and v = direction(theta) is the one that is active at theta. A master has some
    of them, and the second-order term that they lack near the best point c so far,

    .. math:: \max_k \langle v_k, \theta\rangle + (\theta - c)'H(\theta - c)/2,\qquad
              H = \sum_k a_k \nabla^2\|\cdot\|_*(\theta_k)\ /\ \sum_k a_k,

    the Hessian of the Lagrangian at the multipliers a of the last master, by differences of
    ``direction``. Polyhedral norms need no H and end in finitely many rounds; for others the
    method is Newton's. The bounds are those of the norm itself, whatever the master. An iteration
    is a master: at most ``max_iter``, and no more than ``PATIENCE`` that leave the gap as it is.
    """
    norm = cast(CutNorm, model.norm)
    d = model.design.d
    # the cuts at the unit vectors, in both directions; ``points`` is where each cut is active
    points = np.vstack([np.eye(d), -np.eye(d)])
    cuts = norm.direction(points)
    root = np.empty((0, d))
    best = Best(model, goal)
    n_iter = 0
    mark, since = np.inf, 0
    while best.gap > goal and n_iter < max_iter and since <= PATIENCE:
        n_iter += 1
        best.model = replace(model, norm=replace(norm, cuts=cuts, root=root, centre=best.theta))
        best.enough = LOOSE * max(min(best.gap, 1.0), goal)
        end, _ = best.follow(best.model.saddle(), max_iter)
        multipliers = end.rows[1].alpha[: len(cuts)]
        root = _curvature(norm, points, multipliers, best.theta)
        if end.theta.any():
            cuts = np.vstack([cuts, norm.direction(end.theta[None])])
            points = np.vstack([points, end.theta])
        since = 0 if best.gap < PROGRESS * mark else since + 1
        mark = min(mark, best.gap)
    return best.outcome(n_iter)


def _curvature(norm: CutNorm, points: Array, multipliers: Array, centre: Array) -> Array:
    """Return L with L'L = sum_k a_k H_k, the Hessians taken at the size of the centre."""
    d = len(centre)
    size = norm.value(centre)
    if size == 0:
        return np.empty((0, d))
    active = multipliers > ACTIVE * multipliers.sum()
    H = np.zeros((d, d))
    for point, a in zip(points[active], multipliers[active], strict=True):
        H += a * _norm_hessian(norm, point * (size / norm.value(point)))
    values, vectors = np.linalg.eigh(H)
    positive = values > EQUAL * max(values[-1], 0.0)
    return np.sqrt(values[positive])[:, None] * vectors[:, positive].T


def _norm_hessian(norm: CutNorm, point: Array) -> Array:
    """Return the second derivatives of the dual norm at a point, 0 across kinks."""
    step = DIFFERENCE * np.maximum(np.abs(point), DIFFERENCE * np.abs(point).max())
    here = norm.direction(point)
    ahead = (norm.direction(point + np.diag(step)) - here) / step[:, None]
    behind = (here - norm.direction(point - np.diag(step))) / step[:, None]
    apart = np.linalg.norm(ahead - behind, axis=1)
    larger = np.maximum(np.linalg.norm(ahead, axis=1), np.linalg.norm(behind, axis=1))
    smooth = apart <= KINK * larger
    H = (ahead + behind) / 2 * smooth[:, None] * smooth
    return (H + H.T) / 2


class Candidate(NamedTuple):
    """Coefficients, an intercept, and a guess of the multiplier (0 for none)."""

    coef: Array
    intercept: float
    multiplier: float

    def risk(self, problem: Problem) -> Dual:
        """Return the worst-case risk of the point and its multiplier."""
        z = Design(problem.X).scores(self.coef) + self.intercept
        w = float(problem.ball.cost.dual_norm(self.coef)) if self.coef.any() else 0.0
        y, weights = problem.y, problem.weights
        return worst_risk(z, y, weights, problem.loss, w, problem.ball, self.multiplier)


def certified(
    problem: Problem,
    model: Model,
    run: Outcome,
    constant: Candidate,
    goal: float,
    start: Solution | None,
) -> Solution:
    """Return the best of the constant model, the run, its rounding and the start, certified."""
    coef = model.design.coef(run.theta)
    # nu = w^2/(2 lam)
    ball = problem.ball
    lam = float(ball.gain(ball.cost.dual_norm(coef))) ** 2 / (2 * run.nu)
    points = [constant]
    tiny = np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(initial=0.0)
    for v in (np.where(tiny, 0.0, coef), coef) if model.norm.leaves_zeros else (coef,):
        center = model.design.origin
        shift = 0.0 if center is None else float(center @ v)
        points.append(Candidate(v, run.b - shift, lam))
    if start is not None:
        guess = start.multiplier if np.isfinite(start.multiplier) else 0.0
        points.append(Candidate(start.coef, start.intercept, guess))
    risks = [point.risk(problem) for point in points]
    # on a tie the simpler point, which stands first, wins
    order = [risks[0].risk * (1 - EQUAL), *(each.risk for each in risks[1:])]
    j = int(np.argmin(order))
    gap = max(risks[j].risk - run.bound.value, 0.0)
    return Solution(
        coef=points[j].coef,
        intercept=float(points[j].intercept),
        multiplier=risks[j].multiplier,
        objective=risks[j].risk,
        gap=gap,
        n_iter=run.n_iter,
        converged=bool(gap <= goal),
        message=verdict(gap, goal, run.n_iter),
        dual=-model.o * (model.form.steepness(risks[j].risk) * run.bound.alpha),
    )
