"""How far new rows are from old ones, in the unit of a ball's delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..pairs import generator
from .bounds import lower_bounds
from .knapsack import accuracy_curve
from .label_shift import LabelShift, of_classes, of_targets
from .moved_columns import DriftTable, moved_columns
from .pair import MatchedSamples, pair, splits
from .rows import Asked
from .samples import TwoSamples, two_samples
from .summary import drift_dict, drift_text
from .transport import permutation_p_value, transport_cost
from .verdict import judge

Array = NDArray[Any]

#: Rows of a sample up to which the transport cost is that of all rows; above, of ``DRAWN`` rows.
ALL_UP_TO, DRAWN = 2_000, 1_000
#: Random splits of the reference behind the noise floor and behind the noise of the bounds.
FLOOR_SPLITS, BOUND_SPLITS = 5, 19


@dataclass(frozen=True, eq=False)
class Drift:
    """How far new rows are from a reference, as mean transport cost E[c], c = distance^order.

    Where the labels of both are known, rows move within their class, and the reference is weighted
    to the class shares of the new rows first; ``label_shift`` tells of the shares.

    Attributes
    ----------
    cost, order
        The price of a move.
    names : list of str
        The columns.
    n_reference, n_new : int
        The numbers of rows.
    lower_bounds : dict
        "mean", "gelbrich" and "score": what moving one sample onto the other costs at least, of all
        rows; None where one does not apply (Gelbrich: order 2 and a Euclidean cost; score: a
        model).
    bound_noise : dict
        The largest of the same bounds between random parts of the reference.
    estimate : float
        The transport cost itself, exact on ``rows_used`` rows of the reference and of the new ones;
        not debiased: part of it is sampling noise.
    noise_floor : float
        The mean transport cost between random parts of the reference, of ``noise_rows`` rows.
    rows_used, noise_rows : tuple of two int
        The rows behind the estimate and behind its noise.
    p_value : float
        Of the energy distance on the rows used (of large samples also of means of blocks of all
        rows), by permutations within classes.
    columns : DriftTable
        How far each column moved by itself.
    label_shift : LabelShift or None
        How the shares of the classes, or the targets, changed.
    delta : float or None
        The radius that the verdict is about: that the model was fitted for, or audited for.
    verdict : str or None
        "inside", "outside" or "cannot tell"; None without a ball.
    reason : str
        Why.
    certified_accuracy : float or None
        With a model and labels: no batch with these class shares that is as far away has a lower
        accuracy. Two classes: as far by the scores, which are all that the model sees (the "score"
        bound, exact on all rows); more: by ``estimate``.
    accuracy : dict
        With a model and labels: "reference", "reweighted" (the reference with the new class
        shares), "new" (the new rows); None where labels are missing.
    notes : list of str
        What the reader should know.
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
    noise_rows: tuple[int, int]
    p_value: float
    columns: DriftTable
    label_shift: LabelShift | None
    delta: float | None
    verdict: str | None
    reason: str
    certified_accuracy: float | None
    accuracy: dict[str, float | None]
    notes: list[str]

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
    model : fitted linear model or Pipeline, default=None
        What sees the rows: its steps come first, its scores give a bound, and its ball (or, with a
        labelled reference, the delta at which it can be as bad as a constant) gives the verdict.
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
    asked = Asked(cost=cost, order=order, random_state=random_state)
    samples = two_samples(reference, new, model, asked)
    return measured(samples, random_state)


def measured(samples: TwoSamples, random_state: Any) -> Drift:
    """Return the drift between two samples that were checked."""
    rng = generator(random_state)
    all_rows = pair(samples.U, samples.own_u, samples.V, samples.own_v)
    bounds = lower_bounds(all_rows, samples.cost, samples.order, samples.vectors)
    used = _drawn(all_rows, rng)
    estimate = transport_cost(used, samples.cost, samples.order)
    size_new = len(used.new.mass)
    small = list(splits(samples.U, samples.own_u, size_new, FLOOR_SPLITS, rng, DRAWN))
    floor = [transport_cost(part, samples.cost, samples.order) for part in small]
    noise = _bound_noise(samples, rng)
    seen = bounds["score"] if samples.labelled and len(samples.labels) == 2 else None
    asked = (samples.delta, samples.order, bounds, noise, estimate, samples.labelled, seen)
    found = judge(*asked)
    shift = _label_shift(samples)
    return Drift(
        cost=samples.cost,
        order=samples.order,
        names=samples.names,
        n_reference=len(samples.U),
        n_new=len(samples.V),
        lower_bounds=bounds,
        bound_noise=noise,
        estimate=estimate,
        noise_floor=float(np.mean(floor)),
        rows_used=(len(used.reference.mass), size_new),
        noise_rows=(len(small[0].reference.mass), len(small[0].new.mass)),
        p_value=_p_value(all_rows, used, samples.cost, rng),
        columns=moved_columns(all_rows, samples.names),
        label_shift=shift,
        delta=samples.delta,
        verdict=found.answer,
        reason=found.reason,
        certified_accuracy=_certified(samples, all_rows, estimate if seen is None else seen),
        accuracy=_accuracies(samples, all_rows),
        notes=samples.notes + _notes(samples, shift),
    )


def _drawn(samples: MatchedSamples, rng: np.random.RandomState) -> MatchedSamples:
    """Return the rows whose transport is solved: all, or a random part of large samples."""
    largest = max(len(samples.reference.mass), len(samples.new.mass))
    return samples if largest <= ALL_UP_TO else samples.subsample(DRAWN, rng)


def _p_value(
    all_rows: MatchedSamples, used: MatchedSamples, cost: Cost, rng: np.random.RandomState
) -> float:
    """Return the p-value on all rows; of large samples, on the rows drawn and on means of blocks.

    The lesser of the two, doubled, is valid as each of them is.
    """
    drawn = permutation_p_value(used, cost, rng)
    if used is all_rows:
        return drawn
    means = permutation_p_value(all_rows.block_means(DRAWN, rng), cost, rng)
    return min(1.0, 2 * min(drawn, means))


def _bound_noise(samples: TwoSamples, rng: np.random.RandomState) -> dict[str, float | None]:
    """Return the largest of each bound between random parts of the reference."""
    n = len(samples.U)
    found = [
        lower_bounds(part, samples.cost, samples.order, samples.vectors)
        for part in splits(samples.U, samples.own_u, len(samples.V), BOUND_SPLITS, rng, n)
    ]
    return {
        name: None if value is None else max(float(each[name] or 0.0) for each in found)
        for name, value in found[0].items()
    }


def _label_shift(samples: TwoSamples) -> LabelShift | None:
    if samples.labelled:
        return of_classes(samples.own_u, samples.own_v, samples.labels)
    if samples.target_u is not None and samples.target_v is not None:
        return of_targets(samples.target_u, samples.target_v)
    return None


def _certified(samples: TwoSamples, rows: MatchedSamples, distance: float) -> float | None:
    """Return the least accuracy of a batch at this distance, with the class shares of the new."""
    if samples.audit is None or not samples.labelled:
        return None
    price, mass = samples.audit.price, np.zeros(len(samples.own_u))
    mass[np.isin(samples.own_u, rows.reference.label)] = rows.reference.mass
    return float(accuracy_curve(price, mass).accuracy(distance))


def _accuracies(samples: TwoSamples, rows: MatchedSamples) -> dict[str, float | None]:
    """Return the accuracy of the model on the reference, that with the new shares, and the new."""
    audit = samples.audit
    found: dict[str, float | None] = {"reference": None, "reweighted": None, "new": None}
    if audit is None:
        return found
    found["reference"] = audit.accuracy(0.0)
    if samples.labelled:
        found["reweighted"] = _certified(samples, rows, 0.0)
        right = audit.model.scores(samples.V).argmax(axis=1) == samples.own_v
        found["new"] = float(right.mean())
    elif audit.tau is not None and samples.target_v is not None:
        error = samples.target_v - audit.model.scores(samples.V)[:, 0]
        found["new"] = float((np.abs(error) <= audit.tau).mean())
    return found


def _notes(samples: TwoSamples, shift: LabelShift | None) -> list[str]:
    found = []
    if shift is not None and shift.labels is not None and shift.distance > 0:
        found.append(
            f"the class shares differ by {shift.distance:.3g} in total variation; labels cannot "
            "move, so that this is outside every ball and is reported on its own."
        )
    if shift is not None and shift.labels is None:
        found.append("targets are numbers: the distance is that of the rows, a lower bound.")
    if max(len(samples.U), len(samples.V)) > ALL_UP_TO:
        found.append(
            f"the transport cost and the p-value are those of up to {DRAWN} random rows of each."
        )
    return found
