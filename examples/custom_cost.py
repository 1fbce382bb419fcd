"""A cost of your own: a function c(u, x) of batches, zero at u = x.

Here a move costs more in the second column, and more still beyond distance one: the smoothed
solver needs nothing more. Compare the coefficients with those of the plain squared distance.
"""

import numpy as np

from otdro.costs import CallableCost, Norm
from otdro.losses import Logistic
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Smoothed


def guarded(u, x):
    """Return v + v^2 with v = (u_1 - x_1)^2 + 9 (u_2 - x_2)^2, one price per row."""
    v = (u - x) ** 2 @ np.array([1.0, 9.0])
    return v + v**2


rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = np.where(X @ [1.0, 1.0] + rng.logistic(size=200) / 2 > 0, 1.0, -1.0)
weights = np.full(200, 1 / 200)

own = Problem(X, y, weights, Logistic(), Ball(CallableCost(guarded), 0.02, 2))
plain = Problem(X, y, weights, Logistic(), Ball(Norm(2), 0.02, 2))

for name, found in (
    ("guarded", Smoothed(random_state=0).solve([own], [own.ball.delta])[0][0]),
    ("plain", Exact().solve([plain], [plain.ball.delta])[0][0]),
):
    print(f"{name}: coefficients {found.coef.round(3)}")
    print(f"  {found.message}")
