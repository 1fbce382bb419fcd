"""A loss of your own: value, derivative and curvature in the score, and two constants.

The probit loss -log Phi(yz) is convex and differentiable but not Lipschitz: the smoothed and
the quadrature solver take it as it is.
"""

import numpy as np
from scipy.special import log_ndtr

from otdro.costs import Norm
from otdro.losses.base import Loss
from otdro.problem import Ball, Problem
from otdro.solvers import Quadrature, Smoothed


class Probit(Loss):
    """Probit loss -log Phi(yz) for labels in {-1, +1}."""

    task = "classification"
    lipschitz = np.inf
    smoothness = 1.0

    def value(self, z, y):
        """Return -log Phi(yz)."""
        return -log_ndtr(y * z)

    def derivative(self, z, y):
        """Return -y r with the ratio r = density/Phi at yz."""
        m = y * z
        return -y * np.exp(-(m**2) / 2 - log_ndtr(m)) / np.sqrt(2 * np.pi)

    def curvature(self, z, y):
        """Return r (r + yz)."""
        r = -y * self.derivative(z, y)
        return np.clip(r * (r + y * z), 0.0, 1.0)


rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=200) > 0, 1.0, -1.0)
problem = Problem(X, y, np.full(200, 1 / 200), Probit(), Ball(Norm(2), 0.02, 2))

for solver in (Quadrature(), Smoothed(random_state=0)):
    [[found]] = solver.solve([problem], [problem.ball.delta])
    print(f"{type(solver).__name__}: coefficients {found.coef.round(3)}")
    print(f"  {found.message}")
