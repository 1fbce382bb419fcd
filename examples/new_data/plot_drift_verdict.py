"""
The verdict on a batch: inside the ball, outside, or cannot tell
================================================================

A model is guarded within its own delta. New rows are measured in the same unit, the mean cost of
moving the old rows onto the new ones, by bounds that no chance can fake and an estimate beside its
noise. The verdict says "outside" only where a lower bound exceeds its noise and delta, and "inside"
only with labels.
"""

import matplotlib.pyplot as plt
import numpy as np

from otdro import DROClassifier, drift

rng = np.random.default_rng(0)


def batch(n, shift):
    """Return n rows of three columns whose first column has moved by ``shift``."""
    X = rng.normal(size=(n, 3))
    y = np.where(X @ [1.0, -0.7, 0.3] + 0.5 * rng.normal(size=n) > 0, "yes", "no")
    return X + shift * np.eye(3)[0], y


X, y = batch(600, 0.0)
model = DROClassifier(cost="euclidean", order=1, delta=0.25).fit(X, y)
shifts = [0.0, 0.1, 0.2, 0.4, 0.8]
found = [drift((X, y), batch(600, shift), model=model, random_state=0) for shift in shifts]
for shift, result in zip(shifts, found, strict=True):
    bound = max(value for value in result.lower_bounds.values() if value is not None)
    print(f"shift {shift:.1f}: at least {bound:.3f}, estimate {result.estimate:.3f}, ", end="")
    print(f"noise {result.noise_floor:.3f}, p {result.p_value:.3f}: {result.verdict}")

figure, ax = plt.subplots(figsize=(6.8, 4), layout="constrained")
ax.plot(shifts, [f.estimate for f in found], "o-", label="estimate, with its noise")
ax.plot(shifts, [f.lower_bounds["score"] for f in found], "s-", label="scores: a lower bound")
ax.plot(shifts, [f.lower_bounds["mean"] for f in found], "^-", label="means: a lower bound")
ax.axhline(found[0].noise_floor, color="0.7", linestyle=":", label="noise of the estimate")
ax.axhline(model.delta_, color="#D55E00", linestyle="--", label="delta of the model")
for shift, result in zip(shifts, found, strict=True):
    ax.annotate(result.verdict, (shift, result.estimate), (0, 8), textcoords="offset points")
ax.set(xlabel="shift of one column, in standard deviations", ylabel="mean cost of the move")
ax.margins(0.12)
ax.legend(frameon=False)
plt.show()
