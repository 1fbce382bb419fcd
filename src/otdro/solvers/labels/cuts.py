r"""Norms known only by ``norm``, ``dual_norm`` and ``direction``, where labels change at a price.

The dual norm is the largest of its cuts, :math:`\|\theta\|_* = \max_v \langle v, \theta\rangle`
over ||v|| <= 1, and v = direction(theta) is the one that is active at theta. A problem with some of
them has a smaller risk: its bound is one of the least risk, and its minimiser shows the next cut.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import duality_gap
from ..norm_rows import FaceRows
from . import interior
from .inside import Inside
from .priced_rows import Accuracy, Place, PricedMinimum

Array = NDArray[Any]

#: Problems with some cuts at most, and the share of the gap so far to which one is solved.
ROUNDS, LOOSE = 300, 0.1
#: Per column, the cuts above which those far from active are dropped, and the share that is kept.
PER_COLUMN, KEPT = 30, 0.5


def minimise(at: Inside, place: Place, below: float, accuracy: Accuracy) -> PricedMinimum:
    """Return the best place found, its gap at most the target where the rounds do.

    They begin at a place; ``below`` bounds the least risk.
    """
    d, cost = at.rows.design.d, at.problem.ball.cost
    normals = np.asarray(cost.direction(np.vstack([np.eye(d), -np.eye(d)])))
    risk, lam = at.risk(place)
    best = PricedMinimum(place, risk, lam, risk - below, np.zeros_like(place.z), 0)
    now, lower, n_iter = place, below, 0
    for _ in range(ROUNDS):
        if best.gap <= accuracy.target or n_iter >= accuracy.max_iter:
            break
        if now.theta.any():
            normals = np.vstack([normals, cost.direction(now.theta)[None]])
        under = partial(at.risk, norm=partial(_largest, normals))
        goal = accuracy._replace(target=max(LOOSE * best.gap, accuracy.target / 4))
        found = interior.minimise(at.rows, FaceRows(normals), place, under, lower, goal)
        if found is None:
            break
        n_iter += found.n_iter
        lower = max(lower, found.risk - found.gap)
        risk, lam = at.risk(found.place)
        if risk < best.risk:
            best = replace(found, risk=risk, multiplier=lam)
        best = replace(best, gap=duality_gap(best.risk, lower), n_iter=n_iter)
        now = found.place
        normals = _active(normals, now, PER_COLUMN * d)
    return best


def _largest(normals: Array, theta: Array) -> float:
    """Return max <v, theta>."""
    return float(np.max(normals @ theta))


def _active(normals: Array, place: Place, most: int) -> Array:
    """Return the cuts, those nearest to active where they are many."""
    if len(normals) <= most:
        return normals
    return normals[np.argsort(-(normals @ place.theta))[: int(KEPT * most)]]
