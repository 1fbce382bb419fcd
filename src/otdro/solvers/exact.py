"""The exact solver: each problem goes to the first method that accepts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from ..arrays import library, place
from ..costs import Norm
from ..design import model_scores
from ..duality import require_lipschitz, worst_risk
from ..problem import Problem, Solution
from .base import Array, Method, Solver, Starts


@dataclass(frozen=True)
class Family:
    """Methods of one package, imported when a problem ``may`` be for them."""

    package: str
    names: tuple[str, ...]
    may: Callable[[Problem], bool]

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """One method of each class."""
        package = import_module(f".{self.package}", __package__)
        return tuple(getattr(package, name)() for name in self.names)


#: In the order in which they are asked: what is special first.
FAMILIES = (
    Family("softmax", ("MultinomialNewton",), lambda p: p.loss.outputs > 1),
    Family("labels", ("PricedLabels",), lambda p: bool(np.isfinite(p.ball.label_cost))),
    Family("finite", ("FiniteSupport",), lambda p: p.finite),
    Family("feature_map", ("Linearised",), lambda p: p.geometry == "local"),
    Family(
        "euclidean",
        ("Spectral", "Newton", "JointNewton", "Pieces"),
        lambda p: p.geometry == "euclidean",
    ),
    Family("conic", ("ActiveColumns", "InteriorPoint"), lambda p: True),
)


def candidates(problem: Problem) -> Iterator[Method]:
    """Yield the methods that a problem may be for, in the order in which they are asked."""
    for family in FAMILIES:
        if family.may(problem):
            yield from family.methods


@dataclass(eq=False, repr=False)
class Exact(Solver):
    """Minimise the worst-case risk until a dual point proves the gap.

    Parameters
    ----------
    tol : float, default 1e-6
        The gap asked for, relative to the risk of the best constant model.
    max_iter : int, default 1000
        The most iterations.
    """

    several_scores = True
    on_device = True
    unit_free = True

    tol: float = 1e-6
    max_iter: int = 1000

    def lacks(self, problem: Problem) -> str | None:
        """Return why no method accepts this problem, None if one does."""
        try:
            method(problem)
        except ValueError as refused:
            return str(refused)
        return None

    def solve(
        self,
        problems: list[Problem],
        deltas: Any,
        starts: Sequence[Starts] | None = None,
        *,
        tols: Sequence[float] | None = None,
    ) -> list[list[Solution]]:
        """Return the certified solutions of every problem at every delta (``Solver.solve``)."""
        radii = np.asarray(deltas, dtype=float)
        enough = [max(self.tol, tol) for tol in tols or [self.tol] * len(problems)]
        solved: list[list[Solution]] = [[] for _ in problems]
        positive = radii[radii > 0]
        for chosen, group in self._groups(problems, positive, enough):
            part = [problems[p].at(float(positive[0])) for p in group]
            near = None if starts is None else [starts[p][: len(positive)] for p in group]
            paths = self._by_method(chosen, part, positive, near, [enough[p] for p in group])
            for p, path in zip(group, paths, strict=True):
                solved[p] = path
        if len(positive) < len(radii):
            for p, problem in enumerate(problems):
                start = None if starts is None else starts[p][-1]
                plain = self._plain(problem.at(0.0), enough[p], start)
                solved[p] = solved[p] + [plain] * (len(radii) - len(positive))
        return solved

    def _groups(
        self, problems: list[Problem], positive: Array, tols: list[float]
    ) -> list[tuple[Method, list[int]]]:
        """Return the methods with the numbers of the problems over the same rows and targets."""
        groups: dict[Any, tuple[Method, list[int]]] = {}
        if not len(positive):
            return []
        for p, problem in enumerate(problems):
            chosen = method(problem.at(float(positive[0])), tols[p])
            key = (id(chosen), id(problem.X), id(problem.y), problem.fit_intercept)
            groups.setdefault(key, (chosen, []))[1].append(p)
        return list(groups.values())

    def _by_method(
        self,
        chosen: Method,
        problems: list[Problem],
        deltas: Array,
        starts: Sequence[Starts] | None,
        tols: list[float],
    ) -> list[list[Solution]]:
        """Return the solutions of a group of problems at positive deltas."""
        if chosen.changes_labels:
            fixed = [
                replace(problem, ball=replace(problem.ball, label_cost=np.inf))
                for problem in problems
            ]
            starts = self.solve(fixed, deltas, starts, tols=tols)
        paths = chosen.solve(problems, deltas, tols, self.max_iter, starts)
        if chosen.reaches == 0:
            return paths
        return [
            [
                s if s.converged else self._mended(problem.at(float(delta)), tol, s)
                for s, delta in zip(path, deltas, strict=True)
            ]
            for problem, tol, path in zip(problems, tols, paths, strict=True)
        ]

    def _mended(self, problem: Problem, tol: float, solution: Solution) -> Solution:
        """Return the solution of the method for any gap, if its gap is smaller."""
        delta = np.array([problem.ball.delta])
        [[other]] = method(problem).solve([problem], delta, [tol], self.max_iter, [[solution]])
        return min(solution, other, key=lambda each: each.gap)

    def _plain(self, problem: Problem, tol: float, start: Solution | None) -> Solution:
        """Return the plain fit: at delta = 0 nothing moves, so any cost will do."""
        ball = problem.ball
        euclidean = ball.cost if ball.cost.euclidean else Norm(2)
        order = ball.order if np.isfinite(problem.loss.lipschitz) else 2
        plain = replace(problem, ball=replace(ball, cost=euclidean, order=order), support=None)
        near = None if start is None else [[start]]
        chosen, zero = method(plain), np.zeros(1)
        [[found]] = chosen.solve([plain], zero, [tol], self.max_iter, near)
        if not ball.cost.is_norm or problem.finite or problem.loss.outputs > 1:
            return found
        z = model_scores(problem.X, found.coef, found.intercept)
        w = float(ball.cost.dual_norm(found.coef))
        dual = worst_risk(z, problem.y, problem.weights, problem.loss, w, ball)
        return replace(found, multiplier=dual.multiplier)


def method(problem: Problem, tol: float = 0.0) -> Method:
    """Return the first method that accepts a problem and reaches a relative gap of ``tol``.

    Where there is none, refuse with the facts that the problem lacks.
    """
    if problem.ball.order == 1 and problem.ball.cost.is_norm and not problem.finite:
        require_lipschitz(problem.loss)
    plain = problem.ball.delta == 0
    reasons = []
    for candidate in candidates(problem):
        if problem.geometry not in candidate.geometries or (plain and not candidate.accepts_zero):
            continue
        if candidate.several_scores != (problem.loss.outputs > 1) or tol < candidate.reaches:
            continue
        if np.isfinite(problem.ball.target_cost) and not (plain or candidate.moves_targets):
            continue
        if candidate.changes_labels != (np.isfinite(problem.ball.label_cost) and not plain):
            continue
        reason = candidate.lacks(problem)
        if reason is None and not _reaches(candidate, problem):
            raise ValueError(refusal_of_device(problem))
        if reason is None:
            return candidate
        reasons.append(reason)
    raise ValueError(refusal(problem, reasons))


def _reaches(candidate: Method, problem: Problem) -> bool:
    """Whether a method can have the rows where they are."""
    if library(problem.X) is None:
        return True
    ball = problem.ball
    prices = np.isfinite(min(ball.label_cost, ball.target_cost))
    return candidate.on_device and not ball.cost.structured and not prices


def refusal_of_device(problem: Problem) -> str:
    """Return the sentence for rows on a device that only a method for NumPy arrays would take."""
    loss, ball = problem.loss, problem.ball
    return (
        f"order={ball.order} with {type(loss).__name__} and {ball.cost!r} is solved for "
        f"NumPy arrays only, and X is an array of {place(problem.X)}: the logistic and squared "
        "losses under Euclidean costs of at most 2,000 columns run on a device. Use one of these, "
        "or copy X and y to NumPy."
    )


def refusal(problem: Problem, reasons: list[str]) -> str:
    """Return the sentence for a problem that no method accepts."""
    loss, ball = problem.loss, problem.ball
    if not reasons:
        return (
            f"the exact solver needs a cost with a geometry; {ball.cost!r} is a function. Use "
            "solver='smoothed'."
        )
    return (
        f"order={ball.order} with {type(loss).__name__} and {ball.cost!r} has no exact method: "
        f"{'; '.join(dict.fromkeys(reasons))}. Use order={3 - ball.order}, another cost, or "
        "solver='smoothed'."
    )
