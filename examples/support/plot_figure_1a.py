"""
Figure 1(a) of the paper: on a curve, a graph keeps mass where rows can be
==========================================================================

The rows lie on a horseshoe whose ends come close, one end of each class. In the plane the ends are
neighbours: at the Euclidean price the adversary carries mass across the gap, to where no row will
ever be. Along the neighbourhood graph of all rows, labelled or not, the ends are far apart: the
same budget is spent on the curve, where new rows will really be.
"""

import matplotlib.pyplot as plt
import numpy as np

from otdro import DROClassifier, plot
from otdro.costs import Graph

rng = np.random.default_rng(4)
n, labelled = 340, 70
# from the left end of the horseshoe (just left of the top) round by the bottom to the right end
angle = np.pi / 2 + 2 * np.pi * rng.uniform(0.04, 0.96, n)
points = np.column_stack([np.cos(angle), 1.2 * np.sin(angle)])
points += 0.06 * rng.standard_normal((n, 2))
label = np.where(angle < 1.5 * np.pi, "negative", "positive")
X, y, unlabelled = points[:labelled], label[:labelled], points[labelled:]

figure, axes = plt.subplots(
    1, 2, figsize=(9.6, 5.4), sharex=True, sharey=True, layout="constrained"
)
titles = ["Euclidean cost", "Cost along the neighbourhood graph"]
fits = [
    DROClassifier("hinge", cost="euclidean", order=1, delta=0.1).fit(X, y),
    DROClassifier("hinge", cost=Graph(8), order=1, delta=0.1).fit(X, y, support=unlabelled),
]
for ax, model, title in zip(axes, fits, titles, strict=True):
    reach = 0.8 if model.cost_.is_norm else None
    ax.scatter(*unlabelled.T, s=6, color="#CCCCCC", zorder=0, label="unlabelled")
    drawn = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, balls=0, reach=reach)
    away = np.linalg.norm(drawn.moves.end[:, None] - points, axis=2).min(axis=1)
    mean = float(np.average(away, weights=drawn.moves.share))
    print(f"{title}: mass moves to places {mean:.3f} away from the nearest row, on average")
    ax.set_title(f"{title}\nmass ends {mean:.2f} away from the nearest row", fontsize=10)
    ax.set_aspect("equal")
handles, names = axes[0].get_legend_handles_labels()
figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
plt.show()
