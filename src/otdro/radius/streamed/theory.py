"""Delta by theory for rows in chunks: the profile's moments from one pass at a plain fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost, Norm
from ...problem import Ball
from ...solvers import Exact
from ...solvers.streamed import Passes, ProfileSums, Stream, StreamedProblem, together
from ...solvers.streamed.squared import FoldFactors
from ..profile import (
    check_profile,
    normal_radius,
    profile_radius,
    smooth_profile,
    squared_profile,
)

Array = NDArray[Any]

#: The gap of the plain fit, relative to the constant model's risk, and its steps at most.
PILOT_TOL, PILOT_STEPS = 1e-9, 60


#: What a plain fit tells of delta: that of the profile under a cost.
Profile = Callable[[Cost], float]


def theory_of(
    stream: Stream, cost: Cost, order: int, confidence: float, squared: FoldFactors | None
) -> Profile:
    """Return the largest profile delta of the models, with the plain fits to all rows as pilots.

    Refuse what the theory does not cover.
    """
    check_profile(stream.kept, cost, confidence)
    if squared is not None:
        return _squared(squared, confidence)
    smooth = [_smooth(model, order, confidence) for model in stream.models]
    profiles = together(stream.chunks, smooth)
    return lambda cost: max(profile(cost) for profile in profiles)


def _squared(squared: FoldFactors, confidence: float) -> Profile:
    Z, _ = squared.centred()
    coef = squared.models(None, np.zeros(1)).coef[:, 0]
    # E e^2 at the least squares fit is what is left of the targets off the span of the rows
    sigma2 = squared.spectrum(None).perp
    n = squared.stream.total**2 / squared.stream.square
    moments = (coef, sigma2, Z.T @ Z, 1 / squared.kappa, n)
    return lambda cost: profile_radius(squared_profile(cost, *moments), confidence)


def _smooth(stream: Stream, order: int, confidence: float) -> Passes[Profile]:
    sample = stream.kept
    kept = sample.problem(sample.ys[0], Ball(Norm(2), 0.0, 1))
    [[plain]] = Exact(tol=1e-6, max_iter=PILOT_STEPS).solve([kept], [0.0])
    start = plain.coef, plain.intercept + float(stream.center @ plain.coef)
    target = PILOT_TOL * stream.constant().risk
    problem = StreamedProblem(stream, None, 0.0)
    found = yield from problem.solve(*start, 0.0, target, PILOT_STEPS)
    b = found.intercept + float(stream.center @ found.coef)
    sums = yield ProfileSums(stream.blocks, stream.loss, found.coef, b)
    if min(sums["least"]) > 0:
        raise ValueError(
            "delta='theory' needs a plain fit to all rows, and the classes are separable: use "
            "delta='cv' or a number."
        )
    if not found.converged:
        raise ValueError(
            f"delta='theory' needs a plain fit to all rows, and it {found.message}: the classes "
            "are nearly separable, or columns differ much in scale. Scale them, or use delta='cv' "
            "or a number."
        )
    mean = {name: sums[name] / stream.total for name in ("slopes", "bends", "squares", "mixed")}
    n = stream.total**2 / float(sums["weights"])
    if order == 1:
        S = _slopes_about_center(mean["slopes"], mean["bends"], stream)
        return lambda cost: normal_radius(_under(S, cost), confidence, n)
    # xt = (z, 1), the 1 only with an intercept; the profile is that of any centre
    side = len(found.coef) + stream.fit_intercept
    second = [mean[name][:side, :side] for name in ("slopes", "bends", "squares")]
    moments = (found.coef, *second, mean["mixed"][:side], float(mean["slopes"][-1, -1]), n)
    return lambda cost: profile_radius(smooth_profile(cost, *moments), confidence)


def _under(S: Array, cost: Cost) -> Array:
    """Return L'SL."""
    L = cost.factor()
    return S if L is None else L.T @ S @ L


def _slopes_about_center(slopes: Array, bends: Array, stream: Stream) -> Array:
    """Return E a^2 (z - c)(z - c)'; a free intercept takes out the mean c, weighted by D."""
    if not stream.fit_intercept:
        return slopes[:-1, :-1]
    c = bends[-1, :-1] / bends[-1, -1]
    cross = np.outer(slopes[-1, :-1], c)
    S: Array = slopes[:-1, :-1] - cross - cross.T + slopes[-1, -1] * np.outer(c, c)
    return S
