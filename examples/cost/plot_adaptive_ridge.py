r"""
A learned diagonal cost is an adaptive ridge
============================================

With the cost :math:`(u - x)'\Lambda(u - x)`, :math:`\Lambda` diagonal, the worst-case mean square
over the ball is

.. math:: \left(\sqrt{\tfrac1n\sum_i e_i^2} + \sqrt\delta\sqrt{\sum_j \beta_j^2/\Lambda_j}\right)^2

(Theorem 1 of the paper): a square-root ridge that punishes a slope less where moving the feature is
expensive. Its solution is also that of an ordinary ridge on the columns
:math:`x_j\sqrt{\Lambda_j}`. Three roads to the same slopes: the estimator, the formula handed to a
general-purpose minimiser, and scikit-learn's ``Ridge``.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.preprocessing import scale

from otdro import DRORegressor
from otdro.costs import Mahalanobis
from otdro.metrics import Diagonal

data = load_diabetes()
X, y = scale(data.data), scale(data.target)
weights = np.diag(Diagonal().fit(X, y).metric_)  # Lam_j: the price of moving feature j
delta = 0.02

model = DRORegressor(cost=Mahalanobis(np.diag(weights)), order=2, delta=delta, tol=1e-12)
ours = model.fit(X, y).coef_


def adaptive_ridge(beta):
    """Return the root of (DRO_RA) and its gradient; X and y are centred, the intercept is 0."""
    error = y - X @ beta
    rmse, size = np.sqrt(np.mean(error**2)), np.sqrt(np.sum(beta**2 / weights))
    slope = -X.T @ error / len(y) / rmse + np.sqrt(delta) * beta / weights / size
    return rmse + np.sqrt(delta) * size, slope


options = {"gtol": 1e-10, "ftol": 0, "maxiter": 1000}
found = minimize(adaptive_ridge, np.full(10, 0.1), jac=True, method="L-BFGS-B", options=options)

rmse, size = np.sqrt(model.empirical_risk_), model.cost_.dual_norm(ours)
ridge = Ridge(alpha=len(y) * np.sqrt(delta) * rmse / size, tol=1e-12)
rescaled = np.sqrt(weights) * ridge.fit(X * np.sqrt(weights), y).coef_

print(f"{'feature':<8} {'Lam':>6} {'DRO':>10} {'(DRO_RA)':>10} {'ridge':>10}")
for row in zip(data.feature_names, weights, ours, found.x, rescaled, strict=True):
    print("{:<8} {:6.3f} {:10.6f} {:10.6f} {:10.6f}".format(*row))
print(f"largest difference: {max(abs(ours - found.x).max(), abs(ours - rescaled).max()):.1e}")
np.testing.assert_allclose(found.x, ours, atol=1e-6)
np.testing.assert_allclose(rescaled, ours, atol=1e-6)

plain = DRORegressor(cost="euclidean", order=2, delta=delta).fit(X, y).coef_
least = np.linalg.lstsq(X, y)[0]
order = np.argsort(weights)
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(np.abs(least)[order], range(10), color="#BBBBBB", label="least squares")
ax.scatter(np.abs(plain)[order], range(10), color="#555555", marker="s", label="Euclidean cost")
ax.scatter(np.abs(ours)[order], range(10), color="#0072B2", marker="^", label="learned diagonal")
ax.set_yticks(range(10), [f"{data.feature_names[j]}  ({weights[j]:.2f})" for j in order])
ax.set(xlabel="size of the slope", title="Penalty of a slope: 1 / Lam of its feature (in brackets)")
ax.legend(loc="lower right", frameon=False)
plt.show()
