"""The classifier."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if

from .. import losses
from ..arrays import as_float, as_index, beside, class_masses, namespace, numpy
from ..chunks import is_dask
from ..problem import Sample
from ..radius.checks import normalise
from .base import DROEstimator, LinearScores, Targets, documented
from .parameters import class_codes, fit_price, is_numeric, model_form, require_classes

if TYPE_CHECKING:
    from ..worst_case import WorstCase

Array = NDArray[Any]

#: The least sum of one-vs-rest probabilities whose terms still have all their digits.
LEAST_SUM = np.finfo(float).tiny / np.finfo(float).eps


def _gives_probabilities(estimator: Any) -> bool:
    loss = losses.resolve(estimator.loss, "classification")
    if loss.probability(np.zeros(1)) is None:
        raise AttributeError(
            f"predict_proba needs loss='logistic'; loss={estimator.loss!r} gives no probabilities."
        )
    return True


class LinearClassifier(ClassifierMixin, LinearScores):  # type: ignore[misc]
    """Labels, scores and probabilities of rows, from the coefficients of a fitted classifier."""

    def decision_function(self, X: Any) -> Any:
        """Return the scores x'beta + b.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with the columns of the fit; of a Dask array or data frame the result is a Dask
            array that is computed later.

        Returns
        -------
        ndarray of shape (n,), or (n, n_classes) for more than two classes
            Two classes have the score of the second.
        """
        if is_dask(X):
            return self._of_dask(X, "decision_function")
        return self._scores(X)

    def predict(self, X: Any) -> Any:
        """Return the label of the largest score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with the columns of the fit; of a Dask array or data frame the result is a Dask
            array that is computed later.

        Returns
        -------
        ndarray of shape (n,)
            Labels of ``classes_``.
        """
        if is_dask(X):
            return self._of_dask(X, "predict")
        scores = self._scores(X)
        xp = namespace(scores)
        index = (
            xp.asarray(scores > 0, dtype=xp.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        )
        if is_numeric(self.classes_):
            labels: Array = beside(self.classes_, scores, beside(self.classes_[:1], scores).dtype)
            return labels[index]
        named: Array = self.classes_[numpy(index)]
        return named

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities: the softmax, or one-vs-rest ones scaled to sum to 1.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with the columns of the fit; of a Dask array or data frame the result is a Dask
            array that is computed later.

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of ``classes_``.
        """
        if is_dask(X):
            return self._of_dask(X, "predict_proba")
        return self._probabilities(self._scores(X))

    def _probabilities(self, scores: Any) -> Any:
        """Return the class probabilities (n, n_classes) of scores (n,) or (n, n_classes)."""
        xp: Any = namespace(scores)
        p: Any = self.loss_.probability(scores)
        if self.loss_.outputs > 1:
            return p
        if scores.ndim == 1:
            q = self.loss_.probability(-scores)
            return xp.stack([q, p], axis=1)
        # far from every class all probabilities vanish; there they go like e^score
        tail = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        p = xp.where(xp.sum(p, axis=1, keepdims=True) > LEAST_SUM, p, tail)
        return p / xp.sum(p, axis=1, keepdims=True)

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the class probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with the columns of the fit; of a Dask array or data frame the result is a Dask
            array that is computed later.

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of ``classes_``.
        """
        p = self.predict_proba(X)
        return namespace(p).log(p)


@documented
@dataclass(eq=False, repr=False, match_args=False)
class DROClassifier(LinearClassifier, DROEstimator):
    r"""Linear classifier that does best against every distribution within transport cost delta.

    .. math:: \min_{\beta, b}\ \sup_{P:\,D_c(P, P_n)\le\delta} E_P\,\ell(x'\beta + b, y)

    Three to 20 classes are the softmax model, B with one line of coefficients per class, for the
    logistic loss at order 1 under a norm; else one-vs-rest, with one ball for all.

    Parameters
    ----------
    loss : {"logistic", "hinge", "squared_hinge"} or Loss, default="logistic"
        The loss of a score and a label -1 or +1. Probabilities need "logistic".
    <model>
    class_weight : dict {label: weight}, "balanced" or None, default=None
        Factors of the weights of the rows; "balanced" gives every class the same total weight.
    <choice>
    multi_class : {"auto", "multinomial", "ovr"}, default="auto"
        The model of three classes or more. "multinomial" is the softmax of one score per class,
        whose worst-case risk is the mean cross-entropy plus delta times the largest dual norm of a
        difference of two classes' coefficients; it needs the logistic loss, order 1 and a
        Euclidean cost, "l1" or "linf". "ovr" fits each class against the rest. "auto" is
        "multinomial" for up to 20 classes where that is possible and labels cannot be changed,
        else "ovr"; ``message_`` says so where there are more than 20 classes, whose softmax model
        takes minutes.
    label_cost : float > 0, default=inf
        The price at which the adversary may change a label into any other, in the unit of the
        cost, beside the price of moving the row; inf: labels cannot be changed. More than two
        classes are then one-vs-rest, and a label changes between a class and the rest. Rows in
        memory only.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The coefficients beta; one line for two classes, else one for each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercepts b.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; a positive score is for the second of two.
    multiplier_ : float, or ndarray of shape (n_classes,) for one-vs-rest
        The derivative of the robust risk in delta.
    empirical_risk_ : float, or ndarray of shape (n_classes,) for one-vs-rest
        The mean loss of the training rows.
    robust_risk_ : float, or ndarray of shape (n_classes,) for one-vs-rest
        The largest mean loss over the ball, as the solver bounded it: ``otdro.robust_risk`` of the
        same model, which finds the best multiplier anew, is never above it and at most ``gap_``
        below.
    gap_ : float, or ndarray of shape (n_classes,) for one-vs-rest
        At most by this much ``robust_risk_`` exceeds the least possible one; absolute.
    message_ : str, or list of str for one-vs-rest
        How the solver ended, and what was particular about the cost or the choice of delta.
    <attributes>

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from otdro import DROClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> model = DROClassifier(cost="euclidean").fit(X[::9], y[::9])
    >>> print(f"delta {model.delta_:.3f}, accuracy {model.score(X, y):.2f}")
    delta 0.058, accuracy 0.95
    >>> print(f"risk {model.empirical_risk_:.3f}, worst case {model.robust_risk_:.3f}")
    risk 0.111, worst case 0.219
    >>> bool(model.gap_ <= 1e-6)
    True
    """

    _task: ClassVar[str] = "classification"

    loss: Any = "logistic"
    class_weight: Any = field(default=None, kw_only=True)
    multi_class: str = field(default="auto", kw_only=True)
    label_cost: Any = field(default=np.inf, kw_only=True)

    def _targets(self, y: Array, sample: Sample) -> Targets:
        X, weights = sample.X, sample.weights
        classes, codes = class_codes(y)
        codes = beside(codes, X)
        if self.class_weight is not None:
            factors = compute_class_weight(self.class_weight, classes=classes, y=numpy(y))
            weights = normalise(weights * beside(factors, X)[codes], "class_weight")
        require_classes(classes, class_masses(codes, weights, len(classes)))
        price = fit_price(self, "label_cost", sample.support)
        form = model_form(self, sample.loss, len(classes), sample.support)
        # of two classes the second is +1, of more each in turn against the rest
        positive = [1] if len(classes) == 2 else range(len(classes))
        ys = [2 * as_float(codes == k) - 1 for k in positive]
        if form.loss is not None:
            ys, sample = [as_float(codes)], replace(sample, loss=form.loss)
        sample = replace(sample, ys=ys, weights=weights, label_cost=price)
        return Targets(sample, y, classes, form.note)

    def _part(self, k: int) -> tuple[Array, Any]:
        if self.loss_.outputs > 1:
            return numpy(self.coef_), numpy(self.intercept_)
        return super()._part(k)

    def _number(self, class_: Any) -> int:
        if self.loss_.outputs > 1:
            if class_ is not None:
                raise ValueError(
                    "the softmax model has one worst case of all classes together: leave "
                    f"class_=None, got class_={class_!r}, or fit with multi_class='ovr'."
                )
            return 0
        if len(self.classes_) == 2:
            return 0
        if class_ is None or class_ not in self.classes_:
            raise ValueError(
                f"class_={class_!r} must be one of the classes {self.classes_.tolist()}: each of "
                "more than two classes has its own worst case."
            )
        return int(np.flatnonzero(self.classes_ == class_)[0])

    def _targets_of(self, y: Any, k: int) -> Array:
        y = column_or_1d(y)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"rows has labels that the model does not know, {unknown[:5].tolist()}; it knows "
                f"{self.classes_.tolist()}."
            )
        codes = np.searchsorted(self.classes_, y)
        if self.loss_.outputs > 1:
            return codes.astype(float)
        return np.where(codes == (1 if len(self.classes_) == 2 else k), 1.0, -1.0)

    def _named(self, found: WorstCase) -> WorstCase:
        targets = numpy(found.targets)
        several = self.loss_.outputs > 1
        if len(self.classes_) > 2 and not several:
            return found
        targets = self.classes_[as_index(targets if several else targets > 0)]
        kept = beside(targets, found.weights) if is_numeric(targets) else targets
        return replace(found, targets=kept)
