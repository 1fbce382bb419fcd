"""The methods of the paper's table, each a model behind a scaling fitted on the training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sklearn.pipeline import make_pipeline

from .. import costs, metrics
from ..estimators import DROClassifier
from ..scaling import AUTO, scaler
from .models import Setting, default_model, plain, tuned_l1, tuned_l2


@dataclass(frozen=True)
class Method:
    """A name, how to build the model, the scaling before it, and what it is, in words.

    Whether it sees the ``unlabelled`` part of the paper's splits.
    """

    name: str
    build: Callable[[Setting], Any]
    scale: str
    about: str
    unlabelled: bool = False

    def pipeline(self, setting: Setting) -> Any:
        """Return scaling and model as one estimator."""
        return make_pipeline(scaler(self.scale), self.build(setting))


def dro_l(setting: Setting) -> Any:
    """Return DRO-L: a learned Mahalanobis cost, delta by the minimum over the folds."""
    return _paper(metrics.GeometricMean(), setting)


def dro_l_printed(setting: Setting) -> Any:
    """Return DRO-L with the metric program as printed, whose solution has rank one."""
    return _paper(metrics.Eigen(), setting)


def dro_nl(setting: Setting) -> Any:
    """Return DRO-NL: a cost on linear and quadratic features, the model linear in x.

    The metric on the features is diagonal: there are more features (1,710 for spambase) than rows.
    The cost is linearised about each row, which is exact for small delta.
    """
    cost = costs.FeatureMap(metric=metrics.Diagonal(), linearised=True)
    return _paper(cost, setting, order=2)


def repeated(setting: Setting) -> Any:
    """Return our default with folds of its own, repeated three times where rows are few."""
    return default_model("classification", replace(setting, cv=5))


def by_profile(setting: Setting) -> Any:
    """Return our default with delta by the scaled profile alone."""
    return default_model("classification", setting).set_params(rule="profile")


def wasserstein(setting: Setting) -> Any:
    """Return plain Wasserstein robust logistic regression: the Euclidean cost."""
    return _paper("euclidean", setting)


def _paper(cost: Any, setting: Setting, order: Any = "auto") -> Any:
    return DROClassifier(cost=cost, order=order, delta="cv", rule="min", **setting.ours())


def _baselines(scale: str) -> list[Method]:
    suffix, words = ("", "") if scale == "standard" else (f"+{scale}", f", after {scale}")
    return [
        Method(f"LR{suffix}", partial(plain, "classification"), scale, f"no penalty{words}"),
        Method(f"LRL1{suffix}", partial(tuned_l1, "classification"), scale, f"tuned L1{words}"),
        Method(f"L2{suffix}", partial(tuned_l2, "classification"), scale, f"tuned L2{words}"),
        Method(f"W{suffix}", wasserstein, scale, f"plain Wasserstein, Euclidean cost{words}"),
    ]


def _registry() -> dict[str, Method]:
    lr, l1, l2, euclidean = _baselines("standard")
    default = partial(default_model, "classification")
    ours = Method("ours", default, "auto", f"default, {AUTO}")
    more = f"default with the unlabelled rows, {AUTO}"
    listed = [
        lr,
        l1,
        Method("DRO-L", dro_l, "standard", "learned cost, as in the paper"),
        Method("DRO-NL", dro_nl, "standard", "cost on quadratic features, as in the paper"),
        l2,
        euclidean,
        ours,
        Method("ours-u", default, "auto", more, unlabelled=True),
        *_baselines(AUTO),
        Method("DRO-L1r", dro_l_printed, "standard", "DRO-L, rank-one metric as printed"),
        Method("ours-r", repeated, "auto", f"default with repeated folds of its own, {AUTO}"),
        Method("ours-p", by_profile, "auto", f"default, rule='profile', {AUTO}"),
    ]
    return {method.name: method for method in listed}


#: The methods by name, in the order of the table.
METHODS = _registry()
#: Those of the paper and of the issue: seven.
SEVEN = ("LR", "LRL1", "DRO-L", "DRO-NL", "L2", "W", "ours")
#: The default: the seven, ours with unlabelled rows, every baseline with the transform of ours.
DEFAULT = (*SEVEN, "ours-u", *(f"{name}+{AUTO}" for name in ("LR", "LRL1", "L2", "W")))


def resolve(names: str | None) -> list[str]:
    """Return the methods that a comma-separated list names, in the order of the table."""
    groups = {"default": DEFAULT, "seven": SEVEN, "all": tuple(METHODS)}
    return listed(names or "default", METHODS, groups, "unknown method {}")


def listed(
    text: str, known: Iterable[str], groups: dict[str, tuple[str, ...]], refusal: str
) -> list[str]:
    """Return the ``known`` names and groups in a comma-separated list, in the order of known."""
    meant = {name.lower(): (name,) for name in known} | groups
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for part in asked:
        if part.lower() not in meant:
            choice = ", ".join([*known, *groups])
            raise ValueError(f"{refusal.format(repr(part))}; known: {choice}.")
    found = {name for part in asked for name in meant[part.lower()]}
    return [name for name in known if name in found]
