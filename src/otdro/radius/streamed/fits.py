"""The fits of every cost inside folds and over all rows, along its deltas."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ...costs import Cost
from ...problem import Solution
from ...solvers import Exact
from ...solvers.streamed import (
    Columns,
    HeldSums,
    Minima,
    Models,
    Stream,
    minimise,
    together,
)
from ...solvers.streamed.folds import PASSES
from ...solvers.streamed.priced import NEAR_IN_FOLDS
from ...solvers.streamed.squared import FoldFactors, certified
from ..folds import FOLD_TOL
from ..grid import solve_path
from .solving import method
from .task import Task

Array = NDArray[Any]

#: Bytes of Newton matrices that are at hand at a time.
LOT_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Fits:
    """One cost: K models over all rows along m deltas, those of each fold, and what they lose.

    ``solved`` are the solutions over all rows, m of each of the K;
    ``in_folds`` the models of each fold (K m, one of the K after another), and ``held`` (F, m)
    their mean losses on its rows, over the K.
    """

    solved: list[list[Solution]]
    in_folds: list[Models]
    held: Array


def of_costs(task: Task, full: list[Cost], learned: list[Any], deltas: list[Array]) -> list[Fits]:
    """Return the fits of every cost; ``learned`` are, of each, the costs outside every fold."""
    if task.squared is not None:
        pairs = zip(full, learned, deltas, strict=True)
        return [_by_factors(task.squared, task.tol, *known) for known in pairs]
    stream = task.stream
    starts = [
        solve_path(stream.sample, cost, task.order, grid, Exact(tol=FOLD_TOL))
        for cost, grid in zip(full, deltas, strict=True)
    ]
    # all problems over all rows: cost, model and delta
    sizes = [(len(stream.models), len(grid)) for grid in deltas]
    numbers = [(c, k, j) for c, size in enumerate(sizes) for k, j in np.ndindex(size)]
    parts = [full, *zip(*learned, strict=True)]
    problems = Problems(
        [[costs[c] for c, *_ in numbers] for costs in parts],
        np.array([k for _, k, _ in numbers]),
        np.array([deltas[c][j] for c, _, j in numbers]),
        [starts[c][k][j] for c, k, j in numbers],
    )
    plain = stream.loss.outputs == 1 and np.isinf(stream.label_cost) and task.order == 1
    found = (_by_newton if plain else _one_by_one)(task, problems)
    _warn_of(found.unsolved)
    return _split(found, sizes)


class Problems(NamedTuple):
    """Problems by their costs, over all rows and outside each fold, models, deltas and starts."""

    costs: list[list[Cost]]
    model: Array
    delta: Array
    near: list[Solution]


def _by_factors(squared: FoldFactors, tol: float, cost: Cost, in_folds: Any, deltas: Array) -> Fits:
    """Return the fits of the squared loss, all from factors; certificates take one pass."""
    models = [squared.models(c.factor(), deltas, f) for f, c in enumerate(in_folds)]
    held = np.stack([squared.held(m, f) for f, m in enumerate(models)])
    return Fits([certified(squared, cost.factor(), deltas, tol)], models, held)


def _by_newton(task: Task, problems: Problems) -> Minima:
    """Return the fits of a smooth loss: all costs, folds, models and deltas as one batch."""
    stream = task.stream
    rho = problems.delta * stream.loss.lipschitz
    full, *in_folds = ([cost.factor() for cost in part] for part in problems.costs)
    everywhere = (np.full(len(rho), -1), np.arange(len(rho)))
    columns = Columns(stream, full, rho, problems.model, *everywhere)
    return minimise(columns, in_folds, Models.of(problems.near, stream.center), FOLD_TOL)


def _one_by_one(task: Task, problems: Problems) -> Minima:
    """Return the fits at order 2, of softmax models and with a price of labels: shared passes."""
    stream = task.stream
    streams = [stream, *(stream.outside(f) for f in task.folds)]
    each = list(zip(problems.model, problems.delta, problems.near, strict=True))
    methods = [
        method(part.models[k], task.ball(cost, delta), start, FOLD_TOL, PASSES)
        for part, costs in zip(streams, problems.costs, strict=True)
        for cost, (k, delta, start) in zip(costs, each, strict=True)
    ]
    solved = _in_lots(stream, methods)
    full, *folds = (solved[i : i + len(each)] for i in range(0, len(solved), len(each)))
    models = [Models.of(of_fold, stream.center) for of_fold in folds]
    positive = problems.model if len(stream.models) > 1 else None
    [sums] = stream.chunks.total(HeldSums(stream.blocks, stream.loss, models, positive))
    unsolved = sum(not solution.converged for solution in solved)
    return Minima(full, models, stream.mean_of_folds(sums["value"]), unsolved)


def _in_lots(stream: Stream, methods: list[Any]) -> list[Solution]:
    """Return the results of methods, as many at a time as their matrices leave memory for."""
    side = (stream.chunks.d + 2) * max(1, stream.loss.outputs - 1)
    # with a price of labels the rows near a tie are at hand too
    rows = NEAR_IN_FOLDS * stream.chunks.d if np.isfinite(stream.label_cost) else 0
    size = max(1, LOT_BYTES // (8 * (side**2 + rows)))
    lots = [methods[i : i + size] for i in range(0, len(methods), size)]
    return [result for lot in lots for result in together(stream.chunks, lot)]


def _warn_of(unsolved: int) -> None:
    if unsolved:
        warnings.warn(
            f"{unsolved} fits inside folds did not reach their gap; they are scored all the same. "
            "Scale the columns of X, or leave some out.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _split(found: Minima, sizes: list[tuple[int, int]]) -> list[Fits]:
    """Return the fits of every cost, of K models along m deltas, out of a batch."""
    results, place = [], 0
    for K, m in sizes:
        whole = place + np.arange(K * m).reshape(K, m)
        results.append(
            Fits(
                [[found.solved[i] for i in of_model] for of_model in whole],
                [of_fold.columns(whole.ravel()) for of_fold in found.in_folds],
                found.held[:, whole].mean(axis=1),
            )
        )
        place += K * m
    return results
