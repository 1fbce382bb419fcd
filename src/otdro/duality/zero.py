r"""The model beta = 0: its slopes, and the least delta at which it is optimal.

With a = dl/dz at the best constant and g = E[a x] (E[a] = 0 with an intercept), beta = 0 is optimal
iff no direction pays for its price,

.. math:: \delta \ge \|g\|/\mathrm{Lip}\ \text{(order 1)},\qquad
          \delta \ge \|g\|^2/E[a^2]\ \text{(order 2)},

and under local costs of order 2 iff :math:`\delta \ge g' E[a^2 B]^{-1} g`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import full, namespace
from ..design import Design
from ..losses import Loss

Array = NDArray[Any]

#: A delta is taken for the threshold within this, relative to it.
AT_THRESHOLD = 1e-12
#: Residuals this small, relative to the targets, sit on a kink.
ON_A_KINK = 1e-9
#: A pull this small, relative to the slopes, is rounding.
ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class ZeroModel:
    """The best constant ``b``, its ``risk``, the slopes ``a`` (n,), the ``pull`` g = Z'(pi a) (d,).

    ``unique`` is False where rows on a kink leave a choice of slopes.
    """

    b: float
    risk: float
    a: Array
    pull: Array
    mean_square: float
    unique: bool

    def threshold(self, size: float, lipschitz: float, order: int) -> float:
        """Return the least delta at which beta = 0 is optimal, ``size`` the norm of the pull.

        Where the slopes are not unique this is a bound from above.
        """
        return float(threshold(size, self.mean_square, lipschitz, order))


def zero_model(
    design: Design, y: Array, weights: Array, loss: Loss, fit_intercept: bool
) -> ZeroModel:
    """Return the best model with beta = 0."""
    b = loss.constant(y, weights) if fit_intercept else 0.0
    z = full(len(y), b, y)
    a, unique = _slopes(loss, z, y, weights, fit_intercept)
    risk = float(weights @ loss.value(z, y))
    return ZeroModel(b, risk, a, design.adjoint(weights * a), float(weights @ a**2), unique)


def threshold(size: Any, mean_square: Any, lipschitz: float, order: int) -> Any:
    """Return ||g||/Lip or ||g||^2/E[a^2], one number or one per problem; 0 where g is rounding."""
    xp = namespace(size)
    real = size > ROUNDING * mean_square**0.5
    found = size / lipschitz if order == 1 else size**2 / xp.where(real, mean_square, 1.0)
    return xp.where(real, found, 0.0)


def local_threshold(zero: ZeroModel, weights: Array, B: Array) -> tuple[float, Array]:
    """Return g'E[a^2 B]^-1 g for matrices B of shape (n, d, d), and the direction E[a^2 B]^-1 g."""
    n, d = len(B), len(zero.pull)
    mean = ((weights * zero.a**2) @ B.reshape(n, -1)).reshape(d, d)
    direction = np.linalg.solve(mean, zero.pull)
    return float(zero.pull @ direction), direction


def _slopes(
    loss: Loss, z: Array, y: Array, weights: Array, fit_intercept: bool
) -> tuple[Array, bool]:
    """Return dl/dz at the constant with mean zero, and whether no other choice exists."""
    a = loss.derivative(z, y)
    pieces = loss.pieces
    if pieces is None or pieces.kappa > 0:
        return a, True
    xp = namespace(y)
    kinked = xp.abs(pieces.residual(z, y)) <= ON_A_KINK * (1 + float(xp.max(xp.abs(y))))
    a = xp.where(kinked, 0.0, a)
    mass = float(weights[kinked].sum())
    if fit_intercept and mass > 0:
        # rows on the kink share, evenly, what balances the others
        a[kinked] = -float(weights @ a) / mass
    return a, bool(xp.count_nonzero(kinked & (weights > 0)) <= 1)
