"""
Six pictures say what a robust fit has learned
==============================================

The path of a fit, its coefficients, the price of each column, the region of plausible slopes, which
of three models breaks first, and which columns moved in new data. Every display takes Axes and
keeps its artists as attributes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from otdro import DROClassifier, audit, drift, plot
from otdro.metrics import LogDet

data = load_breast_cancer(as_frame=True)
# the ten means; features of one cell nucleus each
X = data.data.iloc[:, :10]
X = (X - X.mean()) / X.std()
y = data.target_names[data.target]
train, test = np.arange(0, 569, 2), np.arange(1, 569, 2)
model = DROClassifier(cost=LogDet(), cv=3, random_state=0).fit(X.iloc[train], y[train])

figure, axes = plt.subplots(2, 3, figsize=(14, 8), layout="constrained")
plot.PathDisplay.from_estimator(model, ax=axes[0, 0])
plot.CoefficientPathDisplay.from_estimator(model, ax=axes[0, 1])
plot.PriceDisplay.from_estimator(model, X, ax=axes[0, 2])
plot.ConfidenceRegionDisplay.from_estimator(model, ("mean texture", "mean area"), ax=axes[1, 0])

# the same cost for all, or their deltas could not be compared
rivals = {
    "otdro": model,
    "logistic regression, C=1": LogisticRegression().fit(X.iloc[train], y[train]),
    "logistic regression, C=1000": LogisticRegression(C=1000, max_iter=5000).fit(
        X.iloc[train], y[train]
    ),
}
audits = {
    name: audit(fit, X.iloc[test], y[test], cost=model.cost_, order=1)
    for name, fit in rivals.items()
}
certified = plot.CertifiedAccuracyDisplay.from_audits(audits, level=0.8, ax=axes[1, 1])
for name, found in audits.items():
    print(f"{name}: accuracy can fall to 80% at delta {found.breaking_point(0.8):.3f}")

# new data whose microscope has drifted
new = X.iloc[test] + np.eye(10)[1] * 0.5
moved = drift((X.iloc[train], y[train]), (new, y[test]), model=model, random_state=0)
plot.DriftDisplay.from_drift(moved, ax=axes[1, 2])
print(f"drift: {moved.verdict}; {moved.reason}")

titles = ["Path", "Coefficients", "Prices", "Confidence region", "Who breaks first", "Drift"]
for ax, title in zip(axes.flat, titles, strict=True):
    ax.set_title(title)
plt.show()
