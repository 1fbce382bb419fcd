"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ...chunks import Chunk, Sums
from ...costs import Cost
from ...losses import Loss
from ...problem import Ball, Problem, Solution
from ..euclidean.newton import as_solution
from ..euclidean.order_one import Place, minimise
from ..exact import Exact
from . import softmax
from .newton import StreamedRisk, constant_models
from .order_two import StreamedJoint
from .stream import Reading
from .stream import Stream as Stream
from .stream import opened as opened

Array = NDArray[Any]

#: Columns that are eliminated at a time.
PANEL = 32


def lacks(loss: Loss, order: int, cost: Cost | None) -> str | None:
    """Return why a problem is not solved in chunks, None if it is; no ``cost``: a learned one."""
    name = type(loss).__name__
    if cost is not None and not cost.euclidean:
        return (
            f"rows in chunks need a Euclidean, Mahalanobis or learned cost, got {cost!r}: use "
            "cost='euclidean', or rows that fit into memory."
        )
    if loss.pieces is not None and loss.pieces.quadratic:
        if order == 2:
            return None
        return f"order=1 needs a Lipschitz loss; {name} is not. Use order=2."
    smooth = loss.pieces is None and np.isfinite(loss.smoothness * loss.lipschitz)
    if not smooth or loss.task != "classification":
        return (
            "rows in chunks are fitted with the squared loss or a smooth Lipschitz loss of labels, "
            f"as 'logistic'; {name} is neither. Use one of these, or rows that fit into memory."
        )
    return None


def solve(stream: Stream, ball: Ball, starts: list[Solution], solver: Exact) -> list[Solution]:
    """Return the certified solutions of all models over all rows, from solutions near them.

    Inside, rows are measured by their usual length in the cost, a power of 2.
    """
    moves = np.asarray(stream.rows.X - stream.center, dtype=float)
    length = float(np.sqrt(np.mean(np.square(ball.cost.norm(moves)))))
    unit = float(2.0 ** np.round(np.log2(length))) if length > 0 else 1.0
    price = unit**ball.order
    stream, inside = replace(stream, unit=unit), replace(ball, delta=ball.delta / price)
    near = [
        replace(
            start,
            coef=start.coef * unit,
            intercept=start.intercept + start.coef @ stream.center,
            multiplier=start.multiplier * price,
        )
        for start in starts
    ]
    if stream.loss.pieces is not None:
        solved = [_squared(stream, inside, solver)]
    elif stream.loss.outputs > 1:
        solved = [softmax.solve(stream, inside, near[0], solver)]
    else:
        solved = _newton(stream, inside, near, solver)
    return [
        replace(
            solution,
            coef=solution.coef / unit,
            intercept=solution.intercept - solution.coef / unit @ stream.center,
            multiplier=solution.multiplier / price,
        )
        for solution in solved
    ]


def _newton(stream: Stream, ball: Ball, starts: list[Solution], solver: Exact) -> list[Solution]:
    """Return the solutions of smooth losses of one score, from solutions near them."""
    models, factor = stream.models, ball.cost.factor()
    deltas = np.full(len(models), ball.delta)
    zero = constant_models(models, factor)
    coef = np.stack([start.coef for start in starts], axis=1)
    theta = coef if factor is None else np.linalg.solve(factor, coef)
    b, lam = (np.array([getattr(s, name) for s in starts]) for name in ("intercept", "multiplier"))
    target = solver.tol * zero.risk
    objective: Any
    if ball.order == 1 or ball.delta == 0:
        rho = deltas * stream.loss.lipschitz if ball.delta > 0 else deltas
        objective = StreamedRisk(models, factor, rho)
    else:
        objective = StreamedJoint(models, factor, deltas, zero)
    minima = minimise(objective, zero, target, solver.max_iter, Place(theta, b, lam))
    if ball.order == 2 and ball.delta == 0:
        # the risk rises with the root of delta
        minima = replace(minima, lam=np.where(minima.theta.any(axis=0), np.inf, 0.0))
    coefs = minima.theta if factor is None else factor @ minima.theta
    ends = zip(coefs.T, minima.b.tolist(), target.tolist(), strict=True)
    return [as_solution(minima, j, *end) for j, end in enumerate(ends)]


class Triangle:
    """A factor R (p, p) of rows; the sum of two is that of the rows of both."""

    def __init__(self, R: Array) -> None:
        self.R = R

    def __add__(self, other: Triangle) -> Triangle:
        # the rows of the other are a triangle themselves
        p = len(self.R)
        return Triangle(lapack.dtpqrt(p, min(PANEL, p), self.R, other.R)[0])


@dataclass(frozen=True, eq=False)
class TriangleSums:
    """The job that takes the factor of the rows (1, z, y - shift) times the roots of weights."""

    reading: Reading
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the factor of a chunk."""
        p = len(self.reading.center) + 2
        R = np.zeros((p, p))
        for Z, y, w in self.reading.blocks(chunk, p):
            # columns first, as LAPACK reads them
            T = np.vstack([np.ones(len(y)), Z.T, y - self.shift]) * np.sqrt(w)
            # R'R of the rows of R (p, p) and of more rows (m, p)
            R = lapack.dtpqrt(0, min(PANEL, p), R, T.T)[0]
        return {"triangle": Triangle(R)}


def _squared(stream: Stream, ball: Ball, solver: Exact) -> Solution:
    r"""Return the certified solution of the squared loss at order 2: one pass over the rows.

    The triangular factor R of the rows (1, z, y) times the roots of their weights, R'R = sum w tt',
    is a sample of d + 2 rows with the same mean squared residual for every model. With an intercept
    its first line, what t has along 1, is left out: the others are free of it. The methods for rows
    in memory solve it, and their dual points are those of all rows after a rotation.
    """
    # a target near the mean
    shift = float(np.mean(stream.rows.y)) if stream.fit_intercept else 0.0
    [sums] = stream.chunks.total(TriangleSums(stream.reading, shift))
    R = np.asarray(sums["triangle"].R)
    R = R / abs(R[0, 0])
    mean = R[0, 1:] / R[0, 0] if stream.fit_intercept else np.zeros(len(R) - 1)
    rows = R[int(stream.fit_intercept) :, 1:] * np.sqrt(len(R) - stream.fit_intercept)
    weights = np.full(len(rows), 1 / len(rows))
    problem = Problem(rows[:, :-1], rows[:, -1], weights, stream.loss, ball, fit_intercept=False)
    [[solution]] = solver.solve([problem], [ball.delta])
    b = shift + mean[-1] - mean[:-1] @ solution.coef
    e = rows[:, -1] - rows[:, :-1] @ solution.coef
    return replace(
        solution,
        intercept=float(b),
        mean_loss=float(weights @ stream.loss.value(e, np.zeros(len(e)))),
        dual=None,
    )
