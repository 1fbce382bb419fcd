r"""The ball of rows in chunks: chosen on rows kept in memory, solved over all rows.

The chooser for rows in memory chooses cost and delta on the kept rows, by the same folds and rules.
A delta from folds or theory on n' rows is for n' rows: that of n rows is

.. math:: \delta_n = \delta_{n'} \sqrt{n'/n}\ \text{(order 1)},\qquad
          \delta_n = \delta_{n'}\, n'/n\ \text{(order 2)},

the rate of the robust Wasserstein profile, n and n' being effective numbers of rows,
:math:`1/\sum_i \pi_i^2`. Deltas of a grid that is given are for all rows. A delta that is given
stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..losses import Loss
from ..problem import Sample
from ..progress import logger
from ..solvers import Exact
from ..solvers.streamed import Stream, lacks, solve
from . import candidates as cost_candidates
from .checks import check_deltas, resolve_order
from .selection import Choice, Settings, choose, in_given_units

#: The least gap asked of solutions on the rows in memory: their passes over all rows start there.
IN_MEMORY_TOL = 1e-9


def require_method(loss: Loss, cost: Any, order: Any, X: Any) -> int:
    """Return the order of a problem over rows in chunks; refuse one that is not solved there."""
    tried = cost_candidates.resolve(cost, X)
    order = resolve_order(order, loss, tried.cost)
    reason = lacks(loss, order, tried.cost)
    if reason is not None:
        raise ValueError(reason)
    return order


def choose_in_chunks(stream: Stream, sample: Sample, solver: Exact, settings: Settings) -> Choice:
    """Return the ball that the settings ask for, with the certified solutions over all rows.

    ``sample`` are the rows in memory. The path is theirs, with its deltas in the unit of all rows.
    """
    order = require_method(stream.loss, settings.cost, settings.order, sample.X)
    kept = 1 / float(sample.weights @ sample.weights)
    ratio = (kept / stream.effective_rows) ** (order / 2)
    if settings.deltas is not None:
        settings = replace(settings, deltas=check_deltas(settings.deltas) / ratio)
    memory = Exact(max(solver.tol, IN_MEMORY_TOL), max(solver.max_iter, Exact.max_iter))
    choice = choose(sample, memory, settings)
    starts = choice.solutions
    if isinstance(settings.delta, str):
        note = (
            f"delta is {ratio:.3g} times that of the {len(sample.weights)} rows in memory on which "
            "the ball was chosen."
        )
        logger.info(note)
        choice = in_given_units(choice, sample, unit=1.0, price=ratio)
        choice = replace(choice, note=f"{choice.note} {note}".strip())
        problems = [sample.problem(y, choice.ball) for y in sample.ys]
        near = [[start] for start in starts]
        starts = [path[0] for path in memory.solve(problems, [choice.ball.delta], near)]
    return replace(choice, solutions=solve(stream, choice.ball, starts, solver))
