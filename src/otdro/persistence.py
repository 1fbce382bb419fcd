"""Models on disk by skops: one file, written whole, loaded only if every type in it is known."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from .files import write_atomic

#: Modules of this package whose types a model may hold.
OURS = {
    "costs",
    "estimators",
    "losses",
    "metrics",
    "mix",
    "problem",
    "radius",
    "scaling",
    "solvers",
}
#: What else skops asks about: a type of numpy, folds, and parts of a search or a selection.
ELSE = {
    "numpy.dtype",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.feature_selection._univariate_selection.f_regression",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
}
#: Names of files that run code when they are loaded.
PICKLES = (".pkl", ".pickle", ".joblib")


def save(model: Any, path: Any) -> None:
    """Write a fitted model, or a pipeline that ends in one, to a file of skops.

    The training rows are not saved. The file is in place only when it is whole.

    Parameters
    ----------
    model : fitted estimator
        A model of otdro or scikit-learn, or a pipeline.
    path : str or Path
        The file; by custom its name ends in .skops. One that ends in .pkl is refused.

    Examples
    --------
    >>> import otdro
    >>> model = otdro.DROClassifier(cost="euclidean", delta=0.1).fit([[0.0], [1.0]], ["a", "b"])
    >>> otdro.save(model, "model.skops")
    >>> otdro.load("model.skops").predict([[2.0]]).tolist()
    ['b']
    """
    import skops.io

    path = check_name(path)
    if not hasattr(model, "predict"):
        raise TypeError(f"a {type(model).__name__} is not a model: it has no predict.")
    if hasattr(model, "fit"):
        check_is_fitted(model, msg="this %(name)s is not fitted, so that there is nothing to save.")
    data = skops.io.dumps(model)
    strange = _strange(skops.io.get_untrusted_types(data=data))
    if strange:
        raise ValueError(
            f"the model holds {', '.join(strange)}, which otdro.load would refuse: it knows the "
            "types of otdro and scikit-learn only. Use skops.io.dump."
        )
    write_atomic(path, data)


def load(path: Any) -> Any:
    """Return the model in a file from ``save``; refuse types that neither otdro nor sklearn has.

    Nothing in the file is run. A file that is no such model is a ``ValueError``.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    estimator
        The model, without its training rows.

    Examples
    --------
    >>> import otdro
    >>> model = otdro.DRORegressor(cost="euclidean", delta=0.0).fit([[0.0], [1.0]], [0.0, 2.0])
    >>> otdro.save(model, "line.skops")
    >>> otdro.load("line.skops").predict([[2.0]]).round(6).tolist()
    [4.0]
    """
    import skops.io

    path = check_name(path)
    if not path.exists():
        raise FileNotFoundError(f"no such model: {path}. otdro.save or otdro fit --save makes one.")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a model saved by otdro.save or otdro fit --save.")
    try:
        unknown = skops.io.get_untrusted_types(file=path)
        strange = _strange(unknown)
        model = None if strange else skops.io.load(path, trusted=unknown)
    except Exception as error:
        # types that have moved, and errors of zipfile, zlib, json, numpy and skops
        raise ValueError(
            f"{path} was saved by another version of otdro or is damaged ({error}). Fit it again."
        ) from None
    if strange:
        raise ValueError(f"{path} holds types that no model of otdro has: {', '.join(strange)}.")
    if not hasattr(model, "predict"):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model.")
    return model


def check_name(path: Any) -> Path:
    """Return the path; refuse names of pickles, which run code when they are loaded."""
    path = Path(path)
    if path.suffix.lower() in PICKLES:
        raise ValueError(
            f"{path} is named as a pickle, which runs code when it is loaded; models are files of "
            f"skops: name it {path.with_suffix('.skops').name}."
        )
    return path


def _strange(names: list[str]) -> list[str]:
    """Return the types that belong to no part of this package that a model may hold."""
    known = tuple(f"otdro.{part}." for part in OURS)
    return [name for name in names if name not in ELSE and not name.startswith(known)]
