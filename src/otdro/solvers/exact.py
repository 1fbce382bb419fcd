"""Solvers and methods: problems in, solutions with their certificates out.

A solver is what a user sets up. The exact solver hands each problem to the first method that
accepts it, of the families below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..arrays import library, namespace, numpy, pick, place
from ..costs import Norm, is_function
from ..design import model_scores
from ..duality import require_lipschitz, worst_risk
from ..problem import Problem, Solution

Array = NDArray[Any]

#: Solutions near those of one problem, one per delta.
Starts = Sequence[Solution]


class Method:
    """One way to solve some problems: it states what it accepts.

    A subclass says how one problem is solved at one delta (``_solve_one``), or overrides
    ``_solve_path`` or ``solve`` where deltas or problems can share work. The gap of its solutions
    bounds their excess over the least worst-case risk.
    """

    #: The geometries of a problem that the method is for.
    geometries: frozenset[str]
    #: Whether delta = 0, plain empirical risk, is solved too.
    accepts_zero: bool = False
    #: Whether targets may move at a price.
    moves_targets: bool = False
    #: Whether labels may be changed at a price.
    changes_labels: bool = False
    #: Whether it is for losses of several scores per row, else for those of one.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, and stay on their device.
    on_device: bool = False
    #: The least gap, relative to the constant model's risk, that the method can be asked for.
    reaches: float = 0.0

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that a problem of these geometries lacks, None if it is accepted."""
        raise NotImplementedError

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows and targets at every delta.

        They differ in weights and cost; ``deltas`` are positive and descend, ``tols`` has one
        tolerance per problem. Here each problem is solved by itself.
        """
        return each_alone(
            problems,
            starts,
            lambda p, problem, near: self._solve_path(problem, deltas, tols[p], max_iter, near),
        )

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions of one problem at every delta."""
        return along(
            problem,
            deltas,
            starts,
            lambda at, start: self._solve_one(at, tol, max_iter, start),
        )

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the method can use one."""
        raise NotImplementedError


class Solver(BaseEstimator):  # type: ignore[misc]
    """Problems in, solutions out; parameters are stored, never written.

    A subclass says how one problem is solved at one delta (``_solve_one``).
    """

    #: Whether losses of several scores per row are solved too.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, where a method for them is.
    on_device: bool = False
    #: Whether no setting is in the unit of the cost, so that rows may be measured in another one.
    unit_free: bool = False

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that the problem lacks for this solver, None if it is accepted."""
        return None

    def solve(
        self,
        problems: list[Problem],
        deltas: Any,
        starts: Sequence[Starts] | None = None,
        *,
        tols: Sequence[float] | None = None,
    ) -> list[list[Solution]]:
        """Return the solutions of every problem at every delta: ``result[p][k]``.

        Parameters
        ----------
        problems : list of Problem
            The radius of their balls does not count. Problems over the same arrays ``X`` and
            ``y`` share work where the solver can: a fold is such a problem whose rows left out
            have weight 0. The problem of all rows, with its folds after it, comes first.
        deltas : array-like of shape (m,)
            The radii, descending.
        starts : list of lists of Solution, default=None
            Solutions near those asked for, in the shape of the result.
        tols : list of float, default=None
            For every problem a gap, relative to the risk of its best constant model, that is
            small enough; the solver's own ``tol`` counts where it is larger.
        """
        return each_alone(
            problems,
            starts,
            lambda p, problem, near: along(problem, deltas, near, self._solve_one),
        )

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the solver can use one."""
        raise NotImplementedError


class Family(NamedTuple):
    """Methods of one package, imported when a problem ``may`` be for them."""

    package: str
    names: tuple[str, ...]
    may: Callable[[Problem], bool]


#: In the order in which they are asked: what is special first.
FAMILIES = (
    Family("softmax", ("MultinomialNewton",), lambda p: p.loss.outputs > 1),
    Family("labels", ("PricedLabels",), lambda p: bool(np.isfinite(p.ball.label_cost))),
    Family("finite", ("FiniteSupport",), lambda p: p.finite),
    Family("feature_map", ("Linearised",), lambda p: p.geometry == "local"),
    Family(
        "euclidean",
        ("Newton", "JointNewton", "Spectral", "Pieces"),
        lambda p: p.geometry == "euclidean",
    ),
    Family("conic", ("ActiveColumns", "InteriorPoint"), lambda p: True),
)


@cache
def _methods(package: str, names: tuple[str, ...]) -> tuple[Method, ...]:
    """Return one method of each class of a package."""
    home = import_module(f".{package}", __package__)
    return tuple(getattr(home, name)() for name in names)


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
        paths = self._attempted(chosen, problems, deltas, starts, tols)
        if chosen.reaches == 0:
            return paths
        for problem, tol, path in zip(problems, tols, paths, strict=True):
            for k, solution in enumerate(path):
                if not solution.converged:
                    # the method for any gap, if its gap is smaller
                    at, radius = problem.at(float(deltas[k])), deltas[k : k + 1]
                    [[other]] = self._attempted(method(at), [at], radius, [[solution]], [tol])
                    path[k] = min(solution, other, key=lambda each: each.gap)
        return paths

    def _attempted(
        self,
        chosen: Method,
        problems: list[Problem],
        deltas: Array,
        starts: Sequence[Starts] | None,
        tols: list[float],
    ) -> list[list[Solution]]:
        """Return the solutions of a method, where its numbers fail the constant model, unproven.

        Steps that overflow lose the comparisons that would accept them, and a gap that is not a
        number proves nothing: floating point warnings on the way say no more than the gap.
        """
        try:
            with np.errstate(all="ignore"):
                paths = chosen.solve(problems, deltas, tols, self.max_iter, starts)
        except np.linalg.LinAlgError:
            if len(problems) == 1:
                return [[_unproven(problems[0].at(float(delta))) for delta in deltas]]
            return [
                self._attempted(chosen, [problem], deltas, starts and [starts[p]], [tols[p]])[0]
                for p, problem in enumerate(problems)
            ]
        return [
            [
                solution if _is_finite(solution) else _unproven(problem.at(float(delta)))
                for solution, delta in zip(path, deltas, strict=True)
            ]
            for problem, path in zip(problems, paths, strict=True)
        ]

    def _plain(self, problem: Problem, tol: float, start: Solution | None) -> Solution:
        """Return the plain fit: at delta = 0 nothing moves, so any cost will do.

        In the coordinates of a matrix columns that are 10 digits apart are lost.
        """
        ball, euclidean = problem.ball, Norm(2)
        order = ball.order if np.isfinite(problem.loss.lipschitz) else 2
        plain = replace(problem, ball=replace(ball, cost=euclidean, order=order), support=None)
        near = None if start is None else [[start]]
        chosen, zero = method(plain), np.zeros(1)
        [[found]] = self._attempted(chosen, [plain], zero, near, [tol])
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
    ball, loss = problem.ball, problem.loss
    if ball.order == 1 and ball.cost.is_norm and not problem.finite:
        require_lipschitz(loss)
    plain = ball.delta == 0
    label_price, target_price = np.isfinite([ball.label_cost, ball.target_cost])
    asked = f"order={ball.order} with {type(loss).__name__} and {ball.cost!r}"
    reasons = []
    families = (family for family in FAMILIES if family.may(problem))
    for candidate in (one for package, names, _ in families for one in _methods(package, names)):
        if problem.geometry not in candidate.geometries or (plain and not candidate.accepts_zero):
            continue
        if candidate.several_scores != (loss.outputs > 1) or tol < candidate.reaches:
            continue
        if target_price and not (plain or candidate.moves_targets):
            continue
        if candidate.changes_labels != (label_price and not plain):
            continue
        reason = candidate.lacks(problem)
        if reason is not None:
            reasons.append(reason)
        elif library(problem.X) is None or (
            candidate.on_device and not (ball.cost.structured or label_price or target_price)
        ):
            return candidate
        else:
            raise ValueError(
                f"{asked} is solved for NumPy arrays only, and X is an array of "
                f"{place(problem.X)}: the logistic and squared losses under Euclidean costs of at "
                "most 2,000 columns run on a device. Use one of these, or copy X and y to NumPy."
            )
    if not reasons:
        raise ValueError(
            f"the exact solver needs a cost with a geometry; {ball.cost!r} is a function. Use "
            "solver='smoothed'."
        )
    raise ValueError(
        f"{asked} has no exact method: {'; '.join(dict.fromkeys(reasons))}. Use "
        f"order={3 - ball.order}, another cost, or solver='smoothed'."
    )


def resolve(
    solver: Any,
    tol: float,
    max_iter: int,
    random_state: Any = None,
    verbose: bool = False,
    *,
    cost: Any = None,
) -> Solver:
    """Return the solver that a name or an object stands for; an object keeps its own settings.

    "auto" is exact, or the stochastic solver where the ``cost`` is a function.
    The stochastic solver has defaults of its own: ``tol`` and ``max_iter`` are passed on to it
    where they are not those of a certificate.
    """
    if isinstance(solver, Solver):
        return solver
    if solver not in ("auto", "exact", "smoothed", "quadrature", "sinkhorn"):
        raise ValueError(
            f"unknown solver={solver!r}; known: auto, exact, smoothed, quadrature, sinkhorn, or a "
            "solver object."
        )
    if not (isinstance(tol, Real) and tol >= 0):
        raise ValueError(f"tol must be a number >= 0, got tol={tol!r}.")
    if not (isinstance(max_iter, Integral) and max_iter >= 1):
        raise ValueError(f"max_iter must be an integer >= 1, got max_iter={max_iter!r}.")
    named = cost is None or isinstance(cost, str)
    if solver == "exact" or (solver == "auto" and (named or not is_function(cost))):
        return Exact(tol, max_iter)
    from .smoothing import Quadrature, Sinkhorn, Smoothed

    if solver in ("quadrature", "sinkhorn"):
        kind = Quadrature if solver == "quadrature" else Sinkhorn
        return kind(tol=tol, max_iter=max_iter)
    smoothed = Smoothed(random_state=random_state, verbose=verbose)
    if tol != Exact.tol:
        smoothed.tol = tol
    if max_iter != Exact.max_iter:
        smoothed.max_iter = max_iter
    return smoothed


def along(
    problem: Problem,
    deltas: Any,
    starts: Starts | None,
    solve_one: Callable[[Problem, Solution | None], Solution],
) -> list[Solution]:
    """Solve at every delta, from the starts or each from the solution before it."""
    solved: list[Solution] = []
    for k, delta in enumerate(deltas):
        start = starts[k] if starts is not None else (solved[-1] if solved else None)
        solved.append(solve_one(problem.at(float(delta)), start))
    return solved


def each_alone(
    problems: list[Problem], starts: Sequence[Starts] | None, solve: Any
) -> list[list[Solution]]:
    """Return ``solve(p, problem, starts)`` of every problem, without its empty rows.

    A row without weight counts only where it is a place to which mass may be moved. Its part of a
    dual point is 0.
    """
    solved = []
    for p, problem in enumerate(problems):
        near = None if starts is None else starts[p]
        empty = numpy(problem.weights <= 0)
        if problem.finite or not empty.any():
            solved.append(solve(p, problem, near))
            continue
        rows = np.flatnonzero(~empty)
        fewer = replace(
            problem,
            X=pick(problem.X, rows),
            y=pick(problem.y, rows),
            weights=pick(problem.weights, rows),
        )
        if near is not None:
            near = [
                replace(start, dual=pick(start.dual, rows))
                if start.dual is not None and len(start.dual) == len(empty)
                else start
                for start in near
            ]
        path = []
        for solution in solve(p, fewer, near):
            if solution.dual is not None:
                part = numpy(solution.dual)
                dual = np.zeros((len(empty), *part.shape[1:]))
                dual[rows] = part
                solution = replace(solution, dual=dual)
            path.append(solution)
        solved.append(path)
    return solved


def same_factor(problems: list[Problem]) -> bool:
    """Whether Euclidean costs of problems have the same factor."""
    first, *others = (problem.ball.cost.factor() for problem in problems)
    return all(other is first or np.array_equal(other, first) for other in others)


def constant_solution(problem: Problem) -> Solution:
    """Return beta = 0, which is optimal: at delta no direction pays for its price."""
    b, risk = problem.constant
    return Solution(
        coef=np.zeros(problem.X.shape[1]),
        intercept=b,
        multiplier=0.0,
        objective=risk,
        gap=0.0,
        n_iter=1,
        converged=True,
        message="the constant model is optimal at this delta",
    )


def _unproven(problem: Problem) -> Solution:
    """Return the constant model, of which nothing is proved."""
    d, outputs = problem.X.shape[1], problem.loss.outputs
    return replace(
        constant_solution(problem),
        coef=np.zeros(d if outputs == 1 else (outputs, d)),
        gap=np.inf,
        converged=False,
        message="the columns differ too much in scale: no step could be computed",
    )


def _is_finite(solution: Solution) -> bool:
    """Whether coefficients, intercept and risk are numbers."""
    xp = namespace(solution.coef)
    finite = bool(xp.all(xp.isfinite(solution.coef)))
    return finite and bool(
        np.all(np.isfinite(solution.intercept)) and np.isfinite(solution.objective)
    )


def ahead(deltas: Array) -> float:
    """Return t with v_3 near v_2 + t (v_2 - v_1) on the line in log delta through two solutions.

    The last three deltas count; t is at most 1, and 0 where there are fewer or the last is 0.
    """
    if len(deltas) < 3 or deltas[-1] <= 0:
        return 0.0
    a, b, c = np.log(deltas[-3:])
    return float(min(1.0, (c - b) / (b - a)))


def duality_gap(risk: float, lower: float) -> float:
    """Return risk - lower, at least 0; inf where it is not a number, which proves nothing."""
    gap = float(risk) - float(lower)
    return np.inf if np.isnan(gap) else max(0.0, gap)


def verdict(gap: float, target: float, n_iter: int) -> str:
    """Return how a method ended, as a clause."""
    steps = f"after {n_iter} iteration{'' if n_iter == 1 else 's'}"
    if gap <= target:
        return f"gap {gap:.3g} is within the target {target:.3g} {steps}"
    return f"stopped {steps} with gap {gap:.3g} above the target {target:.3g}"
