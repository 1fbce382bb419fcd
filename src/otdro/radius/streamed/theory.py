"""Delta by theory for rows in chunks: the profile's moments from one pass at a plain fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost, Norm
from ...problem import Ball
from ...solvers import Exact
from ...solvers.streamed import Passes, ProfileSums, Stream, StreamedProblem, solve, together
from ...solvers.streamed.squared import FoldMoments
from ..profile import check_profile, normal_radius, profile_radius, squared_profile

Array = NDArray[Any]

#: The gap of the plain fit, relative to the constant model's risk, and its steps at most.
PILOT_TOL, PILOT_STEPS = 1e-9, 60


@dataclass(frozen=True, eq=False)
class Profile:
    """At the plain fit: for the squared loss its coefficients, E e^2 and the covariance ``S``; for
    others S = E a^2 (z - c)(z - c)'; ``n`` effective rows, ``bend`` the second derivative or None.
    """

    coef: Array
    sigma2: float
    S: Array
    n: float
    bend: float | None

    def delta(self, cost: Cost, confidence: float) -> float:
        """Return the profile delta under a cost."""
        if self.bend is not None:
            found = squared_profile(cost, self.coef, self.sigma2, self.S, self.bend, self.n)
            return profile_radius(found, confidence)
        L = cost.factor()
        return normal_radius(self.S if L is None else L.T @ self.S @ L, confidence, self.n)


def theory_profiles(
    stream: Stream, cost: Cost, confidence: float, moments: FoldMoments | None
) -> list[Profile]:
    """Return the profiles with the plain fits to all rows as pilots; refuse what they do not cover.

    There is one for each model.
    """
    check_profile(stream.kept, cost, confidence)
    if moments is not None:
        return [_squared(moments)]
    return together(stream.chunks, [_order_one(model) for model in stream.models])


def _squared(moments: FoldMoments) -> Profile:
    pieces = moments.stream.loss.pieces
    assert pieces is not None
    G, pull, size, _ = moments.centred()
    coef = moments.models(None, np.zeros(1)).coef[:, 0]
    # E e^2 at the least squares fit, whose residuals are orthogonal to the rows
    sigma2 = max(size - float(coef @ pull), 0.0)
    n = moments.stream.total**2 / moments.stream.square
    return Profile(coef, sigma2, G, n, 1 / pieces.kappa)


def _order_one(stream: Stream) -> Passes[Profile]:
    sample = stream.kept
    plain = Exact(tol=1e-6, max_iter=PILOT_STEPS).solve(
        sample.problem(sample.ys[0], Ball(Norm(2), 0.0, 1))
    )
    start = plain.coef, plain.intercept + float(stream.center @ plain.coef)
    target = PILOT_TOL * stream.constant().risk
    problem = StreamedProblem(stream, None, 0.0)
    found, _ = yield from solve(problem, *start, target, PILOT_STEPS)
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
    total = stream.total
    # a free intercept takes out the mean, weighted by the curvature
    c = sums["bend"] / sums["mass"] if stream.fit_intercept else np.zeros(len(sums["bend"]))
    cross = np.outer(sums["first"], c)
    S = (sums["second"] - cross - cross.T + sums["square"] * np.outer(c, c)) / total
    return Profile(found.coef, 0.0, S, total**2 / float(sums["weights"]), None)
