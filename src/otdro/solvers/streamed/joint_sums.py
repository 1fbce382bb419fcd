r"""What one pass finds at order 2: sums over the rows of a smooth Lipschitz loss that were moved.

Every row is moved to the best of its maxima (``solvers/euclidean/joint.py``). A bound below the
risk of all models takes slopes of the form :math:`c_1 a + c_2 D + c_3 D r` (``duality/bound.py``),
a, D and r the slope, the curvature and the score less the intercept of a moved row: sums over
these three and their products are all that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...duality import DualRows, Round
from ...losses import Loss
from ..euclidean.joint import JointObjective, JointPoint
from .reading import Blocks, RowBlock

Array = NDArray[Any]


class FeasibleSlopes(NamedTuple):
    """Feasible slopes of rows moved from (theta, b, lam), by their coefficients (3,)."""

    at: Array
    coefficients: Array


@dataclass(frozen=True, eq=False)
class JointSums:
    r"""Sums at (theta, b, lam): ``value`` :math:`\sum w\psi`, its ``gradient`` and ``hessian``, and
    ``risk`` :math:`\sum w\ell`.

    Of the three parts of slopes: ``sums`` (3,), ``pulls`` (d, 3) and ``products`` (3, 3).
    ``conjugate`` is :math:`\sum w\,\ell^*` of the slopes ``before``; without these it is 0.
    ``floor`` is the least curvature of the inner
    problem, relative to lam.
    """

    blocks: Blocks
    loss: Loss
    factor: Array | None
    at: Array
    floor: float
    before: FeasibleSlopes | None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d = len(self.at) - 2
        found: Sums = {"value": 0.0, "risk": 0.0, "conjugate": 0.0}
        found |= {"gradient": np.zeros(d + 2), "hessian": np.zeros((d + 2, d + 2))}
        found |= {"sums": np.zeros(3), "pulls": np.zeros((d, 3)), "products": np.zeros((3, 3))}
        for block in self.blocks.of(chunk, d):
            self._add(found, block)
        return found

    def _add(self, found: Sums, block: RowBlock) -> None:
        objective, x, p = self._moved(block, self.at)
        gradient, hessian = objective.derivatives(x, p, np.array([self.floor]))
        found["value"] += float(x.objective[0])
        found["risk"] += float(block.w @ self.loss.value(x.z[:, 0], block.y))
        found["gradient"] += gradient[0]
        found["hessian"] += hessian[0]
        mass, parts = self._parts(objective, x, p)
        weighted = mass[..., None] * parts
        found["sums"] += weighted.sum(axis=(0, 1))
        found["pulls"] += objective.rows.design.adjoint(weighted.sum(axis=0))
        found["products"] += np.einsum("kmi,kmj->ij", weighted, parts)
        if self.before is not None:
            objective, x, p = self._moved(block, self.before.at)
            mass, parts = self._parts(objective, x, p)
            conjugate = self.loss.conjugate(parts @ self.before.coefficients, block.y)
            # a branch without mass may have any slope
            found["conjugate"] += float(np.sum(mass * np.where(mass > 0, conjugate, 0.0)))

    def _moved(self, block: RowBlock, at: Array) -> tuple[JointObjective, JointPoint, Array]:
        """Return the objective over a block, its point, and the shares of first branches."""
        design = Design(block.Z, self.factor)
        known = (block.y, block.w[:, None], np.zeros(1), True, Round())
        objective = JointObjective(DualRows(design, *known), self.loss)
        theta, b, lam = at[:-2, None], at[-2:-1], at[-1:]
        x = objective.at(theta, b, lam, design.scores(theta) + b)
        return objective, x, (x.value[0] >= x.value[-1]).astype(float)

    def _parts(self, objective: JointObjective, x: JointPoint, p: Array) -> tuple[Array, Array]:
        """Return the masses (k, m) of branches and a, D and D r of each, (k, m, 3)."""
        mass = objective.rows.weights * objective.shares(x, p)
        a, D = x.slope[..., 0], x.curvature[..., 0]
        reached = (x.z - x.b + x.shift)[..., 0]
        return mass[..., 0], np.stack([a, D, D * reached], axis=-1)
