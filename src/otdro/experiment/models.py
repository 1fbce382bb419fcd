"""The models that are compared: ours, and scikit-learn's plain, L1 and L2 ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators import DROClassifier, DRORegressor

#: Inverse strengths of the penalties that folds choose among.
STRENGTHS = np.logspace(-3, 2, 10)
#: Strengths of the squared l2 penalty of a regression, and how many of the l1 penalty.
RIDGE, LASSO = np.logspace(-3, 4, 30), 50


@dataclass(frozen=True)
class Setting:
    """What every model of a comparison shares."""

    cv: Any = 5
    intercept: bool = True
    seed: int | None = None

    def ours(self) -> dict[str, Any]:
        """Return the same as parameters of our estimators."""
        return {"cv": self.cv, "fit_intercept": self.intercept, "random_state": self.seed}


def default_model(task: str, setting: Setting | None = None) -> Any:
    """Return our estimator of the task with its defaults."""
    setting = setting or Setting()
    model = DROClassifier if task == "classification" else DRORegressor
    return model(**setting.ours())


def constant(task: str) -> Any:
    """Return the model that sees no column: the shares of the classes, or the mean."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    return DummyClassifier(strategy="prior") if task == "classification" else DummyRegressor()


def plain(task: str, setting: Setting) -> Any:
    """Return the model without a penalty."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if task == "regression":
        return LinearRegression(fit_intercept=setting.intercept)
    return LogisticRegression(C=np.inf, fit_intercept=setting.intercept, max_iter=10_000)


def tuned_l1(task: str, setting: Setting) -> Any:
    """Return the model with an l1 penalty chosen by folds."""
    from sklearn.linear_model import LassoCV, LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier

    if task == "regression":
        return LassoCV(
            alphas=LASSO, cv=setting.cv, fit_intercept=setting.intercept, max_iter=10_000
        )
    model = LogisticRegressionCV(
        **_folds(setting), l1_ratios=(1,), solver="liblinear", random_state=setting.seed
    )
    # liblinear takes two classes only
    return OneVsRestClassifier(model) if task == "multiclass" else model


def tuned_l2(task: str, setting: Setting) -> Any:
    """Return the model with a squared l2 penalty chosen by folds."""
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV

    if task == "regression":
        return RidgeCV(alphas=RIDGE, cv=setting.cv, fit_intercept=setting.intercept)
    return LogisticRegressionCV(**_folds(setting), l1_ratios=(0,), max_iter=1000)


def _folds(setting: Setting) -> dict[str, Any]:
    return {
        "Cs": STRENGTHS,
        "cv": setting.cv,
        "fit_intercept": setting.intercept,
        "scoring": "neg_log_loss",
        "use_legacy_attributes": False,
    }
