"""The exact solver: each problem goes to the first method that accepts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module

import numpy as np

from ..arrays import library, place
from ..costs import Cost, Norm
from ..design import model_scores
from ..duality import (
    least_finite,
    pair_risk,
    priced_risk,
    priced_tangent,
    require_lipschitz,
    worst_risk,
)
from ..problem import Problem, Solution
from . import movable_target
from .base import Array, Method, Solver, Starts, Swept, constant_risk


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
    Family(
        "labels",
        ("PricedLabels", "PricedMultinomial"),
        lambda p: bool(np.isfinite(p.ball.label_cost)),
    ),
    Family("finite", ("FiniteSupport",), lambda p: p.finite),
    Family("feature_map", ("Linearised",), lambda p: p.geometry == "local"),
    Family("euclidean", ("Spectral", "Newton", "JointNewton"), lambda p: p.geometry == "euclidean"),
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

    tol: float = 1e-6
    max_iter: int = 1000

    def lacks(self, problem: Problem) -> str | None:
        """Return why no method accepts this problem, None if one does."""
        try:
            method(problem)
        except ValueError as refused:
            return str(refused)
        return None

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the certified solution."""
        if problem.ball.delta == 0:
            return self._plain(problem, start)
        if np.isfinite(problem.ball.label_cost):
            method(problem)
            fixed = self.solve(_fixed_labels(problem), start)
            return self._unchanged(problem, fixed) or method(problem).solve(
                problem, self.tol, self.max_iter, fixed
            )
        # a price of targets on a device is refused by ``method``
        priced = np.isfinite(problem.ball.target_cost) and library(problem.X) is None
        if priced and problem.ball.order == 1:
            return movable_target.solve(problem, self.tol, self._at_tolerance, start)
        return method(problem).solve(problem, self.tol, self.max_iter, start)

    def solve_path(
        self, problem: Problem, deltas: Array, starts: Starts | None = None
    ) -> list[Solution]:
        """Return the solutions at every delta (descending) by one method."""
        return self.solve_paths(problem, problem.weights[:, None], deltas, starts)[0]

    def solve_paths(
        self, problem: Problem, weights: Array, deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Return the solutions with each column of ``weights`` at every delta by one method."""
        if np.isfinite(problem.ball.label_cost):
            return self._priced_paths(problem, weights, deltas, starts)
        if np.isfinite(problem.ball.target_cost):
            return [super(Exact, self).solve_path(problem.weighted(w), deltas) for w in weights.T]
        positive = np.asarray(deltas)[np.asarray(deltas) > 0]
        solved: list[list[Solution]] = [[] for _ in weights.T]
        if len(positive):
            problem = problem.at(float(positive[0]))
            known = (positive, self.tol, self.max_iter, starts)
            solved = method(problem).solve_paths(problem, weights, *known)
        if len(positive) == len(deltas):
            return solved
        rest = len(deltas) - len(positive)
        plain = [self.solve(problem.weighted(column).at(0.0)) for column in weights.T]
        return [path + [last] * rest for path, last in zip(solved, plain, strict=True)]

    def folds_together(self, problem: Problem) -> bool:
        """Whether the method of these problems is faster with several at once."""
        moved = np.isfinite(problem.ball.target_cost)
        accepted = not moved and self.lacks(problem) is None
        return accepted and method(problem).folds_together(problem)

    def solve_folds(
        self, problems: list[Problem], deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows at every delta (descending)."""
        if not np.all(np.asarray(deltas) > 0):
            return super().solve_folds(problems, deltas, starts)
        if np.isfinite(problems[0].ball.label_cost):
            return self._priced_folds(problems, deltas)
        return method(problems[0]).solve_folds(problems, deltas, self.tol, self.max_iter, starts)

    def _priced_paths(
        self, problem: Problem, weights: Array, deltas: Array, starts: Starts | None
    ) -> list[list[Solution]]:
        """Return paths with a label price, from those with fixed labels, which share their work."""
        found = self.solve_paths(_fixed_labels(problem), weights, deltas, starts)
        each = [problem.weighted(column) for column in weights.T]
        paths = zip(each, found, strict=True)
        return [self._from_fixed_labels([one], deltas, [fixed])[0] for one, fixed in paths]

    def _priced_folds(self, problems: list[Problem], deltas: Array) -> list[list[Solution]]:
        """Return paths with a label price of problems over the same rows, under one cost or not."""
        fixed = [_fixed_labels(problem) for problem in problems]
        factors = [problem.ball.cost.factor() for problem in problems]
        if all(_equal(factor, factors[0]) for factor in factors):
            weights = np.stack([problem.weights for problem in problems], axis=1)
            found = self.solve_paths(fixed[0], weights, deltas)
            return self._from_fixed_labels(problems, deltas, found)
        found = self.solve_folds(fixed, deltas)
        paths = zip(problems, found, strict=True)
        return [self._from_fixed_labels([one], deltas, [path])[0] for one, path in paths]

    def _from_fixed_labels(
        self, problems: list[Problem], deltas: Array, found: list[list[Solution]]
    ) -> list[list[Solution]]:
        """Return paths with a label price from those with fixed labels, under the same cost."""
        each = [problem.at(float(delta)) for problem in problems for delta in deltas]
        fixed = [solution for path in found for solution in path]
        solved = [self._unchanged(*known) for known in zip(each, fixed, strict=True)]
        left = [j for j, one in enumerate(solved) if one is None]
        if left:
            rest, starts = [each[j] for j in left], [fixed[j] for j in left]
            priced = method(rest[0]).solve_each(rest, self.tol, self.max_iter, starts)
            for j, one in zip(left, priced, strict=True):
                solved[j] = one
        flat = [one for one in solved if one is not None]
        m = len(deltas)
        return [flat[k * m : (k + 1) * m] for k in range(len(problems))]

    def _unchanged(self, problem: Problem, fixed: Solution) -> Solution | None:
        """Return the solution with fixed labels where it is one with a label price, else None.

        The price only lets the adversary do more, so where he does not use it they are the same.
        """
        if problem.ball.delta == 0:
            return fixed
        risk = label_risk(problem, fixed)
        gap = fixed.gap + max(risk - fixed.objective, 0.0)
        if gap > max(fixed.gap, self.tol * constant_risk(problem)[1]):
            return None
        return replace(fixed, objective=max(risk, fixed.objective), gap=gap)

    def _at_tolerance(self, problem: Problem, tol: float, start: Solution | None) -> Solution:
        """Return the solution at another tolerance."""
        return Exact(tol, self.max_iter).solve(problem, start)

    def _plain(self, problem: Problem, start: Solution | None) -> Solution:
        """Return the plain fit: at delta = 0 nothing moves, so any cost will do."""
        ball = problem.ball
        euclidean = ball.cost if ball.cost.euclidean else Norm(2)
        order = ball.order if np.isfinite(problem.loss.lipschitz) else 2
        plain = replace(problem, ball=replace(ball, cost=euclidean, order=order), support=None)
        found = method(plain).solve(plain, self.tol, self.max_iter, start)
        if not ball.cost.is_norm or problem.finite or problem.loss.outputs > 1:
            return found
        z = model_scores(problem.X, found.coef, found.intercept)
        w = float(ball.cost.dual_norm(found.coef))
        dual = worst_risk(z, problem.y, problem.weights, problem.loss, w, ball)
        return replace(found, multiplier=dual.multiplier)

    def in_folds(self, tol: float) -> Exact:
        """Return the solver with a gap of ``tol`` at best."""
        return Exact(tol=max(self.tol, tol), max_iter=self.max_iter)

    def cost_in_folds(self, cost: Cost) -> Cost:
        """Return the cost, or a cheaper one near it."""
        return cost.stand_in()

    def starts_pay(self, problem: Problem) -> bool:
        """Whether the method of this problem is faster from solutions nearby."""
        return method(problem).starts_pay(problem)

    def sweeps(self, problem: Problem) -> bool:
        """Whether the method of this problem shares passes over the rows among folds."""
        return problem.ball.delta > 0 and method(problem).sweeps(problem)

    def sweep(
        self,
        problem: Problem,
        held: list[Array],
        costs: list[Cost],
        deltas: Array,
        fold_tol: float,
    ) -> Swept:
        """Return the solutions over all rows and of every fold, from passes that they share."""
        known = (deltas, self.tol, max(self.tol, fold_tol), self.max_iter)
        return method(problem).sweep(problem, held, costs, *known)


def _equal(factor: Array | None, other: Array | None) -> bool:
    """Whether two Euclidean costs have the same factor."""
    if factor is None or other is None:
        return factor is None and other is None
    return factor is other or np.array_equal(factor, other)


def _fixed_labels(problem: Problem) -> Problem:
    """Return the problem whose labels stay."""
    return replace(problem, ball=replace(problem.ball, label_cost=np.inf))


def label_risk(problem: Problem, found: Solution) -> float:
    """Return the worst-case risk of a model where labels change at a price, or a bound above it.

    The bound of order 2 is at the solution's own multiplier, which is the best one where no label
    is changed.
    """
    coef, ball, weights = found.coef, problem.ball, problem.weights
    z = model_scores(problem.X, coef, found.intercept)
    if problem.loss.outputs > 1:
        return pair_risk(problem, coef, z).risk
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    if ball.order == 2 and w > 0 and found.multiplier > least_finite(problem.loss, w):
        known = (z, problem.y, weights, problem.loss, w, ball)
        return float(priced_tangent(*known, found.multiplier).value)
    return priced_risk(z, problem.y, weights, problem.loss, w, ball).risk


def method(problem: Problem) -> Method:
    """Return the first method that accepts a problem, or refuse with the facts it lacks."""
    if problem.ball.order == 1 and problem.ball.cost.is_norm and not problem.finite:
        require_lipschitz(problem.loss)
    plain = problem.ball.delta == 0
    reasons = []
    for candidate in candidates(problem):
        if problem.geometry not in candidate.geometries or (plain and not candidate.accepts_zero):
            continue
        if candidate.several_scores != (problem.loss.outputs > 1):
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
