"""scikit-learn's own checks of the estimators: fixed costs and radii, then the defaults."""

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import (
    check_class_weight_classifiers,
    estimator_checks_generator,
)

from otdro import DROClassifier, DRORegressor
from otdro.metrics import Diagonal
from tables import LOSSES, kind


def checked():
    """Every loss, then every cost, order and no intercept with one loss of each task."""
    for loss in LOSSES:
        yield kind(loss)(loss, cost="euclidean", delta=0.01)
    for loss, order in (("logistic", 1), ("hinge", 2), ("absolute", 1), ("squared", 2)):
        yield kind(loss)(loss, cost="l1", order=order, delta=0.01)
    for loss, order in (("logistic", 1), ("squared", 2)):
        yield kind(loss)(loss, cost=Diagonal(), order=order, delta=0.01)
    for loss, order in (("logistic", 2), ("huber", 2)):
        yield kind(loss)(loss, cost="euclidean", order=order, delta=0.01, fit_intercept=False)


def through_the_origin(estimator, check):
    """Whether a check asks for what no half-space through the origin can do.

    It wants 87% of overlapping blobs off the origin on one side; the next test shows that
    scikit-learn's own linear classifiers cannot do that without an intercept either.
    """
    name = check.func.__name__
    return name == "check_class_weight_classifiers" and not estimator.fit_intercept


def repeats(check):
    """Whether a check does again what another does, on matrices for arrays or read-only rows."""
    return check.func.__name__ == "check_estimator_sparse_matrix" or bool(check.keywords)


def marked(estimator, check):
    """Return the parameters of a test; only the Euclidean logistic fit is checked twice quickly."""
    plain = (estimator.loss, estimator.cost, estimator.order) == ("logistic", "euclidean", "auto")
    slow = repeats(check) and not plain
    return pytest.param(estimator, check, marks=[pytest.mark.slow] if slow else [])


CHECKS = [
    marked(estimator, check)
    for model in checked()
    for estimator, check in estimator_checks_generator(model, mark="skip")
    if not through_the_origin(estimator, check)
]


def check_name(value):
    if hasattr(value, "func"):
        return "-".join([value.func.__name__, *map(str, value.keywords.values())])
    folds = "" if value.cv == 5 else f"-cv{value.cv}"
    return f"{value.loss}-{value.cost}-{value.order}-{value.fit_intercept}{folds}"


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=check_name)
@pytest.mark.constant_model("many checks draw labels that are independent of the rows")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# many default fits each, of all formats of sparse rows; fixed costs are checked on them above
MANY_FITS = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}
# of how rows, labels, weights, calls and files look, not of what is fitted: two folds of two radii
# show as much as five of the whole path
OF_INTERFACE = {
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_non_transformer_estimators_n_iter",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    "check_supervised_y_2d",
}


def default_checks(model):
    """Yield the parameters of a test, of a check of the interface twice: quick and as it is."""
    for estimator, check in estimator_checks_generator(model, mark="skip"):
        name = check.func.__name__
        shortened = name in OF_INTERFACE or bool(check.keywords)
        if shortened:
            yield pytest.param(clone(estimator).set_params(cv=2, deltas=[0.1, 0.01]), check)
        slow = shortened or name in MANY_FITS
        yield pytest.param(estimator, check, marks=[pytest.mark.slow] if slow else [])


DEFAULT_CHECKS = [
    pair for model in (DROClassifier(), DRORegressor()) for pair in default_checks(model)
]


# the checks' tiny samples have classes with fewer members than folds, which the fit says
@pytest.mark.filterwarnings("ignore:.*fewer than cv=[25] folds:UserWarning")
@pytest.mark.filterwarnings("ignore:.*splits .*left out:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), DEFAULT_CHECKS, ids=check_name)
def test_scikit_learn_checks_with_the_defaults(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", [LogisticRegression, LinearSVC])
def test_class_weight_check_needs_an_intercept(model):
    with pytest.raises(AssertionError):
        check_class_weight_classifiers("through the origin", model(fit_intercept=False))
