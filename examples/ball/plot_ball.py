"""
A learned cost shapes the ball, and the ball turns the boundary
===============================================================

Two classes that differ across a long nuisance direction. The Euclidean cost charges every move
of a given length the same. The learned cost makes moves along the nuisance cheap and moves across
the classes expensive (same trace), so that the adversary attacks by the nuisance, and the boundary
that is best against it relies on the nuisance less.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from sklearn.metrics import log_loss

from otdro import DROClassifier, plot
from otdro.metrics import LogDet

DELTA, ROWS = 0.15, [1, 28, 33]


def draw(n, seed):
    """Return n rows: spread 1.6 along a tilted line, 0.5 across it, where the classes differ."""
    rng = np.random.default_rng(seed)
    y = np.resize(["A", "B"], n)
    side = np.where(y == "B", 1, -1)[:, None]
    Z = rng.standard_normal((n, 2)) * [1.6, 0.5] + side * [0.7, 0.7]
    return Z @ np.array([[0.8, 0.6], [-0.6, 0.8]]), y


X, y = draw(40, seed=2)
X_new, y_new = draw(20_000, seed=1000)
learned = LogDet(shrinkage=0.1).fit(X, y).cost()
print(learned.table(["x0", "x1"], X), end="\n\n")

figure, axes = plt.subplots(
    1, 2, figsize=(9.6, 4.9), sharex=True, sharey=True, layout="constrained"
)
models = [DROClassifier(cost=c, order=2, delta=DELTA).fit(X, y) for c in ("euclidean", learned)]
for ax, model, name in zip(axes, models, ["Euclidean", "Learned"], strict=True):
    before = None if model is models[0] else models[0]
    drawn = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, balls=ROWS, before=before)
    loss = log_loss(y_new, model.predict_proba(X_new))
    print(f"{name:<9}: robust risk {model.robust_risk_:.3f}, log-loss on new rows {loss:.3f}")
    ax.set(title=f"{name} cost: log-loss on new rows {loss:.3f}", aspect="equal")
move = Line2D([], [], marker=r"$\rightarrow$", markersize=14, color="#555555", linestyle="none")
handles = [*drawn.rows_, drawn.balls_[0], move, drawn.boundary_, drawn.before_]
names = [
    "class A",
    "class B",
    "ball of a row",
    "adversary's move",
    "boundary",
    "Euclidean boundary",
]
figure.legend(handles, names, loc="outside lower center", ncols=6, frameon=False, columnspacing=1.5)
plt.show()
