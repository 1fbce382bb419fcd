r"""A robust problem with its units, and its saddle form for the interior-point method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...design import Design
from ...losses.base import Array
from .rows import Rows


@dataclass(frozen=True, eq=False)
class Model:
    r"""Minimise over (theta, b) :math:`E\,\max_{lo\le\alpha\le hi}\alpha r - \kappa\alpha^2/2`,
    with r = c - o (Z theta + b), in one of four forms:

    * ``"plain"``: as it stands (delta = 0);
    * ``"linear"``: plus rate ||theta||;
    * ``"root"``: (sqrt(E r^2) + rate ||theta||)^2/(2 kappa), with r_+ for r if lo = 0;
    * ``"quadratic"``: min over nu of rate ||theta||^2/(2 nu) + the risk at curvature kappa - nu.

    ``dual`` is the exponent of the norm of theta; ``entropy`` takes the logistic loss log(1 + e^r)
    in place of the maximum; Z is ``design`` over ``size``; ``live`` is 0 at the columns of Z that
    are constant up to rounding, which must not serve as a second intercept; ``noise`` is the
    rounding error of Z'(pi o alpha); ``table`` may hold A = diag(o) Z of a small dense problem.
    """

    design: Design
    c: Array
    o: Array
    pi: Array
    lo: float
    hi: float
    kappa: float
    rate: float
    form: str
    dual: float
    intercept: bool
    entropy: bool = False
    size: float = 1.0
    live: Array | float = 1.0
    noise: Array | float = 0.0
    table: Array | None = None

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

    def norm(self, theta: Array) -> float:
        """Return ||theta||."""
        return float(np.linalg.norm(theta, self.dual))

    def sizes(self) -> Array:
        """Return the root mean square of the columns of Z, from at most 500 rows."""
        n = self.design.n
        some = self.design.rows(np.arange(0, n, -(-n // 500)))
        return self.live * np.sqrt(np.diag(some.gram(np.full(some.n, 1 / some.n)))) / self.size

    def polar(self, g: Array) -> float:
        """Return the dual norm of ||theta||."""
        return float(np.linalg.norm(g, {1: np.inf, 2: 2, np.inf: 1}[self.dual]))

    def rescaled(self, b: float, unit: float, slope: float, size: float) -> Model:
        """The model of theta size/unit and (intercept - b)/unit, alpha in units of ``slope``.

        Its risk is that of this model over unit * slope.
        """
        rate = self.rate / size**2 if self.form == "quadratic" else self.rate / (size * slope)
        return replace(
            self, c=(self.c - self.o * b) / unit, lo=self.lo / slope, hi=self.hi / slope,
            kappa=self.kappa * slope / unit, rate=rate, size=self.size * size,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Saddle:
    """Sample rows and head rows over (theta, xi), the linear cost of xi and where it starts.

    ``names`` are the scalars of xi, in this order: b the intercept, t the norm of theta, sigma =
    sqrt(E r^2), nu, q >= kappa - nu the curvature, and g (last) the multiplier of the l1 norm.
    """

    sample: Rows
    head: Rows
    names: tuple[str, ...]
    cost: Array
    start: Array
    rate: float

    @property
    def groups(self) -> tuple[Rows, Rows]:
        """Both groups of rows."""
        return self.sample, self.head


def saddle(m: Model) -> Saddle:
    """Write a model as rows."""
    names = _names(m)
    # q + nu - kappa >= 0 costs hi^2/2 = -lo hi/2 a unit for the Huber loss, past nu = kappa
    bend = -m.lo * m.hi / 2 if m.form == "quadratic" else 0.0
    # rate ||theta||_2 = min_t rate t/2 + rate ||theta||^2/(2t)
    edge = {"root": m.rate, "linear": m.rate}.get(m.form, 0.0) / (2 if m.dual == 2 else 1)
    cost = {"b": 0.0, "t": edge, "sigma": 0.5, "nu": bend, "q": bend, "g": 0.0}
    start = {"b": 0.0, "t": 1.0, "sigma": 1.0, "nu": 1.0, "q": 1.0, "g": 1.0}
    if m.kappa > 0:
        start |= {"nu": 0.5 * m.kappa, "q": 0.6 * m.kappa}
    return Saddle(
        _sample(m, names), _head(m, names), names,
        _line(cost, names), _line(start, names), m.rate,
    )  # fmt: skip


def _names(m: Model) -> tuple[str, ...]:
    quadratic, inf = m.form == "quadratic", np.inf
    wanted = {
        "b": m.intercept,
        "t": m.rate > 0 and (m.dual == inf or (m.dual == 2 and not quadratic)),
        "sigma": m.form == "root",
        "nu": quadratic,
        "q": quadratic and m.kappa > 0,
        "g": quadratic and m.dual == 1,
    }
    return tuple(name for name, present in wanted.items() if present)


def _line(values: Mapping[str, float | Array], names: tuple[str, ...]) -> Array:
    """Return the values of the named scalars, absent ones zero."""
    return np.array([values.get(name, 0.0) for name in names], dtype=float)


def _sample(m: Model, names: tuple[str, ...]) -> Rows:
    R, ones = np.zeros((len(m.c), len(names))), np.ones_like(m.c)
    if "b" in names:
        R[:, names.index("b")] = -m.o
    if m.form == "quadratic" and m.kappa == 0:
        # max alpha (r + nu (lo + hi)/2) - nu lo hi/2, the upper envelope of the ends of [lo, hi]
        R[:, names.index("nu")] = (m.lo + m.hi) / 2
    varying = "sigma" in names or "q" in names
    K = _line({"sigma": 1.0, "q": 1.0}, names)[None]
    return Rows(
        m, m.pi, m.lo * ones, m.hi * ones, m.c, R, K,
        k0=0.0 if varying else m.kappa, entropy=m.entropy,
    )  # fmt: skip


class _Selection:
    """The map A with rows -sign_i e_(at_i)'."""

    def __init__(self, sign: Array, at: Array, d: int) -> None:
        self.sign, self.at, self.d = sign, at, d

    def scores(self, theta: Array) -> Array:
        return -self.sign * theta[self.at]

    def adjoint(self, u: Array) -> Array:
        out = np.zeros((self.d, *u.shape[1:]))
        np.add.at(out, self.at, -(self.sign * u.T).T)
        return out

    def gram(self, D: Array) -> Array:
        return np.diag(np.bincount(self.at, D * self.sign**2, minlength=self.d))

    def dense(self, at: Array) -> Array:
        out = np.zeros((len(at), self.d))
        out[np.arange(len(at)), self.at[at]] = -self.sign[at]
        return out


@dataclass(frozen=True)
class _Line:
    """Rows max over alpha in [lo, hi] of alpha (h + sign theta_j + r'xi) - (k'xi) alpha^2/2."""

    sign: float
    r: Mapping[str, float]
    k: Mapping[str, float]
    lo: float = 0.0
    hi: float = np.inf
    h: float = 0.0
    first: float = 1.0


def _head(m: Model, names: tuple[str, ...]) -> Rows:
    """Return the rows of the norm of theta, then of the sign constraints on xi."""
    lines = [(line, m.design.d) for line in _norm(m, names)]
    if m.form == "quadratic" and m.dual == np.inf:
        # rate t^2/(2 nu) = max over alpha of alpha t - nu alpha^2/(2 rate)
        lines.append((_Line(0.0, {"t": 1.0}, {"nu": 1 / m.rate}, -np.inf), 1))
    signed = {"sigma", "nu", "q"} | ({"t"} if m.dual == 2 else set())
    first = {"t": m.rate / 2}
    lines += [
        (_Line(0.0, {name: -1.0}, {}, first=first.get(name, 1.0)), 1)
        for name in names
        if name in signed
    ]
    if "q" in names:
        lines.append((_Line(0.0, {"q": -1.0, "nu": -1.0}, {}, h=m.kappa), 1))
    return _stack(lines, m, names)


def _norm(m: Model, names: tuple[str, ...]) -> list[_Line]:
    if m.rate == 0:
        return []
    if m.dual == 2:
        scale = "nu" if m.form == "quadratic" else "t"
        return [_Line(1.0, {}, {scale: 1 / m.rate}, -np.inf)]
    if m.dual == 1:
        bound = 0.0 if "g" in names else m.rate
        return [_Line(1.0, {}, {}, -bound, bound)]
    start = (1.0 if m.form == "quadratic" else m.rate) / (2 * m.design.d)
    return [_Line(sign, {"t": -1.0}, {}, first=start) for sign in (1.0, -1.0)]


def _stack(lines: list[tuple[_Line, int]], m: Model, names: tuple[str, ...]) -> Rows:
    if not lines:
        # an idle row, so that both groups exist
        lines = [(_Line(0.0, {}, {}, -1.0, 1.0), 1)]
    repeat = np.repeat(np.arange(len(lines)), [count for _, count in lines])
    each = [line for line, _ in lines]
    at = np.concatenate([np.arange(count) for _, count in lines])
    breathing = np.where(np.arange(len(at)) < m.design.d, 1.0, 0.0) if "g" in names else None
    return Rows(
        _Selection(np.array([line.sign for line in each])[repeat], at, m.design.d),
        np.ones(len(at)),
        np.array([line.lo for line in each])[repeat],
        np.array([line.hi for line in each])[repeat],
        np.array([line.h for line in each])[repeat],
        np.stack([_line(line.r, names) for line in each])[repeat],
        np.stack([_line(line.k, names) for line in each])[repeat],
        share=1 / len(m.c),
        first=np.array([line.first for line in each])[repeat],
        breathing=breathing,
    )  # fmt: skip
