"""
A robust fit is the plain fit to its own worst case
===================================================

The adversary takes the distribution of the ball that hurts the model most; the model is the best
answer to the adversary. Neither can gain by changing alone. So the plain fit, without any penalty,
to the adversary's distribution is the robust model itself: a certificate that anyone can check.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from otdro import DROClassifier, plot

rng = np.random.default_rng(0)
y = np.resize(["no", "yes"], 80)
X = rng.normal(size=(80, 2)) + np.where(y == "yes", 0.8, -0.8)[:, None] * [1.0, 0.4]

model = DROClassifier(cost="euclidean", order=2, delta=0.1, tol=1e-10).fit(X, y)
worst = model.worst_case()
print(f"the adversary spends {worst.budget:.4f} of delta = {model.delta_:g}")
print(f"risk {model.empirical_risk_:.4f}, worst case {worst.risk:.4f}, gap {model.gap_:.1e}")

plain = LogisticRegression(C=np.inf, tol=1e-10)
on_rows = plain.fit(X, y).coef_[0]
on_worst = plain.fit(worst.points, worst.targets, sample_weight=worst.weights * 80).coef_[0]
print(f"plain fit to the rows:         {on_rows.round(4)}")
print(f"plain fit to the worst case:   {on_worst.round(4)}")
print(f"robust fit to the rows:        {model.coef_[0].round(4)}")
np.testing.assert_allclose(on_worst, model.coef_[0], rtol=1e-3)

figure, ax = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
plain.fit(X, y)
drawn = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, before=plain)
handles = [*drawn.rows_, drawn.balls_[0], drawn.boundary_, drawn.before_]
names = ["no", "yes", "what a move spends", "robust boundary", "plain boundary"]
ax.legend(handles, names, frameon=False)
plt.show()
