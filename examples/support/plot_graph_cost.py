"""
Along a graph, mass stays on its own spiral
===========================================

The adversary of a Euclidean ball carries a point straight across to the other spiral; along the
neighbourhood graph (figure 1(a) of the paper) the same budget keeps it on its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array

from otdro.costs import Graph, Norm

rng = np.random.default_rng(0)
label = np.where(np.arange(460) % 2 == 0, 1, -1)
t = np.sqrt(rng.uniform(0.02, 1, 460))
angle = 3 * np.pi * t + np.where(label > 0, 0.0, np.pi)
points = (2 * t)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
points += 0.1 * rng.normal(size=points.shape)
X, support = points[:60], points[60:]

# a labelled point half way out, and the nodes it reaches at equal mean price under either cost
row = int(np.argmin(np.abs(t[:60] - 0.7)))
graph = Graph(8)
lengths = {
    "straight line": Norm(2).distance(X[[row]], points)[0],
    "along the graph": graph.distance_to_nodes(X, support)[row],
}

figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharex=True, sharey=True)
edges = coo_array(graph.edges(points))
colours = np.array(["#c4532f", "#2f6fa8"])[(label > 0).astype(int)]
for axis, (name, length) in zip(axes, lengths.items(), strict=True):
    near = np.argsort(length)[:60]
    if name == "along the graph":
        for i, j in zip(edges.row, edges.col, strict=True):
            axis.plot(*points[[i, j]].T, color="0.85", lw=0.6, zorder=0)
    axis.scatter(*points.T, s=9, c=colours, alpha=0.35, linewidths=0)
    axis.scatter(*points[near].T, s=22, c=colours[near], linewidths=0)
    axis.scatter(*points[row], s=130, marker="*", c="black", zorder=3)
    crossed = float(np.mean(label[near] != label[row]))
    axis.set_title(f"{name}: {crossed:.0%} of the 60 nearest\nare of the other class", fontsize=10)
    axis.set_aspect("equal")
    axis.set_axis_off()
    print(f"{name}: {crossed:.0%} of the 60 nearest nodes are of the other class")
plt.show()
