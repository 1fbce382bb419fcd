"""One fit by a peer, in the peer's own environment: called by `peers.py`, which says how.

    python peer.py PEER PROBLEM.npz ANSWER.json

The problem holds X, y, delta, loss and order; the answer the processor seconds of the fit, without
imports, and the coefficients. NumPy and the peer are all that is imported, so that the environment
needs nothing of ours.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import numpy as np


def _declare_torchvision_operators():
    """Declare the two operators that torchvision looks for and the CPU build of torch lacks."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    # the declarations last as long as the library object
    return library


def dro(X, y, delta, loss, _):
    """Return the fit of `dro.WassersteinDRO`: a conic program by cvxpy and Clarabel."""
    kept = _declare_torchvision_operators()
    from dro.linear_model import WassersteinDRO

    model = WassersteinDRO(X.shape[1], {"logistic": "logistic", "squared": "ols"}[loss])
    model.update({"eps": delta, "p": 2})

    def run():
        model.fit(X, y)
        return np.ravel(model.theta), float(model.b)

    return run, kept


def skwdro(X, y, delta, loss, order):
    """Return the fit of skwdro's entropic solver, at its own settings."""
    return _skwdro(X, y, delta, loss, order, "entropic_torch"), None


def skwdro_dedicated(X, y, delta, loss, order):
    """Return the fit of skwdro's conic program (order 1, label price 1,000)."""
    return _skwdro(X, y, delta, loss, order, "dedicated"), None


def _skwdro(X, y, delta, loss, order, solver):
    from skwdro.linear_models import LinearRegression, LogisticRegression

    # its cost without labels (NC) ends in an overflow; this one is its default
    cost = f"t-NLC-{order}-2"
    kind = LogisticRegression if loss == "logistic" else LinearRegression
    # its radius is in the unit of the distance: rho^order bounds the mean cost
    model = kind(rho=delta ** (1 / order), cost=cost, solver=solver)

    def run():
        model.fit(X, y)
        return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])

    return run


PEERS = {"dro": dro, "skwdro": skwdro, "skwdro-dedicated": skwdro_dedicated}


def main():
    """Fit once and write the answer."""
    peer, problem, answer = sys.argv[1:]
    import torch

    torch.set_num_threads(1)
    given = np.load(problem)
    run, _ = PEERS[peer](
        given["X"],
        given["y"],
        float(given["delta"]),
        str(given["loss"]),
        int(given["order"]),
    )
    start = time.process_time()
    coef, intercept = run()
    seconds = time.process_time() - start
    found = {
        "seconds": seconds,
        "coef": coef.tolist(),
        "intercept": intercept,
        "version": version(peer.split("-")[0]),
    }
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
