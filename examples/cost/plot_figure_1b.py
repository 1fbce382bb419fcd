"""
Figure 1(b) of the paper: a learned cost makes the deciding feature expensive
=============================================================================

Two standard normal features, the label decided by the first alone. The learned cost makes moves
along the first feature expensive and moves along the second cheap, at the same trace. The adversary
must compromise between what is cheap and what raises the loss; the fit that is best against it
leans less on the second feature than one against the Euclidean adversary.
"""

import matplotlib.pyplot as plt
import numpy as np

from otdro import DROClassifier, plot
from otdro.metrics import LogDet

rng = np.random.default_rng(5)
X = rng.standard_normal((60, 2))
y = np.where(X[:, 0] + 0.4 * rng.standard_normal(60) > 0, "positive", "negative")
learned = LogDet(shrinkage=0.1).fit(X, y).cost()
price = learned.table(["X(1)", "X(2)"]).price
print(f"price of a unit move: X(1) {price[0]:.2f}, X(2) {price[1]:.2f}")

plain = DROClassifier(cost="euclidean", delta=0.0).fit(X, y)
ratios = {"width_ratios": [1, 1, 0.6]}
figure, axes = plt.subplots(1, 3, figsize=(12, 4.4), gridspec_kw=ratios, layout="constrained")
for ax, cost, name in zip(axes, ["euclidean", learned], ["Euclidean", "Learned"], strict=False):
    model = DROClassifier(cost=cost, order=2, delta=0.2).fit(X, y)
    slopes = model.coef_[0]
    ratio = abs(slopes[1] / slopes[0])
    print(f"{name:<9} cost: ratio of the slopes {ratio:.3f}, robust risk {model.robust_risk_:.3f}")
    drawn = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, before=plain, balls=4)
    ax.set(title=f"{name} cost, delta {model.delta_:g}", aspect="equal")
    ax.set(xlabel="X(1), decides the label", ylabel="X(2), does not")
handles = [*drawn.rows_, drawn.balls_[0], drawn.boundary_, drawn.before_]
names = ["negative", "positive", "ball of a row", "robust boundary", "plain boundary"]
figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False)
plot.PriceDisplay.from_cost(learned, feature_names=["X(1)", "X(2)"], ax=axes[2])
axes[2].set_title("What the learned cost charges")
plt.show()
