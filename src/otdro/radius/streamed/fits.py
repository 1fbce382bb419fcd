"""The fits of every cost inside folds and over all rows, along its deltas."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ...costs import Cost
from ...problem import Solution
from ...solvers import Exact
from ...solvers.streamed import Columns, HeldSums, Minima, Models, Stream, minimise, together
from ...solvers.streamed.batch import PASSES
from ...solvers.streamed.priced import NEAR_IN_FOLDS
from ...solvers.streamed.squared import certified
from ..folds import FOLD_TOL
from ..grid import solve_path
from .solving import method, near
from .task import Task

Array = NDArray[Any]

#: Bytes of Newton matrices that are at hand at a time.
LOT_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Fits:
    """One cost: K models over all rows along m deltas, those of each fold, and what they lose.

    ``everywhere`` are the models over all rows, of each of the K, with F, plain risk, ``gap`` and
    ``multiplier`` (K, m); ``in_folds`` those of each fold (K m models, one of the K after another),
    and ``held`` (F, m) their mean losses on its rows, over the K.
    """

    everywhere: list[Models]
    objective: Array
    risk: Array
    gap: Array
    multiplier: Array
    in_folds: list[Models]
    held: Array


def by_factors(task: Task, full: list[Cost], learned: list[Any], deltas: list[Array]) -> list[Fits]:
    """Return the fits of the squared loss, all from factors; certificates take one pass."""
    squared, pieces = task.squared, task.stream.loss.pieces
    assert squared is not None
    assert pieces is not None
    found = []
    for cost, in_folds, grid in zip(full, learned, deltas, strict=True):
        models = [squared.models(c.factor(), grid, f) for f, c in enumerate(in_folds)]
        held = [squared.held(m, f) / (2 * pieces.kappa) for f, m in enumerate(models)]
        solutions, risk = certified(squared, cost.factor(), grid, task.tol)
        objective = np.array([s.objective for s in solutions])
        gap = np.array([s.gap for s in solutions])
        multiplier = np.zeros(len(grid))
        everywhere = squared.models(cost.factor(), grid)
        each = (objective[None], risk[None], gap[None], multiplier[None])
        found.append(Fits([everywhere], *each, models, np.stack(held)))
    return found


def by_newton(task: Task, full: list[Cost], learned: list[Any], deltas: list[Array]) -> list[Fits]:
    """Return the fits of a smooth loss: all costs, folds, models and deltas as one batch."""
    stream = task.stream
    starts = [
        solve_path(stream.sample, cost, task.order, grid, Exact(tol=FOLD_TOL))
        for cost, grid in zip(full, deltas, strict=True)
    ]
    factors = [cost.factor() for cost in full]
    by_fold = [[cost.factor() for cost in of_fold] for of_fold in zip(*learned, strict=True)]
    # all problems over all rows: cost, model and delta
    sizes = [(len(stream.models), len(grid)) for grid in deltas]
    numbers = [(c, k, j) for c, size in enumerate(sizes) for k, j in np.ndindex(size)]
    near = [starts[c][k][j] for c, k, j in numbers]
    coef = np.stack([found.coef for found in near], axis=1)
    b = np.array([found.intercept for found in near]) + stream.center @ coef
    rho = np.array([deltas[c][j] for c, _, j in numbers]) * stream.loss.lipschitz
    columns = Columns.everywhere(
        [factors[c] for c, *_ in numbers], rho, np.array([k for _, k, _ in numbers])
    )
    in_folds = [[of_fold[c] for c, *_ in numbers] for of_fold in by_fold]
    found = minimise(stream, columns, in_folds, (coef, b), FOLD_TOL)
    _warn_of(found.unsolved)
    return _split(found, sizes)


def one_by_one(task: Task, full: list[Cost], learned: list[Any], deltas: list[Array]) -> list[Fits]:
    """Return the fits at order 2 and of softmax models, all on shared passes."""
    stream = task.stream
    parts = [stream, *(stream.outside(f) for f in task.folds)]
    methods = []
    for cost, in_folds, grid in zip(full, learned, deltas, strict=True):
        starts = solve_path(stream.sample, cost, task.order, grid, Exact(tol=FOLD_TOL))
        for part, one in zip(parts, [cost, *in_folds], strict=True):
            for k, j in np.ndindex(len(stream.models), len(grid)):
                ball = task.ball(one, grid[j])
                methods.append(method(part.models[k], ball, near(starts[k][j]), FOLD_TOL, PASSES))
    solved = _in_lots(stream, methods)
    _warn_of(sum(not solution.converged for solution, _ in solved))
    found = [_gathered(task, of_cost) for of_cost in _by_cost(solved, deltas, task)]
    return _with_losses(task, found)


def _in_lots(stream: Stream, methods: list[Any]) -> list[tuple[Solution, float]]:
    """Return the results of methods, as many at a time as their matrices leave memory for."""
    side = (stream.chunks.d + 2) * max(1, stream.loss.outputs - 1)
    # with a price of labels the rows near a tie are at hand too
    rows = NEAR_IN_FOLDS * stream.chunks.d if np.isfinite(stream.label_cost) else 0
    size = max(1, LOT_BYTES // (8 * (side**2 + rows)))
    lots = [methods[i : i + size] for i in range(0, len(methods), size)]
    return [result for lot in lots for result in together(stream.chunks, lot)]


def _by_cost(solved: list[Any], deltas: list[Array], task: Task) -> list[Any]:
    """Return the results by cost, as arrays of objects (F + 1, K, m)."""
    shape, place, found = (1 + len(task.folds), len(task.stream.models)), 0, []
    for grid in deltas:
        of_cost = np.empty(shape[0] * shape[1] * len(grid), dtype=object)
        of_cost[:] = solved[place : place + len(of_cost)]
        found.append(of_cost.reshape(*shape, len(grid)))
        place += len(of_cost)
    return found


def _gathered(task: Task, of_cost: Array) -> Fits:
    """Return the fits of one cost, without their losses on the folds."""

    def models(some: Array, fold: int) -> Models:
        outputs = task.stream.loss.outputs
        coef = np.concatenate([np.atleast_2d(solution.coef) for solution, _ in some]).T
        b = np.concatenate([np.atleast_1d(solution.intercept) for solution, _ in some])
        b = b + task.stream.center @ coef
        return Models(coef, b, np.full(len(some), fold), outputs)

    def table(name: str) -> Array:
        return np.array([[getattr(solution, name) for solution, _ in row] for row in of_cost[0]])

    return Fits(
        [models(row, -1) for row in of_cost[0]],
        table("objective"),
        np.array([[risk for _, risk in row] for row in of_cost[0]]),
        table("gap"),
        table("multiplier"),
        [models(part.ravel(), f) for f, part in enumerate(of_cost[1:])],
        np.empty(0),
    )


def _with_losses(task: Task, found: list[Fits]) -> list[Fits]:
    """Return the fits with their mean losses on the folds: one pass."""
    stream, K = task.stream, len(task.stream.models)
    models = [_side_by_side([one.in_folds[f] for one in found]) for f in task.folds]
    sizes = [one.objective.shape[1] for one in found]
    positive = None if K == 1 else np.concatenate([np.repeat(np.arange(K), m) for m in sizes])
    [sums] = stream.chunks.total(HeldSums(stream.blocks, stream.loss, models, positive))
    mass = np.array([stream.held(f) for f in task.folds])
    by_cost = np.split(sums["value"] / mass[:, None], np.cumsum(K * np.array(sizes))[:-1], axis=1)
    return [
        replace(one, held=part.reshape(len(mass), K, m).mean(axis=1))
        for one, part, m in zip(found, by_cost, sizes, strict=True)
    ]


def _side_by_side(models: list[Models]) -> Models:
    return Models(
        np.concatenate([m.coef for m in models], axis=1),
        np.concatenate([m.b for m in models]),
        np.concatenate([m.left_out for m in models]),
        models[0].outputs,
    )


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
        some = place + np.arange(K * m)
        whole = some.reshape(K, m)
        results.append(
            Fits(
                [found.everywhere.columns(of_model) for of_model in whole],
                found.objective[whole],
                found.risk[whole],
                found.gap[whole],
                np.zeros((K, m)),
                [of_fold.columns(some) for of_fold in found.in_folds],
                found.held[:, whole].mean(axis=1),
            )
        )
        place += K * m
    return results
