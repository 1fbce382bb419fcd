"""Prices of labels and targets that folds choose among."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..costs import Norm
from ..problem import Sample
from .checks import resolve_order
from .thresholds import threshold

#: Multiples of the zero threshold that are tried as the price of a label, and of the price that a
#: target's standard deviation then has; inf leaves them fixed.
LABEL_MULTIPLES = (0.3, 1.0, 3.0, np.inf)
TARGET_MULTIPLES = (0.1, 1.0, 10.0, np.inf)


def open_price(sample: Sample) -> str | None:
    """Return the name of the price that folds are to choose, None if there is none."""
    for name in ("label_cost", "target_cost"):
        if isinstance(getattr(sample, name), str):
            return name
    return None


def with_prices(sample: Sample, name: str, settings: Any) -> list[Sample]:
    """Return the sample with each price, the last inf; their unit is the delta of beta = 0.

    That is the least delta at which beta = 0 is optimal under the Euclidean cost: learned costs
    have its trace. At half of it half of the labels could be changed at the price 1.
    """
    fixed = _priced(sample, name, np.inf)
    order = resolve_order(settings.order, sample.loss, None)
    unit = max(threshold(fixed, y, Norm(2), order) for y in sample.ys) or 1.0
    multiples = LABEL_MULTIPLES
    if name == "target_cost":
        y = sample.ys[0]
        spread = float(np.sqrt(sample.weights @ (y - sample.weights @ y) ** 2)) or 1.0
        unit, multiples = unit / spread**order, TARGET_MULTIPLES
    return [_priced(sample, name, float(unit * multiple)) for multiple in multiples]


def _priced(sample: Sample, name: str, price: float) -> Sample:
    """Return the sample with one of its prices set."""
    if name == "label_cost":
        return replace(sample, label_cost=price)
    return replace(sample, target_cost=price)
