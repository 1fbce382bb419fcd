r"""Mehrotra's predictor-corrector, the one driver of every interior-point method here.

A method keeps slacks and multipliers whose products tend to 0. Its Newton equations at an iterate
are an object with four methods, so that each method keeps the linear algebra that makes it fast:

* ``mean``: the mean product now, one number or one per problem of a batch;
* ``step(mu, last, length)``: the Newton step to products ``mu``, less the products that ``length``
  times the step ``last`` leaves to second order (``last`` None: without them);
* ``longest(step)``: the largest multiple of a step that leaves no slack or multiplier negative;
* ``mean_after(step, length)``: the mean product after ``length`` times a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import TINY

Array = NDArray[Any]

#: The share of the way to the boundary that a step takes.
SHORT_OF = 0.995
#: The factor by which products fall from one centre of the path to the next.
FALL = 0.1
#: The least products that are aimed at, in units of the target: smaller ones leave rounding only.
LAST = 1e-2
#: The squared Newton decrement, in units of mu, below which a barrier problem is solved.
CENTRED = 0.1
#: The share of the predicted decrease that a step of a barrier problem must bring.
ARMIJO = 0.1
#: Newton steps to one barrier problem at most.
CENTRING = 50

Iterate = TypeVar("Iterate")


def longest(*pairs: tuple[Array, Array]) -> float:
    """Return the largest multiple of moves that leaves no value negative, from (value, move)."""
    fastest = max(float((-move / (value + TINY)).max(initial=0.0)) for value, move in pairs)
    return 1 / fastest if fastest > 0 else np.inf


def corrected_step(equations: Any, least: float = 0.0) -> Any:
    """Return Mehrotra's step: towards products 0, then to the products that this step allows.

    The aim is the mean product times the cube of the share that the first step leaves, ``least``
    at least.
    """
    mean = equations.mean
    affine = equations.step(0.0 * mean)
    length = np.minimum(1.0, equations.longest(affine))
    left = equations.mean_after(affine, length) / np.where(mean > 0, mean, 1.0)
    aim = np.clip(left, 0.0, 1.0) ** 3 * mean
    return equations.step(np.maximum(aim, least), affine, length)


def follow(
    iterate: Iterate,
    advance: Callable[[Iterate], Iterate | None],
    done: Callable[[Iterate], bool],
    max_steps: int,
) -> tuple[Iterate, int]:
    """Advance an iterate until it is ``done``, and return it with the number of steps.

    The path also ends where ``advance`` has no next iterate or its equations have no solution.
    """
    steps = 0
    while not done(iterate) and steps < max_steps:
        try:
            after = advance(iterate)
        except np.linalg.LinAlgError:
            break
        if after is None:
            break
        iterate = after
        steps += 1
    return iterate, steps
