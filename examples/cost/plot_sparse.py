"""
The cost ``"linf"`` gives few columns, ``"euclidean"`` small coefficients
=========================================================================

The penalty of a ball is the dual norm of its cost. Charging an adversary for the largest move over
all columns punishes the sum of the absolute coefficients, as the lasso does: columns leave the
model one by one. Charging the Euclidean length shrinks all coefficients together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import scale

from otdro.radius import path

X, label = make_classification(
    100, 30, n_informative=4, n_redundant=0, shuffle=False, class_sep=1.2, random_state=1
)
X, y = scale(X), np.where(label == 1, 1.0, -1.0)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, cost in zip(axes, ["linf", "euclidean"], strict=True):
    found = path(X, y, loss="logistic", cost=cost, order=1)
    used = (np.abs(found.coef) > 1e-6).sum(axis=1)
    half = int(np.argmax(found.empirical_risk <= found.empirical_risk[0] / 2))
    print(f"{cost:<9}: {used[half]} of 30 columns where half of the risk is explained")
    print(f"           largest gap along the path {found.gap.max():.1e}")
    ax.semilogx(found.deltas, found.coef[:, 4:], color="0.8")
    ax.semilogx(found.deltas, found.coef[:, :4], color="#0072B2")
    ax.set(title=f'cost="{cost}"', xlabel="delta")
axes[0].set_ylabel("coefficient (blue: the four that matter)")
plt.show()
