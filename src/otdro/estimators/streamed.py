"""Fits, scores and risks of rows that come in chunks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight

from ..chunks import Chunk, Chunks, Sums, open_rows
from ..design import WRITTEN_UP_TO, model_scores
from ..losses import Loss
from ..memory import require_memory
from ..radius import candidates as cost_candidates
from ..radius.checks import check_delta, resolve_order
from ..radius.selection import Choice
from ..radius.splitting import DEFAULT_FOLDS
from ..radius.streamed import choose, group_folds, lacks
from ..radius.trials import Settings
from ..solvers.streamed import Folds, Stream, opened
from .multinomial import model_form
from .prices import fit_price
from .report import names_of
from .rows import require_classes

Array = NDArray[Any]

#: Memory that a fit in memory takes at most, as a multiple of X in float64.
IN_MEMORY = 3.0
#: Arguments of ``fit`` that may come in chunks beside X, by their names there.
BESIDE = {"sample_weight": "w", "groups": "group"}
#: Parameters and arguments that rows in chunks do not take, with the values that stand for none.
FIXED: dict[str, tuple[Any, ...]] = {
    "scoring": (None,),
    "solver": ("auto", "exact"),
}


def _reads_chunks(model: Any, X: Any, y: Any, loss: Loss, extra: dict[str, Any]) -> bool:
    """Whether a fit to X in chunks reads it so; a mapped file that it cannot is read into memory.

    That is refused where the memory is too small, with what keeps the fit from chunks.
    """
    if not isinstance(X, np.ndarray):
        return True
    try:
        _require_plain(model, extra)
        _folds(model)
        tried = cost_candidates.resolve(model.cost, X)
        order = resolve_order(model.order, loss, tried.cost)
        price = getattr(model, "label_cost", np.inf)
        if price != np.inf:
            loss = model_form(model, loss, len(np.unique(y)), None).loss or loss
        reason = lacks(loss, order, tried, price)
    except ValueError as refused:
        reason = str(refused)
    if reason is None:
        return True
    need = IN_MEMORY * 8.0 * X.size
    require_memory(need, "a fit in memory to all of X", f"it cannot read X in chunks. {reason}")
    return False


def fit_in_chunks(model: Any, X: Any, y: Any, loss: Loss, extra: dict[str, Any]) -> bool:
    """Fit a model to rows in chunks and store what it found, or leave it to a fit in memory.

    Returns whether it did.
    """
    if not _reads_chunks(model, X, y, loss, extra):
        return False
    _require_plain(model, extra)
    beside = {part: extra[name] for name, part in BESIDE.items()}
    chunks = open_rows(X, y, **beside)
    _require_size(chunks)
    folds = _folds(model)
    grouped = extra["groups"] is not None and folds.count > 0
    grouping = partial(group_folds, folds) if grouped else None
    stream = opened(chunks, loss, bool(model.fit_intercept), folds, grouping)
    note = ""
    if stream.classes is None:
        stream = replace(stream, target_cost=fit_price(model, "target_cost", None))
    else:
        stream = replace(stream, label_cost=fit_price(model, "label_cost", None))
    if stream.classes is not None:
        form = model_form(model, loss, len(stream.classes), None)
        stream = _weighed(stream, model)
        note = form.note
        if form.loss is not None:
            stream = replace(stream, loss=form.loss)
            _require_pairs(stream)
    _require_folds(stream)
    chosen = choose(stream, _settings(model, stream), model.tol, model.max_iter)
    _report(model, stream, chosen)
    _store(model, stream, chosen, note)
    return True


def _require_plain(model: Any, extra: dict[str, Any]) -> None:
    """Refuse what is for rows in memory."""
    for name, value in extra.items():
        if value is not None and name not in BESIDE:
            raise ValueError(
                f"{name} is for rows in memory, and X comes in chunks: leave {name} out."
            )
    for name, known in FIXED.items():
        value = getattr(model, name, known[0])
        if not any(value is one or value == one for one in known):
            raise ValueError(
                f"{name}={value!r} is for rows in memory, and X comes in chunks: use "
                f"{name}={known[0]!r}."
            )
    if model.rule == "worst" and extra["groups"] is None:
        raise ValueError("rule='worst' needs groups: fit(X, y, groups=...), or use rule='auto'.")


def _require_size(chunks: Chunks) -> None:
    """Refuse too few rows, and columns whose matrices would not fit into memory."""
    if chunks.n < 2:
        raise ValueError(f"a fit needs at least 2 rows, got {chunks.n}.")
    if chunks.d > WRITTEN_UP_TO:
        raise ValueError(
            f"rows in chunks may have {WRITTEN_UP_TO} columns, got {chunks.d}: fit to a part of "
            "the columns, or to rows that fit into memory."
        )
    # a few matrices of d x d, rows kept for the start, and a chunk in float64
    need = 8.0 * (40 * chunks.d**2 + 2**25)
    require_memory(need, f"a fit with {chunks.d} columns", "leave out columns")


def _require_pairs(stream: Stream) -> None:
    """Refuse a softmax model whose Newton matrix would not fit into memory."""
    side = (stream.chunks.d + 1) * (stream.loss.outputs - 1)
    # the matrix over the rows so far, that of a chunk, and a few to factorise it
    what = f"a softmax model of {stream.loss.outputs} classes and {stream.chunks.d} columns"
    require_memory(8.0 * 6 * side**2, what, "use multi_class='ovr', or leave out columns")


def _folds(model: Any) -> Folds:
    """Return the folds that the fit needs: none where delta and cost are given."""
    delta = check_delta(model.delta)
    learns = (isinstance(model.cost, str) and model.cost == "learned") or hasattr(model.cost, "how")
    priced = "cv" in (getattr(model, "label_cost", None), getattr(model, "target_cost", None))
    if delta != "cv" and not learns and not priced:
        return Folds()
    cv = DEFAULT_FOLDS if model.cv is None else model.cv
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer):
        raise ValueError(
            f"folds of rows in chunks are made from the numbers of the rows: give a number as cv, "
            f"got {type(cv).__name__}."
        )
    if cv < 2:
        raise ValueError(f"cv must be at least 2 folds, got cv={cv}.")
    seed = model.random_state
    if seed is None or isinstance(seed, int | np.integer):
        return Folds(int(cv), int(seed or 0))
    raise ValueError(f"rows in chunks need an int or None as random_state, got {seed!r}.")


def _weighed(stream: Stream, model: Any) -> Stream:
    """Return the stream with the weights of its classes; refuse a class without weight."""
    classes, counts = stream.classes, stream.counts.sum(axis=0)
    assert classes is not None
    require_classes(classes, stream.mass())
    if model.class_weight is None:
        return stream
    # "balanced" is n/(K n_k); a dict is looked up
    balanced = isinstance(model.class_weight, str) and model.class_weight == "balanced"
    factors = (
        counts.sum() / (len(classes) * counts)
        if balanced
        else compute_class_weight(model.class_weight, classes=classes, y=classes)
    )
    weighed = replace(stream, factors=np.asarray(factors, dtype=float))
    require_classes(classes, weighed.mass())
    return weighed


def _require_folds(stream: Stream) -> None:
    """Refuse folds that leave a class without rows."""
    for f in range(stream.folds.count):
        if not np.all(stream.mass(f) > 0) or not stream.held(f) > 0:
            raise ValueError(
                f"fold {f} of {stream.folds.count} has no rows, or leaves a class without any: use "
                "fewer folds as cv, or a number as delta."
            )


def _settings(model: Any, stream: Stream) -> Settings:
    return Settings(
        cost=model.cost,
        order=model.order,
        delta=model.delta,
        cv=model.cv,
        scoring=None,
        rule=model.rule,
        deltas=model.deltas,
        confidence=model.confidence,
        n_jobs=None,
        random_state=model.random_state,
        estimator=model,
        y=stream.rows.y,
        classes=stream.classes,
    )


def _report(model: Any, stream: Stream, chosen: Choice) -> None:
    """Warn of solutions that are not certified, and of constant ones at a given delta."""
    delta = chosen.ball.delta
    names = names_of(stream.classes, len(stream.models))
    for found, name in zip(chosen.solutions or [], names, strict=True):
        if not found.converged:
            _warn(
                f"the fit{name} did not reach the gap asked for: {found.message}. Raise max_iter "
                f"(now {model.max_iter}), raise tol (now {model.tol:g}), or scale the columns of "
                "X.",
                ConvergenceWarning,
            )
        elif not found.coef.any() and chosen.path is None and delta > 0:
            _warn(
                f"every coefficient of the fit{name} is zero: from a smaller delta than "
                f"{delta:.4g} on the constant model is the best answer. Use a smaller delta, or "
                "delta='cv'.",
                UserWarning,
            )


def _warn(text: str, category: type[Warning]) -> None:
    # the caller of fit: _warn, _report, fit_in_chunks, _fit, fit
    warnings.warn(text, category, stacklevel=6)


def _store(model: Any, stream: Stream, chosen: Choice, note: str) -> None:
    """Store what a fit in memory stores, but for the rows."""
    solutions, chunks = chosen.solutions or [], stream.chunks
    model.n_features_in_ = chunks.d
    if chunks.columns is not None:
        model.feature_names_in_ = np.array(chunks.columns, dtype=object)
    model.loss_, model.ball_ = stream.loss, chosen.ball
    model.cost_, model.delta_ = chosen.ball.cost, float(chosen.ball.delta)
    model.coef_ = np.concatenate([np.atleast_2d(found.coef) for found in solutions])
    model.intercept_ = np.concatenate([np.atleast_1d(found.intercept) for found in solutions])
    if stream.classes is None:
        model.coef_, model.intercept_ = model.coef_[0], float(model.intercept_[0])
    else:
        model.classes_ = stream.classes
    model.multiplier_ = _one_or_all([float(found.multiplier) for found in solutions])
    model.robust_risk_ = _one_or_all([float(found.objective) for found in solutions])
    losses = [found.mean_loss for found in solutions if found.mean_loss is not None]
    model.empirical_risk_ = _one_or_all(losses)
    model.gap_ = _one_or_all([float(found.gap) for found in solutions])
    model.n_iter_ = max(found.n_iter for found in solutions)
    passes = f"{chunks.passes} pass{'' if chunks.passes == 1 else 'es'} over {chunks.n} rows"
    notes = f"{note} {chosen.note}".strip()
    told = [f"{found.message.rstrip('.')}, {passes}. {notes}".strip() for found in solutions]
    model.message_ = told[0] if len(told) == 1 else told
    if chosen.path is not None:
        model.path_ = chosen.path
    model._support_given = False


def _one_or_all(values: list[float]) -> Any:
    """Return the one number, or the array of those of every class."""
    return values[0] if len(values) == 1 else np.array(values)


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """The job that collects the scores x'beta + b of every row, for coefficients (K, d)."""

    coef: Array
    intercept: Array

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the scores of a chunk."""
        chunk.require_finite()
        return {"z": [model_scores(chunk.X, self.coef, self.intercept)]}


def scores_in_chunks(model: Any, X: Any) -> Array:
    """Return the scores of rows in chunks: (n, K)."""
    names = getattr(model, "feature_names_in_", None)
    rows = open_rows(X, columns=None if names is None else list(names))
    if rows.d != model.n_features_in_:
        raise ValueError(f"X has {rows.d} columns, but the model has {model.n_features_in_}.")
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    [found] = rows.total(ScoreRows(coef, intercept))
    return np.concatenate(found["z"])
