r"""Whether theta = 0 is optimal where labels change at a price.

The adversary may change a share r of each class, so that the class +1 has the mass p' in the place
of p, at most delta/kappa away; the best constant has the largest least risk at the most even p'.
With centred class masses M of the rows and slopes a of the two labels,

.. math:: \textstyle\sum m a z = M\,(a_+ - a_-)(1 - r_+ - r_-),

and what is left of the budget must pay for it: more labels of both classes may be changed than p'
asks for, which makes the classes more alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import AT_THRESHOLD
from ...duality.labels import least_price
from ..base import duality_gap
from .priced_rows import Place, PricedMinimum, PricedRows, bound

Array = NDArray[Any]

#: The share of the class +1 at which a constant model is worst off.
EVEN = 0.5


def minimise(rows: PricedRows, above: float, target: float) -> PricedMinimum | None:
    """Return theta = 0 with its gap; None where its risk is more than ``above`` or not the least.

    ``above`` is the risk of another model.
    """
    p = float(rows.weights @ (rows.y > 0))
    even = _most_even(rows, p)
    if not 0 < even < 1:
        return None
    b = _score(rows, even)
    both, masses = np.array([1.0, -1.0]), np.array([p, 1 - p])
    kept, other = (rows.loss.value(np.full(2, b), label) for label in (both, -both))
    rise = least_price(other - kept, masses, 0.0, rows.delta, rows.kappa)
    risk = float(masses @ kept) + rise.risk
    if risk > above + target:
        return None
    changed = _changed(rows, p, even, b)
    if changed is None:
        return None
    share = np.where(rows.y > 0, *changed)
    label = np.stack([rows.y, -rows.y])
    a = rows.loss.derivative(np.full_like(label, b), label)
    kept = np.array([True, False])
    lower, slopes = bound(rows, label, kept, np.stack([1 - share, share]), a)
    if risk - lower > target:
        return None
    place = Place(np.zeros(rows.design.d), b, np.zeros(rows.worst.scalars), np.full(len(rows.y), b))
    return PricedMinimum(place, risk, rise.multiplier, duality_gap(risk, lower), slopes, 1)


def _most_even(rows: PricedRows, p: float) -> float:
    """Return the share of the class +1 that is nearest to a half after changes of delta/kappa."""
    if not rows.fit_intercept:
        return p
    reach = rows.delta / rows.kappa
    return float(np.clip(EVEN, p - reach, p + reach))


def _score(rows: PricedRows, even: float) -> float:
    """Return the best constant score where the class +1 has this share; 0 where it is a half."""
    if not rows.fit_intercept or even == EVEN:
        return 0.0
    return float(rows.loss.constant(np.array([-1.0, 1.0]), np.array([1 - even, even])))


def _changed(rows: PricedRows, p: float, even: float, b: float) -> tuple[float, float] | None:
    """Return shares (r_+, r_-) of changed labels that the budget pays for, with moves; else None.

    They are the least, those of the least budget, and those that make the classes alike.
    """
    large, small = (p, 1 - p) if even <= p else (1 - p, p)
    excess = abs(p - even)
    most = 1 - excess / large
    move = _move_price(rows, even, b)
    # order 2: the least of move f^2 - 2 p (1 - p) kappa f
    middle = p * (1 - p) * rows.kappa / move if move > 0 else most
    for factor in (most, min(middle, most), 0.0):
        # 1 - r_large - r_small = factor and large r_large - small r_small = excess
        r_small = large * (most - factor)
        r_large = (excess + small * r_small) / large
        labels = rows.kappa * (excess + 2 * small * r_small)
        if labels + move * factor**rows.worst.scalars <= rows.delta * (1 + AT_THRESHOLD):
            return (r_large, r_small) if even <= p else (r_small, r_large)
    return None


def _move_price(rows: PricedRows, even: float, b: float) -> float:
    """Return what the moves cost where no label is changed."""
    a = rows.loss.derivative(np.full(2, b), np.array([1.0, -1.0]))
    # the slopes of a model with an intercept sum to zero, so that any centre of the rows will do
    y = rows.y - float(rows.weights @ rows.y) if rows.fit_intercept else rows.y
    size = rows.polar(rows.design.adjoint(rows.weights * y)) * abs(float(a[0] - a[1])) / 2
    if rows.worst.scalars == 1:
        return size / rows.loss.lipschitz
    square = float(np.array([even, 1 - even]) @ a**2)
    return size**2 / square if square > 0 else 0.0
