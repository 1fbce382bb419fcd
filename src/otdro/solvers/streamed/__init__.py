"""Solvers for rows that come in chunks: nothing of the size of all rows is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...costs import Cost
from ...losses import Loss
from ...problem import Ball, Solution
from ..exact import Exact
from . import squared
from .newton import Coordinates, OrderOne, together
from .order_two import OrderTwo
from .softmax import Softmax
from .stream import Stream as Stream
from .stream import opened as opened


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
    if stream.loss.pieces is not None:
        solved = [squared.solve(stream, inside, solver)]
    else:
        kind: Any = OrderOne if ball.order == 1 or ball.delta == 0 else OrderTwo
        kind = Softmax if stream.loss.outputs > 1 else kind
        methods = []
        for model, start in zip(stream.models, starts, strict=True):
            near = replace(
                start,
                coef=start.coef * unit,
                intercept=start.intercept + start.coef @ stream.center,
                multiplier=start.multiplier * price,
            )
            task: Coordinates = kind(model, ball.cost.factor(), inside.delta)
            target = solver.tol * model.constant[1]
            methods.append(task.solve(near, target, solver.max_iter))
        solved = together(stream.chunks, methods)
        if ball.order == 2 and ball.delta == 0:
            # the risk rises with the root of delta
            solved = [replace(s, multiplier=np.inf if s.coef.any() else 0.0) for s in solved]
    return [
        replace(
            solution,
            coef=solution.coef / unit,
            intercept=solution.intercept - solution.coef / unit @ stream.center,
            multiplier=solution.multiplier / price,
        )
        for solution in solved
    ]
