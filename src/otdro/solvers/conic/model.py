r"""A robust problem with its units, and its saddle form for the interior-point method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...design import Design
from ...losses.base import Array
from .blocks import Scalar, coefficients, stacked
from .forms import Form, Slopes
from .norms import PenaltyNorm
from .rows import Rows

#: Rounding errors of a sum, relative to the size of its terms.
ROUNDING = 4e-16
#: The least barrier of a row, relative to that of a row of mean weight: lighter rows would be
#: crossed, and their kinks met one at a time, where the others leave a direction free.
LIGHT = 1e-2
#: Rows from which the size of a column is taken.
SAMPLED = 500


def some_rows(design: Design) -> Design:
    """Return at most ``SAMPLED`` rows, evenly spaced."""
    return design.rows(np.arange(0, design.n, -(-design.n // SAMPLED)))


@dataclass(frozen=True, eq=False)
class Model:
    r"""Minimise over (theta, b) the ``form`` of residuals c - o (Z theta + b) and of ||theta||.

    Z is ``design`` over ``size``; ``live`` is 0 at the columns of Z that are constant up to
    rounding, which must not serve as a second intercept; ``columns`` holds their sizes;
    ``outlying`` >= 1 says how many times larger than is usual a row is; ``table`` may hold A =
    diag(o) Z of a small dense problem, and ``magnitude`` its absolute values.
    """

    design: Design
    c: Array
    o: Array
    pi: Array
    form: Form
    norm: PenaltyNorm
    intercept: bool
    size: float = 1.0
    live: Array | float = 1.0
    columns: Any = 0.0
    outlying: Array | float = 1.0
    table: Array | None = None
    magnitude: Array | None = None

    def residual(self, theta: Array, b: float) -> Array:
        """Return c - o (Z theta + b)."""
        return self.c - self.scores(theta) - self.o * b

    def scores(self, theta: Array) -> Array:
        """Return A theta, A = diag(o) Z."""
        if self.table is not None:
            return self.table @ theta
        return self.o * self.design.scores(self.live * theta / self.size)

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        if self.table is not None:
            return (u.T @ self.table).T
        return (self.live * self.design.adjoint((self.o * u.T).T).T).T / self.size

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A, as o is -1 or 1."""
        G = self.design.gram(D) / self.size**2
        return G if isinstance(self.live, float) else G * np.outer(self.live, self.live)

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        if self.table is not None:
            return self.table[at]
        return self.design.rows(at).dense() * (self.o[at] / self.size)[:, None] * self.live

    def sizes(self) -> Array:
        """Return the root mean square of the columns of Z."""
        some = some_rows(self.design)
        return self.live * np.sqrt(np.diag(some.gram(np.full(some.n, 1 / some.n)))) / self.size

    def rounding(self, alpha: Array) -> Array:
        """Return the rounding error of Z'(pi o alpha)."""
        if self.magnitude is None:
            return ROUNDING * self.columns
        return ROUNDING * ((self.pi * np.abs(alpha)) @ self.magnitude)

    def clipped(self, alpha: Array) -> Array:
        """Return alpha in its box."""
        return np.clip(alpha, self.form.curve.lo, self.form.curve.hi)

    def slopes(self, alpha: Array, g: Array) -> Slopes:
        """Return the facts of slopes alpha with Z'(pi o alpha) = g."""
        return Slopes(alpha, self.pi, self.c, self.norm.polar(g))

    def rescaled(self, b: float, unit: float, slope: float, size: float) -> Model:
        """The model of theta size/unit and (intercept - b)/unit, alpha in units of ``slope``.

        Its risk is that of this model over unit * slope.
        """
        return replace(
            self,
            c=(self.c - self.o * b) / unit,
            form=self.form.rescaled(unit, slope, size),
            size=self.size * size,
        )


@dataclass(frozen=True, eq=False)
class Saddle:
    """Sample rows and head rows over (theta, xi), the linear cost of xi and where it starts.

    ``nu`` is the place of that scalar in xi, -1 if the form lacks it; with breathing head rows the
    last scalar is g, the multiplier of the l1 norm, which is maximised over.
    """

    sample: Rows
    head: Rows
    cost: Array
    start: Array
    rate: float
    nu: int

    @property
    def groups(self) -> tuple[Rows, Rows]:
        """Both groups of rows."""
        return self.sample, self.head


def saddle(m: Model) -> Saddle:
    """Write a model as rows."""
    parts = m.form.parts(m.norm, m.design.d)
    b = (Scalar(0.0, 0.0),) if m.intercept else ()
    scalars = (*b, *parts.scalars, *parts.penalty.scalars)
    ones = np.ones_like(m.c)
    R = np.tile(coefficients(parts.r, scalars), (len(ones), 1))
    if m.intercept:
        R[:, 0] = -m.o
    sample = Rows(
        map=m,
        w=m.pi,
        lo=m.form.curve.lo * ones,
        hi=m.form.curve.hi * ones,
        h=m.c,
        R=R,
        K=coefficients(parts.k, scalars)[None],
        k0=parts.k0,
        heavier=np.maximum(LIGHT * m.pi.mean() / m.pi, 1.0),
        outlying=m.outlying,
        conjugate=m.form.curve.conjugate,
    )
    # the penalty first: its breathing rows and cuts are the first rows of the head
    blocks = (*parts.penalty.blocks, *parts.blocks)
    return Saddle(
        sample=sample,
        head=stacked(blocks, scalars, m.design.d, share=1 / len(m.c)),
        cost=np.array([scalar.cost for scalar in scalars]),
        start=np.array([scalar.start for scalar in scalars]),
        rate=m.form.rate,
        nu=-1 if parts.nu is None else scalars.index(parts.nu),
    )
