"""The fits of every cost inside folds and over all rows, along its deltas."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ...costs import Cost
from ...solvers import Exact
from ...solvers.streamed import Columns, Minima, Models, minimise
from ...solvers.streamed.squared import certified
from ..folds import FOLD_TOL
from ..grid import solve_path
from .task import Task

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Fits:
    """One cost: K models over all rows along m deltas, those of each fold, and what they lose.

    ``everywhere`` are the models over all rows, of each of the K, with F, plain risk and ``gap``
    (K, m); ``in_folds`` those of each fold (K m models, one of the K after another), and ``held``
    (F, m) their mean losses on its rows, over the K.
    """

    everywhere: list[Models]
    objective: Array
    risk: Array
    gap: Array
    in_folds: list[Models]
    held: Array


def by_moments(
    task: Task, full: list[Cost], learned: list[Any], deltas: list[Array], certify: bool
) -> list[Fits]:
    """Return the fits of the squared loss, all from moments; certificates take one pass."""
    moments, pieces = task.moments, task.stream.loss.pieces
    assert moments is not None
    assert pieces is not None
    found = []
    for cost, in_folds, grid in zip(full, learned, deltas, strict=True):
        models = [moments.models(c.factor(), grid, f) for f, c in enumerate(in_folds)]
        held = [moments.held(m, f) / (2 * pieces.kappa) for f, m in enumerate(models)]
        risk = objective = gap = np.full(len(grid), np.inf)
        if certify:
            solutions, risk = certified(moments, cost.factor(), grid, task.tol)
            objective = np.array([s.objective for s in solutions])
            gap = np.array([s.gap for s in solutions])
        everywhere = moments.models(cost.factor(), grid)
        each = (objective[None], risk[None], gap[None])
        found.append(Fits([everywhere], *each, models, np.stack(held)))
    return found


def by_newton(
    task: Task, full: list[Cost], learned: list[Any], deltas: list[Array], certify: bool
) -> list[Fits]:
    """Return the fits of a smooth loss: all costs, folds, models and deltas as one batch."""
    stream = task.stream
    starts = [
        solve_path(stream.sample, cost, task.order, grid, Exact(tol=FOLD_TOL))
        for cost, grid in zip(full, deltas, strict=True)
    ]
    factors, rho, left_out, group, model, coef, b = [], [], [], [], [], [], []
    for c, (cost, in_folds) in enumerate(zip(full, learned, strict=True)):
        for fold, one in [(-1, cost), *enumerate(in_folds)]:
            L = one.factor()
            for k, j in np.ndindex(len(stream.models), len(deltas[c])):
                near = starts[c][k][j]
                factors.append(L)
                rho.append(deltas[c][j] * stream.loss.lipschitz)
                left_out.append(fold)
                group.append((c, k, j))
                model.append(k)
                coef.append(near.coef)
                b.append(near.intercept + float(stream.center @ near.coef))
    numbers = np.unique(np.array(group), axis=0, return_inverse=True)[1].ravel()
    each = (np.array(rho), np.array(left_out), numbers, np.array(model))
    columns = Columns(factors, *each)
    found = minimise(stream, columns, np.stack(coef, axis=1), np.array(b), FOLD_TOL, certify)
    if found.unsolved:
        warnings.warn(
            f"{found.unsolved} fits inside folds did not reach their gap; they are scored all the "
            "same. Scale the columns of X, or leave some out.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _split(found, deltas, stream.folds.count, len(stream.models))


def _split(found: Minima, deltas: list[Array], folds: int, K: int) -> list[Fits]:
    """Return the fits of every cost out of a batch, in which folds follow all rows."""
    results, place = [], 0
    for grid in deltas:
        m = len(grid)
        index = place + np.arange((folds + 1) * K * m).reshape(folds + 1, K, m)
        whole = index[0]
        results.append(
            Fits(
                [found.models.columns(of_model) for of_model in whole],
                found.objective[whole],
                found.risk[whole],
                found.gap[whole],
                [found.models.columns(of_fold.ravel()) for of_fold in index[1:]],
                found.held[index[1:]].mean(axis=1),
            )
        )
        place += index.size
    return results
