"""One problem at its own delta, for tests of solvers."""


def solution(solver, problem, start=None):
    """Return the solution of one problem, from ``start`` if there is one."""
    starts = None if start is None else [[start]]
    [[found]] = solver.solve([problem], [problem.ball.delta], starts)
    return found
