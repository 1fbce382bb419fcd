r"""The drift: how far new rows are from old ones, in the unit of a ball's delta.

With c = distance^p, the masses of each class moved within it and the classes weighted by share,
moving one sample onto the other costs at least

* mean: :math:`\|\bar u - \bar x\|^p`;
* score: :math:`W_p(v'x, v'u)^p / \|v\|_*^p` for every v, by sorting; v = beta is what a model sees;
* Gelbrich, for p = 2 and a Euclidean cost: the squared distance of the means plus
  :math:`\operatorname{tr}(A + B - 2(A^{1/2} B A^{1/2})^{1/2})` of the whitened covariances.

These bounds do not grow with dimension, as the transport cost of two samples does. What chance
alone gives is computed from the same two samples with each class at one mean, their rows
exchanged at random within their class: two samples of one population, of the same sizes.

Of batches of a table it gives the deltas that really happened. With transport cost D between two of
them and :math:`D_0` by chance, the move that chance does not explain is about
:math:`\max(D^{2/p} - D_0^{2/p}, 0)^{p/2}`: a drift and the noise of a sample are independent, so
that the squares of their lengths add up. The lower bounds, less their noise, may say more.
Quantiles of the larger over the batches are deltas to ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, kolmogorov
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target

from ..arrays import numpy
from ..costs import Cost
from ..costs.table import Grid, cost_name, named
from ..design import as_dense, column_scale
from ..estimators.columns import ColumnGroups, column_groups, score_vectors
from ..pairs import generator
from ..problem import Ball
from ..worst_case import discrepancy
from .auditing import RARE, Audit, audit, check_target, resolve_ball
from .certificate import ROUNDING, AccuracyCurve, accuracy_curve, is_right
from .linear import LinearModel, finite_rows, read, require_columns
from .summary import DriftTable, drift_dict, drift_text, shares_in_words

Array = NDArray[Any]

#: What a row switches to whose category has no column.
OTHER_VALUE = "another value"
#: Fewest new rows, or blocks of rows of a class, that say anything about a drift.
LEAST_NEW = 10
#: Fewest rows of a reference.
LEAST_REFERENCE = 20
#: Rows of a sample up to which the transport cost is that of all rows.
ALL_UP_TO = 2_000
#: Rows drawn from a larger sample for its transport cost.
DRAWN = 1_000
#: Random exchanges of rows behind the noise floor: each solves a transport problem.
FLOOR_DRAWS = 5
#: Random exchanges of rows behind the noise of the bounds: with 19, one in 20 is larger.
BOUND_DRAWS = 19
#: Permutations behind a p-value: the least one is 1/(PERMUTATIONS + 1).
PERMUTATIONS = 499
#: The shares of the batches whose deltas are stated.
BATCH_LEVELS = (0.5, 0.8, 0.95, 1.0)
#: What the deltas of the table are, beside the bound that a limit is about.
DELTA = (
    "delta: the larger of the transport cost and of the lower bound, each less what chance gives; "
    "a limit on drift is compared with the lower bound beyond chance alone."
)
INSIDE, OUTSIDE, CANNOT_TELL = "inside", "outside", "cannot tell"


@dataclass(frozen=True, eq=False)
class LabelShift:
    """Class shares of both samples and the total variation between them, ``distance``.

    ``p_value`` is that of a chi-square test that both have the same shares.
    For numbers ``labels`` and ``p_value`` are None, the shares are empty, and ``distance`` is the
    mean move of the targets in standard deviations of the reference.
    """

    labels: list[str] | None
    reference: Array
    new: Array
    distance: float
    p_value: float | None

    @property
    def beyond_chance(self) -> bool:
        """Whether the class shares differ by more than chance gives."""
        return self.p_value is not None and self.p_value < RARE

    def to_dict(self) -> dict[str, Any]:
        """Return it in lists and numbers."""
        shares = {"reference": self.reference.tolist(), "new": self.new.tolist()}
        return vars(self) | shares


@dataclass(frozen=True, eq=False)
class Drift:
    """How far new rows are from a reference, as mean transport cost E[c], c = distance^order.

    Where the labels of both are known, rows move within their class, and the reference is weighted
    to the class shares of the new rows first; ``label_shift`` holds the shares.

    Attributes
    ----------
    cost, order
        The price of a move.
    names : list of str
        The columns, prepared as the model sees them.
    n_reference, n_new : int
        The numbers of rows.
    lower_bounds : dict
        "mean", "gelbrich" and "score": what moving one sample onto the other costs at least, of all
        rows; None where one does not apply (Gelbrich: order 2 and a Euclidean cost; score: a
        model).
    bound_noise : dict
        The largest of the same bounds by chance: between samples of these sizes of one population.
    estimate : float
        The transport cost itself, exact on ``rows_used`` rows of the reference and of the new ones;
        not debiased: part of it is sampling noise.
    noise_floor : float
        The mean transport cost by chance: between samples of these sizes of one population.
    rows_used : tuple of two int
        The rows behind the estimate and behind its noise.
    p_value : float
        Of the energy distance on the rows used (of large samples also of means of blocks of all
        rows), by permutations within classes.
    columns : DriftTable
        How far each column moved by itself; a column of categories is one column.
    label_shift : LabelShift or None
        How the shares of the classes, or the targets, changed.
    delta : float or None
        The radius that the verdict is about: that the model was fitted for, or audited for.
    accuracy : dict
        With a model and labels: "reference", "reweighted" (the reference with the new class
        shares), "new" (the new rows); None where labels are missing.
    tau : float or None
        Regression: a prediction is right within tau of its target, half a standard deviation of the
        targets of the reference unless an audit was given another.
    notes : list of str
        What the reader should know.
    regression : bool
        Whether a model of numbers sees the rows.
    certificate : AccuracyCurve or None
        With a model and labels: the certified accuracy of the reference with the new class shares.
    label_cost : float
        The price of changing a label in the ball; inf: labels stay.
    new_values : dict
        The columns of categories with values that no reference row has: in how many new rows.
    """

    cost: Cost
    order: int
    names: list[str]
    n_reference: int
    n_new: int
    lower_bounds: dict[str, float | None]
    bound_noise: dict[str, float | None]
    estimate: float
    noise_floor: float
    rows_used: tuple[int, int]
    p_value: float
    columns: DriftTable
    label_shift: LabelShift | None
    delta: float | None
    accuracy: dict[str, float | None]
    tau: float | None
    notes: list[str]
    regression: bool = False
    certificate: AccuracyCurve | None = None
    label_cost: float = np.inf
    new_values: dict[str, int] = field(default_factory=dict)

    @property
    def beyond_noise(self) -> dict[str, float]:
        """What is left of each lower bound after its noise; this is compared with delta.

        With c = distance^p it is (bound^(1/p) - noise^(1/p))^p, at least 0: roots obey the triangle
        inequality.
        """
        root = 1 / self.order
        left = {}
        for name, bound in self.lower_bounds.items():
            noise = self.bound_noise[name]
            if bound is not None and noise is not None:
                left[name] = max(bound**root - noise**root, 0.0) ** self.order
        return left

    @property
    def labels(self) -> list[str]:
        """The classes that rows move within; empty where labels are unknown or numbers."""
        shift = self.label_shift
        return [] if shift is None or shift.labels is None else shift.labels

    @property
    def moved_scores(self) -> float | None:
        """The transport cost of the scores, where a distribution of the same is all a model sees.

        It is where labels are known and two classes have one score, the "score" bound.
        """
        return self.lower_bounds["score"] if len(self.labels) == 2 else None

    @property
    def certified_accuracy(self) -> float | None:
        """With a model and labels: no batch with these class shares as far away has a lower one.

        Two classes: as far by the scores; more: by ``estimate``.
        """
        if self.certificate is None:
            return None
        moved = self.moved_scores
        return float(self.certificate.accuracy(self.estimate if moved is None else moved))

    @property
    def verdict(self) -> str | None:
        """Whether the new rows are in the ball: inside, outside or cannot tell; None without one.

        ``reason`` says whether rows are inside, or only the scores of a model of two classes.
        """
        return self._answer[0]

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self._answer[1]

    @cached_property
    def _answer(self) -> tuple[str | None, str]:
        """Return the verdict and the reason.

        Outside: what is left of a lower bound after its noise exceeds delta, or labels stay and the
        class shares differ beyond chance, or a column of categories has a value that no reference
        row has. Inside: labels are known, and the transport cost is at most delta, or that of the
        scores is: then a distribution in the ball has the same scores and labels, and no promise
        about a model with one score can tell the two apart. Without labels, and for targets that
        are numbers, the cost is only a lower bound; so it is where shares differ and changes of
        labels have a price.
        """
        delta, estimate, scores = self.delta, self.estimate, self.moved_scores
        if delta is None:
            return None, (
                "there is no ball to compare with: that takes a model which was fitted for a "
                "delta, or a model and labelled rows of which moves can make enough wrong."
            )
        beyond = self.beyond_noise
        name = max(beyond, key=beyond.__getitem__)
        compared = (
            f"the {name} bound is {self.lower_bounds[name]:.4g}, and up to "
            f"{self.bound_noise[name]:.4g} by chance; beyond that chance it is {beyond[name]:.4g}"
        )
        shift = self.label_shift
        others = shift is not None and shift.beyond_chance
        reasons = []
        if beyond[name] > delta:
            reasons.append(f"{compared}, more than delta = {delta:.4g}")
        if shift is not None and others and np.isinf(self.label_cost):
            words = shares_in_words(shift)
            reasons.append(f"labels stay in the ball, and the class shares are others: {words}")
        if self.new_values:
            where = ", ".join(f"{name} ({n:,} rows)" for name, n in self.new_values.items())
            reasons.append(f"values that no reference row has are in no ball: {where}")
        if reasons:
            return OUTSIDE, "; ".join(reasons) + "."
        if self.labels and not others and estimate <= delta:
            return INSIDE, f"the transport cost {estimate:.4g} is within delta = {delta:.4g}."
        if self.labels and not others and scores is not None and scores <= delta:
            return INSIDE, (
                f"the scores of this model moved by {scores:.4g}, within delta = {delta:.4g}, so "
                "that what was certified of its predictions holds. The rows themselves may be "
                f"outside: their transport cost is {estimate:.4g}, part of it chance."
            )
        remedy = "without labels this distance is only a lower bound: label some of the new rows"
        if self.regression:
            remedy = "the targets are numbers, of whose changes this distance sees nothing"
        elif others:
            remedy = "the class shares are others, and this distance has no price of labels"
        elif self.labels:
            remedy = (
                f"the transport cost {estimate:.4g} exceeds delta, but part of it is sampling "
                "noise: gather more rows"
            )
        return CANNOT_TELL, f"{compared}, not more than delta = {delta:.4g}; {remedy}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything in lists, numbers and strings; see docs/audit.md."""
        return drift_dict(self)

    def summary(self) -> str:
        """Return the drift in words."""
        return drift_text(self)

    def __str__(self) -> str:
        return self.summary()


def drift(
    reference: Any,
    new: Any,
    *,
    cost: Any = None,
    order: Any = None,
    model: Any = None,
    random_state: Any = None,
) -> Drift:
    """Return how far the new rows are from the reference.

    Parameters
    ----------
    reference, new : X or tuple (X, y)
        Rows, with labels where they are known; at least 10 new rows.
    cost : as in the estimators, default=None
        None: that of the model's ball, else Euclidean.
    order : {1, 2}, default=None
        None: that of the model's ball, else 1.
    model : fitted linear model, Pipeline or transformer, default=None
        What sees the rows: its steps come first, its scores give a bound, and its ball (or, with a
        labelled reference, the delta at which it can be as bad as a constant) gives the verdict. A
        transformer only prepares the rows.
    random_state : int, default=None
        Seeds subsamples, splits and permutations; None is a fixed seed.

    Returns
    -------
    Drift

    Examples
    --------
    >>> import numpy as np
    >>> from otdro import drift
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> found = drift(X, X + [0.8, 0.0, 0.0])
    >>> print(f"at least {found.lower_bounds['mean']:.2f}; p-value {found.p_value:.3f}")
    at least 0.80; p-value 0.002
    """
    X, y = _rows_and_labels(reference)
    prepares = hasattr(model, "get_feature_names_out") and not hasattr(model, "predict")
    if model is None or prepares:
        return _drift_of_columns(X, y, new, model, cost, order, random_state)
    if y is not None:
        options = {"cost": cost, "order": order, "random_state": random_state}
        return drift_from_audit(audit(model, X, y, **options), new, random_state)
    linear = read(model, X)
    rows = linear.rows(X, "reference")
    ball = resolve_ball(cost, order, linear.ball, rows, None, regression=False)
    delta = linear.fitted_delta(ball.cost, ball.order)
    V = linear.rows(_rows_and_labels(new)[0], "new")
    return _measured(rows, V, linear.groups, ball, random_state, model=linear, delta=delta)


def drift_from_audit(audited: Audit, new: Any, random_state: Any) -> Drift:
    """Return how far new rows are from those of an audit."""
    model, delta = audited.model, audited.audited_delta
    X_new, y_new = _rows_and_labels(new)
    V = model.rows(X_new, "new")
    return _measured(
        audited.X,
        V,
        model.groups,
        audited.ball(0.0),
        random_state,
        target=audited.target,
        target_new=None if y_new is None else check_target(y_new, V.shape[0], model, "new y"),
        labels=[] if model.classes is None else [str(c) for c in model.classes],
        model=model,
        delta=delta if np.isfinite(delta) else None,
        audited=audited,
    )


def _drift_of_columns(
    X: Any, y: Any, new: Any, front: Any, cost: Any, order: Any, random_state: Any
) -> Drift:
    """Return the drift of rows without a model, as they are or as ``front`` prepares them."""
    X_new, y_new = _rows_and_labels(new)
    columns = [str(column) for column in getattr(X, "columns", [])]
    require_columns(X_new, columns, "new", "the reference", "reference.columns")
    names = []
    if front is not None:
        X, X_new = front.transform(X), front.transform(X_new)
        names = [str(name) for name in front.get_feature_names_out()]
    groups = column_groups(front, names or named(None, X, np.shape(X)[1] if np.ndim(X) == 2 else 0))
    d = len(groups.names)
    U, V = (
        finite_rows(rows, d, groups.names, name, "the reference")
        for rows, name in ((X, "reference"), (X_new, "new"))
    )
    for values, size, name in ((y, U.shape[0], "reference"), (y_new, V.shape[0], "new")):
        if values is not None and len(column_or_1d(values)) != size:
            raise ValueError(f"{name} has {size} rows but {len(values)} labels.")
    labels: list[str] = []
    target = None if y is None else column_or_1d(y)
    target_new = None if y is None or y_new is None else column_or_1d(y_new)
    if target is not None and type_of_target(target) in ("binary", "multiclass"):
        both = target if target_new is None else np.concatenate([target, target_new])
        classes, codes = np.unique(both, return_inverse=True)
        labels = [str(c) for c in classes]
        target = codes[: len(target)]
        target_new = None if target_new is None else codes[len(target) :]
    elif target is not None:
        target = target.astype(float)
        target_new = None if target_new is None else target_new.astype(float)
    ball = resolve_ball(
        cost, order, None, U, target, regression=not labels, random_state=random_state
    )
    return _measured(
        U, V, groups, ball, random_state, target=target, target_new=target_new, labels=labels
    )


def _rows_and_labels(given: Any) -> tuple[Any, Any]:
    """Return (X, y) of a pair, (X, None) of rows."""
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"rows must be X or a pair (X, y), got {len(given)} things.")
        return given[0], given[1]
    return given, None


def _measured(
    U: Any,
    V: Any,
    groups: ColumnGroups,
    ball: Ball,
    random_state: Any,
    *,
    target: Array | None = None,
    target_new: Array | None = None,
    labels: Sequence[str] = (),
    model: LinearModel | None = None,
    delta: float | None = None,
    audited: Audit | None = None,
) -> Drift:
    """Return the drift of rows V from rows U, both in the prepared columns of ``groups``.

    Targets are numbers of the ``labels``, or numbers where there are none. ``delta`` is the radius
    that is asked about, ``audited`` the audit of the model on U.
    """
    U, V = (np.asarray(numpy(as_dense(rows)), dtype=np.float64) for rows in (U, V))
    n, m = len(U), len(V)
    if m < LEAST_NEW:
        raise ValueError(
            f"there are {m} new rows; fewer than {LEAST_NEW} say nothing of a drift. Gather more."
        )
    if n < LEAST_REFERENCE:
        raise ValueError(
            f"the reference has {n} rows; at least {LEAST_REFERENCE} are needed to tell drift "
            "from noise."
        )
    own, own_new = np.zeros(n, dtype=int), np.zeros(m, dtype=int)
    if labels and target is not None and target_new is not None:
        own, own_new = target, target_new
    lacking = [labels[k] for k in np.setdiff1d(own_new, own)]
    if lacking:
        raise ValueError(
            f"new has labels that the reference lacks, {lacking[:5]}: labels cannot move, so that "
            "the distance is infinite. Leave those rows out, or add such rows to the reference."
        )
    if max(np.bincount(own).max(), np.bincount(own_new).max()) < 2:
        raise ValueError(
            "every class has one row in each sample, so that chance cannot be told from drift: "
            "merge classes of few rows, or leave the labels out."
        )
    rng = generator(random_state)
    cost, order = ball.cost, ball.order
    vectors = None if model is None else score_vectors(model.coef)
    samples = used = match(U, own, V, own_new)
    if max(n, m) > ALL_UP_TO:
        first, second = (rng.permutation(size)[:DRAWN] for size in (n, m))
        used = match(U[first], own[first], V[second], own_new[second])
    p_value = permutation_p_value(used, cost, rng)
    if used is not samples:
        # means of blocks keep what all rows say of the means; the lesser p-value, doubled, is valid
        means = block_means(samples, -(-max(n, m) // DRAWN), rng)
        p_value = min(1.0, 2 * min(p_value, permutation_p_value(means, cost, rng)))
    bounds = lower_bounds(samples, cost, order, vectors)
    floor = [transport_cost(exchanged(used, rng), cost, order) for _ in range(FLOOR_DRAWS)]
    draws = [
        lower_bounds(exchanged(samples, rng), cost, order, vectors) for _ in range(BOUND_DRAWS)
    ]
    noise = {
        name: None if value is None else max(float(draw[name] or 0.0) for draw in draws)
        for name, value in bounds.items()
    }
    # the reference with the class shares of the new rows
    counts, new_counts = (np.bincount(part, minlength=own.max() + 1) for part in (own, own_new))
    mass = new_counts[own] / (m * counts[own])
    weights = np.full(n, 1 / n) if audited is None else audited.weights
    shift = _label_shift(target, target_new, weights, list(labels))
    certificate = None
    accuracy: dict[str, float | None] = {"reference": None, "reweighted": None, "new": None}
    if audited is not None:
        accuracy["reference"] = audited.accuracy(0.0)
        if target_new is not None:
            right = is_right(audited.model.scores(V), target_new, audited.tau)
            accuracy["new"] = float(right.mean())
            certificate = accuracy_curve(audited.price, mass, audited.right) if labels else None
        if certificate is not None:
            accuracy["reweighted"] = certificate.accuracy(0.0)
    return Drift(
        cost=cost,
        order=order,
        names=groups.names,
        n_reference=n,
        n_new=m,
        lower_bounds=bounds,
        bound_noise=noise,
        estimate=transport_cost(used, cost, order),
        noise_floor=float(np.mean(floor)),
        rows_used=(sum(len(pair.old) for pair in used), sum(len(pair.new) for pair in used)),
        p_value=p_value,
        columns=_columns(U, mass, V, groups),
        new_values=_new_values(U, V, groups),
        label_shift=shift,
        delta=delta,
        accuracy=accuracy,
        tau=None if audited is None else audited.tau,
        notes=[*([] if model is None else model.notes), *_notes(shift, max(n, m))],
        regression=model is not None and model.classes is None,
        certificate=certificate,
        label_cost=ball.label_cost,
    )


def _label_shift(
    target: Array | None, target_new: Array | None, weights: Array, labels: list[str]
) -> LabelShift | None:
    """Return the change of class shares, or the move of the targets in standard deviations.

    ``weights`` are the masses of the reference.
    """
    if target is None or target_new is None:
        return None
    if not labels:
        scale = float(target.std()) or 1.0
        moved = line_distance(target, target_new, 1) / scale
        return LabelShift(None, np.zeros(0), np.zeros(0), moved, None)
    p, q, p_value = _shares(target, weights, target_new, len(labels))
    return LabelShift(labels, p, q, float(np.abs(p - q).sum() / 2), p_value)


def _shares(own: Array, mass: Array, new: Array, k: int) -> tuple[Array, Array, float]:
    """Return the shares of k classes in two samples, and the p-value of their difference.

    It is that of a chi-square test of homogeneity. The first sample has masses of sum 1, and counts
    as the 1/sum of their squares rows that say as much.
    """
    p, q = np.bincount(own, mass, k), np.bincount(new, minlength=k) / len(new)
    n, m = 1 / float(mass @ mass), len(new)
    pooled = (n * p + m * q) / (n + m)
    seen = pooled > 0
    statistic = n * m / (n + m) * float(np.sum((p - q)[seen] ** 2 / pooled[seen]))
    return p, q, float(chdtrc(max(int(seen.sum()) - 1, 1), statistic))


def _notes(shift: LabelShift | None, largest: int) -> list[str]:
    notes = []
    if shift is not None and shift.labels is None:
        notes.append(
            f"the targets moved by {shift.distance:.3g} of their standard deviations; the distance "
            "is that of the rows alone, a lower bound."
        )
    if largest > ALL_UP_TO:
        notes.append(
            f"the transport cost and the p-value are those of up to {DRAWN} random rows of each."
        )
    return notes


class Pair(NamedTuple):
    """The rows of one class in both samples, and the ``share`` of the class in the new one."""

    share: float
    old: Array
    new: Array


def match(U: Array, own_u: Array, V: Array, own_v: Array) -> list[Pair]:
    """Return the rows of two samples by class, weighted to the class shares of the second.

    Rows of a class that the other sample lacks are left out: no move reaches them.
    """
    common = np.intersect1d(own_u, own_v)
    if len(common) == 0:
        raise ValueError(
            "two samples have no class in common: merge classes of few rows, or leave the labels "
            "out."
        )
    total = np.isin(own_v, common).sum()
    return [Pair((own_v == c).sum() / total, U[own_u == c], V[own_v == c]) for c in common]


def exchanged(samples: list[Pair], rng: np.random.RandomState) -> list[Pair]:
    """Return two samples of one population, of the same sizes and class shares.

    Each class of both samples is moved to mean 0, with the spread of its population about its own
    mean, and its rows are exchanged at random.
    """
    drawn = []
    for share, old, new in samples:
        centred = [
            (rows - rows.mean(axis=0)) * np.sqrt(len(rows) / max(len(rows) - 1, 1))
            for rows in (old, new)
        ]
        pool = rng.permutation(np.vstack(centred))
        drawn.append(Pair(share, pool[: len(old)], pool[len(old) :]))
    return drawn


def block_means(samples: list[Pair], block: int, rng: np.random.RandomState) -> list[Pair]:
    """Return means of random blocks of rows of one class.

    They are as exchangeable between the samples as the rows. Blocks are small enough that every
    class has several in both samples.
    """
    fewest = min(len(rows) for _, *both in samples for rows in both)
    block = max(1, min(block, fewest // LEAST_NEW))

    def means(rows: Array) -> Array:
        kept = rng.permutation(rows)[: len(rows) // block * block]
        return np.asarray(kept.reshape(-1, block, rows.shape[1]).mean(axis=1))

    return [Pair(share, means(old), means(new)) for share, old, new in samples]


def transport_cost(samples: list[Pair], cost: Cost, order: int) -> float:
    """Return D_c of the two samples, exact on their rows."""
    total = 0.0
    for share, old, new in samples:
        P, Q = ((rows, np.zeros(len(rows)), None) for rows in (old, new))
        total += share * discrepancy(P, Q, cost, order)
    return total


def lower_bounds(
    samples: list[Pair], cost: Cost, order: int, vectors: Array | None
) -> dict[str, float | None]:
    """Return the three bounds; None where one does not apply."""
    means = (s * float(cost.norm(V.mean(axis=0) - U.mean(axis=0))) ** order for s, U, V in samples)
    bounds: dict[str, float | None] = {"mean": sum(means), "gelbrich": None, "score": None}
    if order == 2 and cost.euclidean:
        each = (s * _gelbrich(cost.transform(U), cost.transform(V)) for s, U, V in samples)
        bounds["gelbrich"] = sum(each)
    if vectors is not None:
        norms = cost.dual_norm(vectors)
        best = 0.0
        for v, norm in zip(vectors[norms > 0], norms[norms > 0], strict=True):
            lines = (s * line_distance(U @ v, V @ v, order) for s, U, V in samples)
            best = max(best, sum(lines) / float(norm) ** order)
        bounds["score"] = best
    return bounds


def _gelbrich(U: Array, V: Array) -> float:
    """Return the Gelbrich bound of two samples in coordinates of a Euclidean cost."""
    shift = V.mean(axis=0) - U.mean(axis=0)
    A, B = (_covariance_root(rows) for rows in (U, V))
    # tr (A^1/2 B A^1/2)^1/2 is the sum of the singular values of A^1/2 B^1/2
    joint = np.linalg.svd(A @ B, compute_uv=False).sum()
    spread = float(np.sum(A**2) + np.sum(B**2) - 2 * joint)
    return float(shift @ shift) + max(spread, 0.0)


def _covariance_root(Z: Array) -> Array:
    """Return the symmetric root of the covariance (no correction) of rows."""
    centred = Z - Z.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(Z))
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def line_distance(u: Array, v: Array, order: int) -> float:
    """Return W_p^p of two samples of numbers: the quantiles are matched."""
    u, v = np.sort(u), np.sort(v)
    ends = np.sort(np.concatenate([np.arange(1, len(w) + 1) / len(w) for w in (u, v)]))
    step = np.diff(ends, prepend=0.0)
    middle = ends - step / 2
    i, j = ((middle * len(w)).astype(int).clip(max=len(w) - 1) for w in (u, v))
    return float(step @ np.abs(u[i] - v[j]) ** order)


def permutation_p_value(samples: list[Pair], cost: Cost, rng: np.random.RandomState) -> float:
    """Return the p-value of the energy distance in the cost's distance, by permutations.

    2 E d(x, u) - E d(x, x') - E d(u, u'), the mean over classes by share. Rows are permuted within
    their class, so that a change of class shares alone is no drift; where rows of a class are
    exchangeable the p-value is valid at every size.
    """
    observed = np.zeros(1)
    permuted = np.zeros(PERMUTATIONS)
    for share, U, V in samples:
        rows = np.vstack([U, V])
        D = cost.distance(rows, rows)
        contrast = np.concatenate([np.full(len(U), 1 / len(U)), np.full(len(V), -1 / len(V))])
        drawn = np.stack([rng.permutation(contrast) for _ in range(PERMUTATIONS)], axis=1)
        observed += share * _energy(D, contrast[:, None])
        permuted += share * _energy(D, drawn)
    # equal values up to the rounding of their sums are ties, which count against a drift
    ties = observed * (1 - ROUNDING) if observed > 0 else observed
    return float((1 + np.count_nonzero(permuted >= ties)) / (PERMUTATIONS + 1))


def _energy(D: Array, contrast: Array) -> Array:
    """Return -s'Ds of every column s."""
    return -np.einsum("ij,ij->j", contrast, D @ contrast)


def _codes(U: Array, V: Array) -> tuple[Array, Array]:
    """Return the number of each row's category, of reference rows and of new ones.

    A row without any indicator, of another value, has the number after the last.
    """
    both = np.vstack([U, V])
    above = both > (both.min(axis=0) + both.max(axis=0)) / 2
    code = np.where(above.any(axis=1), above.argmax(axis=1), above.shape[1])
    return code[: len(U)], code[len(U) :]


def _new_values(U: Array, V: Array, groups: ColumnGroups) -> dict[str, int]:
    """Return the columns of categories with values that no reference row has: in how many rows."""
    found = {}
    for column in groups.categories:
        own = groups.indices[column]
        code, code_new = _codes(U[:, own], V[:, own])
        new = int((code_new == len(own)).sum())
        if new and not (code == len(own)).any():
            found[str(column)] = new
    return found


def _columns(U: Array, mass: Array, V: Array, groups: ColumnGroups) -> DriftTable:
    """Return how far each column moved by itself from rows U with masses (n,)."""
    scale = column_scale(U, mass)
    signed = np.concatenate([mass, np.full(len(V), -1 / len(V))])
    size = 1 / float(np.sum(mass**2))
    root = np.sqrt(size * len(V) / (size + len(V)))
    gaps = np.array([_gaps(U[:, j], V[:, j], signed) for j in range(len(scale))])
    p_value = kolmogorov(root * gaps[:, 1])
    move = V.mean(axis=0) - mass @ U
    lines: list[tuple[Any, ...]] = []
    for column, own in groups.indices.items():
        values = groups.dropped.get(column, [*groups.categories.get(column, []), OTHER_VALUE])
        if len(values) > 1:
            code, code_new = _codes(U[:, own], V[:, own])
            p = _shares(code, mass, code_new, len(own) + 1)[2]
            # the last is the change of rows without an indicator
            change = np.append(move[own], -move[own].sum())
            size = float(np.abs(change).sum()) / 2
            words = f"{values[change.argmin()]} -> {values[change.argmax()]}" if size > 0 else ""
            lines.append((column, words, size, size, p, 1.0))
            continue
        for j in own:
            unit = scale[j] if scale[j] > 0 else 1.0
            moves = (move[j] / unit, gaps[j, 0] / unit)
            lines.append((groups.names[j], "", *moves, p_value[j], scale[j]))
    names, switches, *figures = zip(*lines, strict=True)
    return DriftTable(list(names), list(switches), *map(np.array, figures))


def _gaps(u: Array, v: Array, signed: Array) -> tuple[float, float]:
    """Return the integral and the maximum of abs(F - G), the distribution functions of two samples.

    The integral is the one-dimensional transport cost of order 1, the maximum the
    Kolmogorov-Smirnov distance. ``signed`` are the masses of u and, negative, of v.
    """
    values = np.concatenate([u, v])
    order = np.argsort(values)
    step = np.diff(values[order])
    gap = np.abs(np.cumsum(signed[order])[:-1])
    return float(gap @ step), float(gap[step > 0].max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Step:
    """The drift of the batch ``new`` from the reference ``old``, both by name."""

    old: str
    new: str
    drift: Drift

    @property
    def delta(self) -> float:
        """The move beyond chance: of the transport cost or a lower bound, whichever is larger."""
        order = self.drift.order
        square = self.drift.estimate ** (2 / order) - self.drift.noise_floor ** (2 / order)
        return float(max([max(square, 0.0) ** (order / 2), *self.drift.beyond_noise.values()]))


@dataclass(frozen=True, eq=False)
class Drifts:
    """The drifts of a table's batches, one ``Step`` each; ``print`` it.

    Attributes
    ----------
    steps : list of Step
        In the order of the batches.
    ordered : bool
        Whether each batch is compared with the one before it, else with all others.
    notes : list of str
        What the reader should know.
    """

    steps: list[Step]
    ordered: bool
    notes: list[str]

    @property
    def deltas(self) -> Array:
        """The deltas that happened, (m,)."""
        return np.array([step.delta for step in self.steps])

    def quantile(self, level: float) -> float:
        """Return the least delta that at least a share ``level`` of the batches stayed within."""
        return float(np.quantile(self.deltas, level, method="inverted_cdf"))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in lists, numbers and strings; see docs/which_delta.md."""
        first = self.steps[0].drift
        return {
            "cost": cost_name(first.cost),
            "order": first.order,
            "ordered": self.ordered,
            "steps": [
                {
                    "old": step.old,
                    "new": step.new,
                    "rows": step.drift.n_new,
                    "delta": step.delta,
                    "estimate": step.drift.estimate,
                    "p_value": step.drift.p_value,
                }
                for step in self.steps
            ],
            "quantiles": {f"{level:g}": self.quantile(level) for level in BATCH_LEVELS},
            "notes": list(self.notes),
        }

    def grid(self) -> Grid:
        """Return one line per batch."""
        body = [
            [
                step.new,
                step.old,
                f"{step.delta:.4g}",
                f"{step.drift.estimate:.4g}",
                f"{step.drift.p_value:.3g}",
            ]
            for step in self.steps
        ]
        return Grid(["batch", "from", "delta", "transport cost", "p-value"], body)

    def summary(self) -> str:
        """Return the deltas in words."""
        first = self.steps[0].drift
        title = (
            f"Deltas that happened to {len(self.steps)} batches, cost "
            f"{cost_name(first.cost)} of order {first.order}, beyond chance"
        )
        shares = ", ".join(f"{q:.0%} within {self.quantile(q):.4g}" for q in BATCH_LEVELS)
        lines = [title, *self.grid().lines(), f"of the batches {shares}", DELTA]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.summary()


def drifts(
    X: Any,
    by: Any,
    y: Any = None,
    *,
    ordered: bool = True,
    cost: Any = None,
    order: Any = None,
    model: Any = None,
    random_state: Any = None,
) -> Drifts:
    """Return how far each batch of a table is from the one before it, or from all others.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows of all batches.
    by : array-like of shape (n,)
        The batch of each row: its month or its site; batches are sorted.
    y : array-like of shape (n,), default=None
        The labels, where they are known: rows then move within their class.
    ordered : bool, default=True
        Whether a batch is compared with the one before it; else with all others together.
    cost, order, model, random_state
        Those of ``otdro.drift``: with a model the deltas are in the unit of its ball.

    Returns
    -------
    Drifts

    Examples
    --------
    >>> import numpy as np
    >>> from otdro.inspection import drifts
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> month = np.repeat([1, 2, 3, 4], 50)
    >>> X[month == 4] += 0.5
    >>> print(drifts(X, month).deltas.argmax())
    2
    """
    by = column_or_1d(by)
    check_consistent_length(X, by)
    options = {"cost": cost, "order": order, "model": model, "random_state": random_state}
    names, code, count = np.unique(by, return_inverse=True, return_counts=True)
    least = LEAST_REFERENCE if ordered else LEAST_NEW
    kept = np.flatnonzero(count >= least)
    if len(kept) < 2:
        first = ", ".join(map(str, names[:3])) + (", ..." if len(names) > 3 else "")
        raise ValueError(
            f"a drift needs two batches of {least} rows or more, and {len(kept)} of the "
            f"{len(names)} batches ({first}) have as many: name a column of fewer values, or give "
            "more rows."
        )
    notes = []
    if len(kept) < len(names):
        few = [str(names[k]) for k in np.flatnonzero(count < least)]
        notes.append(f"{len(few)} batches of fewer than {least} rows are left out, as {few[0]}.")
    steps = []
    for before, now in pairwise(kept) if ordered else zip(kept, kept, strict=True):
        old = code == before if ordered else (code != now) & np.isin(code, kept)
        parts = [_part(X, y, rows) for rows in (old, code == now)]
        name = str(names[before]) if ordered else "all others"
        steps.append(Step(name, str(names[now]), drift(*parts, **options)))
    return Drifts(steps, bool(ordered), notes)


def _part(X: Any, y: Any, rows: Array) -> Any:
    """Return some rows, with their labels where there are any."""
    part = _safe_indexing(X, np.flatnonzero(rows))
    return part if y is None else (part, column_or_1d(y)[rows])
