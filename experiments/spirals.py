"""Figure 1(a) as a study: two spirals, Euclidean balls and the graph ball.

60 labelled and 400 unlabelled rows; the model is linear in cubic features. The ball "free" is the
Euclidean one in the space of the features; "plane" and "graph" move mass between the same 460
points, priced by the squared distance in the plane, straight or along the 8-nearest-neighbour
graph. delta by the same 5 folds. Writes experiments/results/spirals.csv.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from otdro.costs import Cost, Graph, Norm
from otdro.losses import Logistic
from otdro.problem import Ball, Problem
from otdro.solvers import Exact

OUT = Path(__file__).parent / "results" / "spirals.csv"


class Plane(Cost):
    """The Euclidean distance of the first two columns."""

    def transform(self, X):
        """Return the first two columns."""
        return X[:, :2]

    def norm(self, v):
        """Return the length of the first two columns."""
        return np.linalg.norm(v[..., :2], axis=-1)


def spirals(n, rng, noise=0.1, turns=1.5):
    """Return n points on two interleaved spirals of so many turns, and their labels."""
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    t = np.sqrt(rng.uniform(0.02, 1, n))
    angle = 2 * np.pi * turns * t + np.where(y > 0, 0.0, np.pi)
    points = (2 * t)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + noise * rng.normal(size=(n, 2)), y


#: A ball: its cost, whether it stays on the 460 points, its deltas.
BALLS = {
    "free": (Norm(2), False, np.geomspace(1e-4, 1, 12)),
    "plane": (Plane(), True, np.geomspace(3e-3, 1, 5)),
    "graph": (Graph(8, base=Plane()), True, np.geomspace(3e-3, 1, 5)),
}


def fit(X, y, S, ball, delta):
    """Return the robust model, over the points of X and S or over all of the feature space."""
    cost, on_points, _ = BALLS[ball]
    weights, S = np.full(len(y), 1 / len(y)), S if on_points else None
    problem = Problem(X, y, weights, Logistic(), Ball(cost, delta, 2), True, S)
    return Exact(tol=1e-4).solve([problem], [delta])[0][0]


def error(model, X, y):
    """Return the share of wrong labels."""
    return float(np.mean(y * (X @ model.coef + model.intercept) <= 0))


def log_loss(model, X, y):
    """Return the mean logistic loss."""
    return float(np.mean(np.logaddexp(0, -y * (X @ model.coef + model.intercept))))


def chosen(X, y, S, ball, seed):
    """Return the model at the delta with the least out-of-fold log loss."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))

    # held-out rows are points of the support, their labels unknown
    def held_out(delta, a, b):
        return log_loss(fit(X[a], y[a], np.vstack([S, X[b]]), ball, delta), X[b], y[b])

    deltas = BALLS[ball][2]
    losses = [np.mean([held_out(delta, a, b) for a, b in folds]) for delta in deltas]
    best = deltas[int(np.argmin(losses))]
    return fit(X, y, S, ball, best), best


def draw(seed):
    """Return test errors, log losses and deltas of both balls for one draw."""
    rng = np.random.default_rng(seed)
    (P, y), (U, _), (T, t) = (spirals(n, rng) for n in (60, 400, 4000))
    features = make_pipeline(PolynomialFeatures(3, include_bias=False), StandardScaler())
    features.fit(U)
    # the plane keeps its own scale: the first two columns are put back unscaled
    X, S, test = (np.hstack([Q, features.transform(Q)[:, 2:]]) for Q in (P, U, T))
    found = []
    for ball in BALLS:
        model, delta = chosen(X, y, S, ball, seed)
        found += [error(model, test, t), log_loss(model, test, t), delta]
    return found


def main(draws):
    """Run the draws and print the comparison."""
    table = []
    for seed in range(draws):
        table.append([seed, *draw(seed)])
        print(*(f"{value:.4g}" for value in table[-1]), flush=True)
    table = np.array(table)
    OUT.parent.mkdir(exist_ok=True)
    names = [f"{ball}_{what}" for ball in BALLS for what in ("error", "loss", "delta")]
    header = ",".join(["seed", *names])
    np.savetxt(OUT, table, delimiter=",", header=header, comments="", fmt="%.6g")
    for k, what in enumerate(("error", "log loss"), start=1):
        graph = table[:, k + 6]
        for place, ball in enumerate(("free", "plane")):
            other = table[:, k + 3 * place]
            se = (other - graph).std(ddof=1) / np.sqrt(len(graph))
            print(
                f"{what}: {ball} {other.mean():.4f}, graph {graph.mean():.4f}, "
                f"gain {(other - graph).mean():.4f} +- {se:.4f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
