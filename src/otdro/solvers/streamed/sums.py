"""What one pass finds: sums over the rows at given models, for many models at a time.

Sums are over the weights w_i of the rows as they are, not divided by their total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ...chunks import Chunk, Sums
from ...design import Design
from ...losses import Loss
from ...problem import Solution
from .stream import Blocks, RowBlock, indicator

Array = NDArray[Any]

#: Numbers per row and model that are at hand: the score, what a loss makes of it, and on the way.
PER_MODEL = 8
#: The lengths of a step that one pass tries.
LENGTHS = (1.0, 0.5, 0.25)


@dataclass(frozen=True, eq=False)
class Models:
    """Models as columns: ``coef`` (d, B) and ``b`` (B,) on centred rows.

    Of models of several ``outputs`` each has as many columns of ``coef`` and entries of ``b``, one
    after another.
    """

    coef: Array
    b: Array
    outputs: int = 1

    @classmethod
    def of(cls, solutions: Sequence[Solution], center: Array) -> Models:
        """Return the models of solutions on the rows as given."""
        coef = np.concatenate([np.atleast_2d(sums.coef) for sums in solutions]).T
        b = np.concatenate([np.atleast_1d(sums.intercept) for sums in solutions])
        return cls(coef, b + center @ coef, len(b) // len(solutions))

    def __len__(self) -> int:
        return len(self.b) // self.outputs

    def columns(self, index: Array) -> Models:
        """Return some of the models."""
        of = (index[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        return Models(self.coef[:, of], self.b[of], self.outputs)

    def scores(self, design: Design) -> Array:
        """Return the scores of centred rows, (m, B) or (m, B, outputs)."""
        z = design.scores(self.coef) + self.b
        return z if self.outputs == 1 else z.reshape(design.n, len(self), self.outputs)


def first_sums(design: Design, a: Array) -> Array:
    """Return the sums of a t, t = (z, 1), over some rows, (d + 1,) or (d + 1, B)."""
    return np.concatenate([design.adjoint(a), a.sum(axis=0, keepdims=True)])


def second_sums(design: Design, D: Array) -> Array:
    """Return the sums of D tt', t = (z, 1), over some rows."""
    gram, bend = design.moments(D)
    sums = np.empty((len(bend) + 1, len(bend) + 1))
    sums[:-1, :-1] = gram
    sums[:-1, -1] = sums[-1, :-1] = bend
    sums[-1, -1] = D.sum()
    return sums


@dataclass(frozen=True, eq=False)
class RiskSums:
    r"""By fold, of every model: ``value`` (F, B) :math:`\sum w\ell` and ``first`` (F, d + 1, B)
    :math:`\sum wat`, t = (z, 1).

    ``rising`` (d + 1, B) are those of all rows with a > 0, of the models ``signed``; 0 of the
    others. ``second`` (G, d + 1, d + 1) are the sums of w D tt' of the models ``bent``.
    ``positive`` (B,) is the class that is +1 of every model, None where it is that of the blocks.
    """

    blocks: Blocks
    loss: Loss
    models: Models
    signed: Array
    bent: Array
    positive: Array | None = None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        (d, B), parts = self.models.coef.shape, self.blocks.folds.parts
        sums: Sums = {"value": np.zeros((parts, B)), "first": np.zeros((parts, d + 1, B))}
        sums["rising"] = np.zeros((d + 1, B))
        sums["second"] = np.zeros((len(self.bent), d + 1, d + 1))
        for f, block in self.blocks.by_fold(chunk, PER_MODEL * B):
            self._add(sums, f, block)
        return sums

    def _add(self, sums: Sums, f: int, block: RowBlock) -> None:
        design, y = Design(block.Z), self.blocks.targets(block, self.positive)
        value, a, D = self.loss.evaluate(self.models.scores(design), y)
        for second, j in zip(sums["second"], self.bent, strict=True):
            second += second_sums(design, block.w * D[:, j])
        a *= block.w[:, None]
        sums["value"][f] += block.w @ value
        sums["first"][f] += first_sums(design, a)
        if len(self.signed):
            up = np.maximum(a[:, self.signed], 0.0)
            sums["rising"][:, self.signed] += first_sums(design, up)


@dataclass(frozen=True, eq=False)
class HeldSums:
    r"""``value`` (F, B): by fold, :math:`\sum w\ell` over its rows of the models that leave it out.

    ``models`` are B models of every fold, ``positive`` (B,) their classes +1 as in ``RiskSums``.
    """

    blocks: Blocks
    loss: Loss
    models: list[Models]
    positive: Array | None = None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        B = len(self.models[0])
        total = np.zeros((len(self.models), B))
        for f, block in self.blocks.by_fold(chunk, PER_MODEL * B * self.loss.outputs):
            y = self.blocks.targets(block, self.positive)
            total[f] += block.w @ self.loss.value(self.models[f].scores(Design(block.Z)), y)
        return {"value": total}


@dataclass(frozen=True, eq=False)
class DualSums:
    r"""``conjugate`` :math:`\sum w\,\ell^*(k a)`, k = ``up`` where a > 0 and ``down`` elsewhere."""

    blocks: Blocks
    loss: Loss
    models: Models
    up: Array
    down: Array
    positive: Array | None = None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        total = np.zeros(len(self.models))
        for block in self.blocks.of(chunk, PER_MODEL * len(self.models)):
            y = self.blocks.targets(block, self.positive)
            a = self.loss.derivative(self.models.scores(Design(block.Z)), y)
            total += block.w @ self.loss.conjugate(np.where(a > 0, self.up, self.down) * a, y)
        return {"conjugate": total}


class ModelStep(NamedTuple):
    """A model (coef, b) on centred rows and its step."""

    model: Array
    step: Array

    def scores(self, design: Design) -> tuple[Array, Array]:
        """Return the scores of rows and their changes along the step."""
        both = np.column_stack(self)
        z, dz = design.scores(both[:-1]).T
        # sums of strided scores are contiguous
        return z + both[-1, 0], dz + both[-1, 1]


@dataclass(frozen=True, eq=False)
class NewtonSums:
    r"""Sums at the end of a step of one model, at shorter steps, and those of the dual point.

    After the step: ``first`` :math:`\sum wat` and ``second`` :math:`\sum wDtt'`, t = (z, 1);
    ``values`` :math:`\sum w\ell` after each of ``LENGTHS`` of the step; ``conjugate``
    :math:`\sum w\,\ell^*(\kappa(a + D\,dz))` with the slopes and curvatures of its start.
    """

    blocks: Blocks
    loss: Loss
    move: ModelStep
    kappa: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        side = len(self.move.model)
        sums: Sums = {"conjugate": 0.0, "values": np.zeros(len(LENGTHS))}
        sums |= {"first": np.zeros(side), "second": np.zeros((side, side))}
        for block in self.blocks.of(chunk, side - 1):
            self._add(sums, block)
        return sums

    def _add(self, sums: Sums, block: RowBlock) -> None:
        design, y, w, loss = Design(block.Z), block.y, block.w, self.loss
        z, dz = self.move.scores(design)
        _, a, D = loss.evaluate(z, y)
        sums["conjugate"] += w @ loss.conjugate(self.kappa * (a + D * dz), y)
        value, a, D = loss.evaluate(z + dz, y)
        shorter = [w @ loss.value(z + t * dz, y) for t in LENGTHS[1:]]
        sums["values"] += np.array([w @ value, *shorter])
        sums["first"] += first_sums(design, w * a)
        sums["second"] += second_sums(design, w * D)


@dataclass(frozen=True, eq=False)
class ProfileSums:
    r"""Sums of w q tt', t = (z, 1), at a plain fit: ``slopes`` (d + 1, d + 1) at q = a^2.

    ``bends`` are those at q = D, ``squares`` at q = D^2 and ``mixed`` (d + 1,) the sum of w a D t;
    ``weights`` is the sum of w^2, ``least`` holds the least margins.
    """

    blocks: Blocks
    loss: Loss
    coef: Array
    b: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        side = len(self.coef) + 1
        sums: Sums = {name: np.zeros((side, side)) for name in ("slopes", "bends", "squares")}
        sums |= {"mixed": np.zeros(side), "weights": 0.0, "least": []}
        for block in self.blocks.of(chunk, side):
            design = Design(block.Z)
            z = design.scores(self.coef) + self.b
            _, a, D = self.loss.evaluate(z, block.y)
            for name, q in (("slopes", a**2), ("bends", D), ("squares", D**2)):
                sums[name] += second_sums(design, block.w * q)
            sums["mixed"] += first_sums(design, block.w * a * D)
            sums["weights"] += float(block.w @ block.w)
            sums["least"] += [float((block.y * z).min(initial=np.inf))]
        return sums


@dataclass(frozen=True, eq=False)
class ResidualSums:
    r"""Of residuals e = y - shift - z'coef - b of every model.

    ``first`` :math:`\sum we`, ``square`` :math:`\sum we^2`, ``height``
    :math:`\sum we(y - shift)` and ``pull`` :math:`\sum wez`.
    """

    blocks: Blocks
    models: Models
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d, B = self.models.coef.shape
        sums: Sums = {"first": np.zeros(B), "square": np.zeros(B), "height": np.zeros(B)}
        sums["pull"] = np.zeros((d, B))
        for block in self.blocks.of(chunk, B):
            design, y = Design(block.Z), block.y - self.shift
            # y and b may be far from 0: their difference comes first
            e = block.y[:, None] - self.models.b - design.scores(self.models.coef)
            weighted = block.w[:, None] * e
            sums["first"] += weighted.sum(axis=0)
            sums["square"] += np.einsum("ij,ij->j", weighted, e)
            sums["height"] += y @ weighted
            sums["pull"] += design.adjoint(weighted)
        return sums


@dataclass(frozen=True, eq=False)
class ScatterSums:
    """By fold, of rows z drawn onto a fence about the centre: ``second`` (F, d + 1, d + 1), the
    sums of tt', t = (z, 1).

    Columns are measured in ``units``, None for their own.
    """

    blocks: Blocks
    fence: float
    units: Array | None = None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d, parts = len(self.blocks.center), self.blocks.folds.parts
        second = np.zeros((parts, d + 1, d + 1))
        for f, block in self.blocks.by_fold(chunk, d):
            Z = _fenced(block.Z if self.units is None else block.Z / self.units, self.fence)
            second[f] += second_sums(Design(Z), np.ones(len(Z)))
        return {"second": second}


@dataclass(frozen=True, eq=False)
class FencedSums:
    """Of rows drawn onto a fence about the centre: ``sums`` (K, d) of wz by class.

    ``height`` (d,) is the sum of wz(y - shift). Of the rows as they are ``distance`` is the sum of
    w times the distance from ``mean``, ``farthest`` the largest of these products in every block.
    """

    blocks: Blocks
    fence: float
    mean: Array
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d, classes = len(self.mean), self.blocks.reading.classes
        K = 1 if classes is None else len(classes)
        sums: Sums = {"sums": np.zeros((K, d)), "height": np.zeros(d)}
        sums |= {"distance": 0.0, "farthest": []}
        for block in self.blocks.of(chunk, d):
            Z = _fenced(block.Z, self.fence)
            code = self.blocks.reading.codes(block.label)
            sums["sums"] += indicator(code, K, block.w) @ Z
            sums["height"] += (block.w * (block.y - self.shift)) @ Z
            distance = block.w * _lengths(block.Z + (self.blocks.center - self.mean))
            sums["distance"] += float(distance.sum())
            sums["farthest"] += [float(distance.max(initial=0.0))]
        return sums


def _lengths(Z: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", Z, Z))


def _fenced(Z: Array, fence: float) -> Array:
    """Return the rows, those farther than ``fence`` from 0 drawn onto it."""
    drawn: Array = Z * (fence / np.maximum(_lengths(Z), fence))[:, None]
    return drawn


@dataclass(frozen=True, eq=False)
class GroupSums:
    """By group, at the models of the fold that leaves it out: what its rows lose.

    ``rows`` (G,) and ``weight`` (G,) are their number and weight, ``weighted`` (G, m) the sum of
    w times the loss, ``loss`` and ``square`` (G, m) those of the loss and its square. ``models``
    are those of every fold, ``each`` of them after another with the same class as +1: the loss of a
    row is the mean over these.
    """

    blocks: Blocks
    loss: Loss
    models: list[Models]
    each: int
    positive: Array | None = None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        groups = self.blocks.folds.groups
        assert groups is not None
        G, shape = len(groups), (len(groups), self.each)
        sums: Sums = {"rows": np.zeros(G), "weight": np.zeros(G)}
        sums |= {name: np.zeros(shape) for name in ("weighted", "loss", "square")}
        for f, block in self.blocks.by_fold(chunk, PER_MODEL * len(self.models[0].b)):
            self._add(sums, block, self.models[f])
        return sums

    def _add(self, sums: Sums, block: RowBlock, models: Models) -> None:
        assert block.group is not None
        y = self.blocks.targets(block, self.positive)
        value = self.loss.value(models.scores(Design(block.Z)), y)
        value = value.reshape(len(y), len(models) // self.each, self.each).mean(axis=1)
        G = len(sums["rows"])
        plain, weighted = (indicator(block.group, G, v) for v in (np.ones(len(block.w)), block.w))
        sums["rows"] += plain.sum(axis=1)
        sums["weight"] += weighted.sum(axis=1)
        sums["weighted"] += weighted @ value
        sums["loss"] += plain @ value
        sums["square"] += plain @ value**2


#: Columns that are eliminated at a time.
PANEL = 32


def stacked(triangles: Array) -> Array:
    """Return the factor of the rows of several factors (k, p, p)."""
    joined: Array = triangles[0]
    for R in triangles[1:]:
        # the rows of R are a triangle themselves
        joined = np.asarray(lapack.dtpqrt(len(R), min(PANEL, len(R)), joined, R)[0])
    return joined


class Triangles:
    """Factors (F, p, p) of the rows of F parts; the sum of two is that of the rows of both."""

    def __init__(self, factors: Array) -> None:
        self.factors = factors

    def __add__(self, other: Triangles) -> Triangles:
        pairs = zip(self.factors, other.factors, strict=True)
        return Triangles(np.stack([stacked(np.stack(pair)) for pair in pairs]))


@dataclass(frozen=True, eq=False)
class TriangleSums:
    """``triangles`` (F, d + 2, d + 2): by fold, the factors of (1, z, y - shift) times root w."""

    blocks: Blocks
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the factors of a chunk."""
        size, parts = len(self.blocks.center) + 2, self.blocks.folds.parts
        factors = np.zeros((parts, size, size))
        for f, block in self.blocks.by_fold(chunk, size):
            # columns first, as LAPACK reads them
            T = np.vstack([np.ones(len(block.y)), block.Z.T, block.y - self.shift])
            T *= np.sqrt(block.w)
            # R'R of the rows of R (p, p) and of more rows (m, p)
            factors[f] = lapack.dtpqrt(0, min(PANEL, size), factors[f], T.T)[0]
        return {"triangles": Triangles(factors)}
