"""The loss that a model of scikit-learn, or of otdro, was fitted by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..losses import Huber, Loss, Quantile

Array = NDArray[Any]

#: The losses of models that have one only, by class name.
BY_CLASS = {
    "LogisticRegression": "logistic",
    "LogisticRegressionCV": "logistic",
    "LinearRegression": "squared",
    "Ridge": "squared",
    "RidgeCV": "squared",
    "Lasso": "squared",
    "LassoCV": "squared",
    "LassoLars": "squared",
    "ElasticNet": "squared",
    "ElasticNetCV": "squared",
    "BayesianRidge": "squared",
    "ARDRegression": "squared",
    "Lars": "squared",
    "OrthogonalMatchingPursuit": "squared",
    "SVC": "hinge",
}
#: The names that scikit-learn gives to losses of otdro, as its parameter ``loss``.
BY_NAME = {
    "hinge": "hinge",
    "squared_hinge": "squared_hinge",
    "log_loss": "logistic",
    "squared_error": "squared",
}
#: Stand-ins where the model's own loss is none of otdro's.
STAND_IN = {"classification": "logistic", "regression": "squared"}


def own_loss(model: Any, classes: Array | None) -> tuple[Loss, bool, list[str]]:
    """Return the loss, whether it is the softmax loss of all classes, and notes for the reader."""
    task = "regression" if classes is None else "classification"
    inner = getattr(model, "estimator", None) if hasattr(model, "estimators_") else model
    found = _known(inner)
    if found is not None and found.task == task:
        return found, _joint(model, classes), []
    stand_in = STAND_IN[task]
    note = (
        f"the loss of {type(model).__name__} is none of otdro's; the worst-case loss is that of "
        f"the {stand_in} loss."
    )
    return losses.resolve(stand_in), False, [note]


def _known(model: Any) -> Loss | None:
    if isinstance(getattr(model, "loss_", None), Loss):
        return model.loss_
    kind = type(model).__name__
    if kind == "HuberRegressor":
        return Huber(M=float(model.epsilon * model.scale_))
    if kind == "QuantileRegressor":
        return Quantile(tau=float(model.quantile))
    name = BY_CLASS.get(kind)
    if name is None and isinstance(getattr(model, "loss", None), str):
        name = BY_NAME.get(model.loss)
    return None if name is None else losses.resolve(name)


def _joint(model: Any, classes: Array | None) -> bool:
    """Whether several classes share one softmax loss: those of logistic models do."""
    if classes is None or len(classes) == 2 or hasattr(model, "estimators_"):
        return False
    if hasattr(model, "robust_risk_"):
        return np.ndim(model.robust_risk_) == 0
    return "LogisticRegression" in type(model).__name__ and model.solver != "liblinear"
