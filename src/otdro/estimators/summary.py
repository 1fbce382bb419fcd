"""A fitted estimator on one page: data, ball, coefficients, held-out rows, and what is attacked."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score, roc_curve
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ..arrays import numpy
from ..costs import Cost
from ..costs.table import ROWS, Grid, cost_name, left_out, named
from ..design import column_scale
from ..pairs import generator
from .base import DROEstimator
from .columns import column_groups, column_parts, score_vectors, units_of

Array = NDArray[Any]

#: Columns that the adversary attacks, and risks of classes, that a reader is shown.
LISTED = 6
#: The ends of an interval: the quantiles between which 95% of the refits lie.
ENDS = (0.025, 0.975)
#: Bins of equal numbers of rows in which predictions are compared with what was observed.
BINS = 10
#: What the costs without a matrix charge, by their names.
COST_WORDS = {
    "l1": "the price of a move is the sum of its changes, over all columns",
    "euclidean": "a move costs the same in every direction",
    "linf": "the price of a move is its largest change in any one column",
}


def cost_in_words(cost: Cost) -> str:
    """Return the name of a cost and what it charges."""
    name = cost_name(cost)
    words = COST_WORDS.get(name, repr(cost))
    weights = getattr(cost, "weights_", {})
    if weights:
        words = "a blend of " + ", ".join(f"{share:.0%} {part}" for part, share in weights.items())
    return f"{name}: {words}"


def attacked_columns(model: Any) -> Array:
    """Return the part (d,) of an adversary's budget that goes into each column.

    Of several scores it is that of the difference of two of the largest dual norm. Zeros where no
    move changes a score, and for costs that are no norm.
    """
    w = score_vectors(np.atleast_2d(numpy(model.coef_)))
    if not (model.cost_.is_norm and model.delta_ > 0):
        return np.zeros(w.shape[1])
    k = int(np.argmax(model.cost_.dual_norm(w)))
    return column_parts(w[[k]], model.cost_)[0]


@dataclass(frozen=True, eq=False)
class Summary:
    """A fitted estimator in figures; ``print`` it, or let a notebook show it.

    Attributes
    ----------
    facts : list of pairs of str
        What was fitted to what: names and values.
    names : list of str
        The columns.
    classes : list of str or None
        The labels; None for regression.
    coef, intercept : ndarray of shape (K, d) and (K,)
        The coefficients; K = 1 for two classes and for regression.
    interval : ndarray of shape (2, K, d) or None
        Between these 95% of the coefficients of the refits lie; None without refits.
    scale : ndarray of shape (d,) or None
        The standard deviations of the columns.
    measures : dict
        Measures of held-out rows; empty where there are none.
    held_out : str
        Which rows the measures are of.
    attacked : dict
        The share of the adversary's budget of each column, the largest first.
    notes : list of str
        What the reader should know.
    """

    facts: list[tuple[str, str]]
    names: list[str]
    classes: list[str] | None
    coef: Array
    intercept: Array
    interval: Array | None
    scale: Array | None
    measures: dict[str, float]
    held_out: str
    attacked: dict[str, float]
    notes: list[str]

    def coefficients(self) -> Grid:
        """Return one line per column and class: coefficient, interval, deviation, and its side."""
        head, body = ["column", "coefficient"], []
        head += [] if self.interval is None else ["95% of refits"]
        head += [] if self.scale is None else ["standard deviation", "per deviation"]
        scale = np.ones(len(self.names)) if self.scale is None else self.scale
        size = np.abs(self.coef * scale).max(axis=0)
        for j in np.argsort(-size, kind="stable")[:ROWS]:
            for k, value in enumerate(self.coef[:, j]):
                line = [self.names[j], f"{value:+.4g}"]
                if self.interval is not None:
                    line.append("{:+.3g} to {:+.3g}".format(*self.interval[:, k, j]))
                if self.scale is not None:
                    line += [f"{scale[j]:.3g}", f"{value * scale[j]:+.3g}"]
                body.append([*line, self._side(k, value)])
        blank = [""] * (len(head) - 2)
        for k, value in enumerate(self.intercept):
            body.append(["(intercept)", f"{value:+.4g}", *blank, self._side(k, value)])
        return Grid([*head, "towards"], body)

    def _side(self, k: int, value: float) -> str:
        """Return the class that a larger value of a column speaks for, or whether targets rise."""
        if value == 0:
            return "-"
        if self.classes is None:
            return "higher" if value > 0 else "lower"
        if len(self.coef) == 1:
            return self.classes[int(value > 0)]
        return self.classes[k] if value > 0 else f"not {self.classes[k]}"

    def sections(self) -> list[tuple[str, Grid]]:
        """Return the tables below the facts with their titles."""
        title = "Coefficients, the largest per standard deviation first"
        parts = [(title, self.coefficients())]
        if self.measures:
            body = [[name, f"{value:.4g}"] for name, value in self.measures.items()]
            parts.append((f"Held-out rows: {self.held_out}", Grid(["measure", "value"], body)))
        if self.attacked:
            body = [[name, f"{share:.0%}"] for name, share in list(self.attacked.items())[:LISTED]]
            title = "Columns that the adversary attacks first"
            parts.append((title, Grid(["column", "share of its budget"], body)))
        return parts

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name.ljust(width)}  {value}" for name, value in self.facts]
        for title, grid in self.sections():
            lines += ["", title, *grid.lines()]
            lines += left_out(len(self.names)) if "Coefficients" in title else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        facts = ("", [list(pair) for pair in self.facts])
        tables = [(title, [grid.head, *grid.body]) for title, grid in self.sections()]
        parts = []
        for title, lines in [facts, *tables]:
            rows = ["".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines]
            body = "".join(f"<tr>{row}</tr>" for row in rows)
            parts.append(f"<table><caption>{escape(title)}</caption>{body}</table>")
        return "".join([*parts, *(f"<p>note: {escape(note)}</p>" for note in self.notes)])


def summarise(model: Any, refits: int, random_state: Any, n_jobs: int | None) -> Summary:
    """Return the summary of a fitted estimator of otdro."""
    check_is_fitted(model)
    rows = training_rows(model)
    names = named(getattr(model, "feature_names_in_", None), None, model.n_features_in_)
    coef = np.atleast_2d(numpy(model.coef_))
    scale, interval, tested = training_scale(model), None, held_out(model)
    notes: list[str] = []
    if rows is None:
        notes.append(
            "the training rows are not saved with a model: intervals and held-out rows are those "
            "of a model that was fitted to rows in memory."
        )
    elif refits and model._support_given:
        notes.append("refits do not know the support of the fit: there are no intervals.")
    elif refits:
        collected = rows.collect(_coefficients, refits, random_state, n_jobs)
        interval = np.quantile(collected, ENDS, axis=0)
    shares = attacked_columns(model)
    order = np.argsort(-shares, kind="stable")
    classes = getattr(model, "classes_", None)
    return Summary(
        facts=_facts(model, rows, names, scale, refits if interval is not None else 0),
        names=names,
        classes=None if classes is None else [str(c) for c in classes],
        coef=coef,
        intercept=np.atleast_1d(numpy(model.intercept_)),
        interval=interval,
        scale=scale,
        measures={} if tested is None else tested.measures(),
        held_out="" if tested is None else f"{tested.rows} rows, by {tested.folds}",
        attacked={names[j]: float(shares[j]) for j in order if shares[j] > 0},
        notes=notes,
    )


def _coefficients(front: Any, last: Any) -> Array:
    return np.atleast_2d(last.coef_)


def _facts(
    model: Any, rows: Any, names: list[str], scale: Array | None, refits: int
) -> list[tuple[str, str]]:
    """Return what was fitted to what."""
    order, delta = int(model.ball_.order), float(model.delta_)
    by = {"cv": "chosen by folds", "theory": "chosen by theory"}.get(str(model.delta), "as given")
    words = ""
    if scale is not None and model.cost_.is_norm:
        coef = np.atleast_2d(numpy(model.coef_))
        # without categories no row is looked at
        units = units_of(column_groups(None, names), coef, None, scale, model.cost_)
        words = units.in_words(delta, order)
    facts = [("model", f"{type(model).__name__}, {type(model.loss_).__name__} loss")]
    size = "" if rows is None else f"{len(rows.y)} rows, "
    facts.append(("fitted to", f"{size}{len(names)} columns"))
    classes = getattr(model, "classes_", None)
    if classes is not None:
        counts = [str(c) if rows is None else f"{c} {int((rows.y == c).sum())}" for c in classes]
        facts.append(("classes", ", ".join(counts)))
    facts += [
        ("cost", f"{cost_in_words(model.cost_)}; order {order}"),
        ("delta", f"{delta:.4g}, {by}" + (f": {words}" if words else "")),
        ("mean loss", _listed(model.empirical_risk_)),
        ("worst mean loss", f"{_listed(model.robust_risk_)} within delta"),
    ]
    if refits:
        facts.append(("refits", f"{refits} to bootstrap samples, cost and delta kept"))
    return facts


def _listed(value: Any) -> str:
    values = np.ravel(value)
    more = ", …" if len(values) > LISTED else ""
    return ", ".join(f"{v:.4g}" for v in values[:LISTED]) + more


def front_and_last(model: Any) -> tuple[Any, Any]:
    """Return the steps in front of a model, None where there are none, and its last step."""
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return None, model
    return (model[:-1] if len(model.steps) > 1 else None), model.steps[-1][1]


def at_its_ball(model: Any) -> Any:
    """Return an unfitted copy; an estimator of otdro keeps the cost and delta it was fitted at."""
    again = clone(model)
    if isinstance(model, DROEstimator) and hasattr(model, "ball_"):
        again.set_params(cost=model.cost_, order=int(model.ball_.order), delta=model.delta_)
    return again.set_params(n_jobs=None) if "n_jobs" in again.get_params() else again


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Refits of a fitted ``model`` to samples, drawn with replacement, of rows (X, y).

    A row that is drawn k times has k times its weight: so no fold of a refit
    is tested on a copy of a row that it was fitted to. A model that takes no weights is given the
    copies. ``rechoose``: also refit the steps in front and choose cost and delta anew; else the
    steps in front are those of the model, and so are cost and delta of otdro's estimators.
    """

    model: Any
    X: Any
    y: Array
    weights: Array
    rechoose: bool = False

    def collect(
        self,
        value: Callable[[Any, Any], Array],
        refits: int,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Array:
        """Return value(front, last) of every refit, stacked: (refits, ...)."""
        rng = generator(random_state)
        seeds = rng.randint(np.iinfo(np.int32).max, size=refits)
        front, last = front_and_last(self.model)
        Z = self.X
        if front is not None and not self.rechoose:
            Z = front.transform(self.X)
        job = delayed(self._refit)
        return np.stack(Parallel(n_jobs=n_jobs)(job(seed, Z, front, last, value) for seed in seeds))

    def _refit(
        self, seed: int, Z: Any, front: Any, last: Any, value: Callable[[Any, Any], Array]
    ) -> Array:
        """Return the value of one refit."""
        drawn = self._drawn(np.random.default_rng(seed))
        rows, count = np.unique(drawn, return_counts=True)
        again = clone(last) if self.rechoose else at_its_ball(last)
        with warnings.catch_warnings():
            # a sample may be separable, or leave a column constant: what counts is the spread
            warnings.simplefilter("ignore")
            if self.rechoose and front is not None:
                front = clone(front).fit(_safe_indexing(self.X, drawn), self.y[drawn])
                Z = front.transform(self.X)
            if has_fit_parameter(again, "sample_weight"):
                weights = self.weights[rows] * count
                again.fit(_safe_indexing(Z, rows), self.y[rows], sample_weight=weights)
            else:
                again.fit(_safe_indexing(Z, drawn), self.y[drawn])
            return value(front, again)

    def _drawn(self, rng: np.random.Generator) -> Array:
        """Return rows with weight, drawn with replacement, anew until all classes are there."""
        some = np.flatnonzero(self.weights)
        classes = 1
        if is_classifier(front_and_last(self.model)[1]):
            classes = len(np.unique(self.y[some]))
        while True:
            drawn = some[rng.integers(len(some), size=len(some))]
            if len(np.unique(self.y[drawn])) >= classes:
                return drawn


def training_rows(model: Any) -> Bootstrap | None:
    """Return the rows that an estimator of otdro was fitted to; None where they are gone.

    The weights are positive with sum 1, and hold those of the classes.
    """
    if not hasattr(model, "_result"):
        return None
    sample, y, *_ = model._result.targets
    X = sample.X if hasattr(sample.X, "tocsr") else numpy(sample.X)
    model = copy(model)
    model.class_weight = None
    return Bootstrap(model, X, numpy(y), numpy(sample.weights))


def training_scale(model: Any) -> Array | None:
    """Return the standard deviations of the columns that an estimator of otdro was fitted to.

    They are saved with a model, the rows are not; members of a mix see the same rows. None for
    models of others.
    """
    rows = training_rows(model)
    if rows is None:
        scales = [training_scale(member) for member in getattr(model, "members_", {}).values()]
        scales = [getattr(model, "_column_scale", None), *scales]
        return next((scale for scale in scales if scale is not None), None)
    return column_scale(rows.X, rows.weights)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What models that did not see a row say of it.

    Attributes
    ----------
    target : ndarray of shape (E,)
        The number of the class, or the target; a row is there once for every fold that tests it.
    score : ndarray of shape (E,) or (E, K)
        Its score, one per class of several; for regression the prediction.
    probability : ndarray of shape (E, n_classes) or None
        Its class probabilities.
    weights : ndarray of shape (E,)
        Of sum 1.
    classes : ndarray of shape (n_classes,) or None
        The labels; None for regression.
    rows : int
        The number of distinct rows.
    folds : str
        Which folds held the rows out, in words.
    """

    target: Array
    score: Array
    probability: Array | None
    weights: Array
    classes: Array | None
    rows: int
    folds: str

    @property
    def predicted(self) -> Array:
        """The numbers of the predicted classes, or the predictions, (E,)."""
        if self.classes is None:
            return self.score
        return self.score.argmax(axis=1) if self.score.ndim == 2 else (self.score > 0).astype(int)

    def measures(self) -> dict[str, float]:
        """Return the measures of the task by name; what does not apply is left out."""
        y, w = self.target, self.weights
        if self.classes is None:
            error = self.score - y
            root = float(np.sqrt(w @ error**2))
            found = {"RMSE": root, "MAE": float(w @ np.abs(error))}
            return found | {"calibration slope": self.calibration_slope()}
        labels = np.arange(len(self.classes))
        found = {"accuracy": float(w @ (self.predicted == y))}
        if self.probability is not None:
            loss = float(log_loss(y, self.probability, sample_weight=w, labels=labels))
            found = {"log-loss": loss, **found}
        if self.score.ndim == 1:
            found["AUC"] = float(roc_auc_score(y, self.score, sample_weight=w))
        elif self.probability is not None:
            found["AUC"] = float(roc_auc_score(y, self.probability, multi_class="ovr"))
        if self.probability is not None and self.score.ndim == 1:
            found["calibration slope"] = self.calibration_slope()
        return found

    def calibration_slope(self) -> float:
        """Return the slope of targets in the predictions, of two classes in the log-odds.

        1 is right, below 1 predictions are too extreme; nan where all predictions are equal, inf
        where they separate the classes.
        """
        z, y = self.score, self.target
        if np.ptp(z) == 0:
            return float("nan")
        if self.classes is None:
            line = LinearRegression().fit(z[:, None], y, sample_weight=self.weights)
            return float(line.coef_[0])
        if z[y == 0].max(initial=-np.inf) < z[y == 1].min(initial=np.inf):
            return float("inf")
        # in units of their spread, so that the solver meets numbers near 1
        line = LogisticRegression(C=np.inf, max_iter=1000)
        line.fit(z[:, None] / z.std(), y, sample_weight=self.weights * len(y))
        return float(line.coef_[0, 0] / z.std())

    def calibration(self) -> Array:
        """Return mean prediction, mean observed, and rows in bins of equal rows: (bins, 3).

        Of two classes the prediction is the probability of the second one; of several classes, and
        without probabilities, there are no bins.
        """
        p = self.score if self.classes is None else None
        if self.probability is not None and self.probability.shape[1] == 2:
            p = self.probability[:, 1]
        if p is None:
            return np.zeros((0, 3))
        bins = np.array_split(np.argsort(p, kind="stable"), min(BINS, len(p)))
        lines = []
        for rows in bins:
            w = self.weights[rows]
            means = [float(w @ values[rows]) / w.sum() for values in (p, self.target)]
            lines.append([*means, w.sum() * self.rows])
        return np.array(lines)

    def roc(self) -> Array:
        """Return false and true positive rates, (m, 2), of two classes; no lines else."""
        if self.classes is None or self.score.ndim == 2:
            return np.zeros((0, 2))
        false, true, _ = roc_curve(self.target, self.score, sample_weight=self.weights)
        return np.column_stack([false, true])

    def confusion(self) -> Array:
        """Return how many rows of each class (lines) are predicted to be of each (columns)."""
        weights = self.weights * self.rows
        labels = np.arange(0 if self.classes is None else len(self.classes))
        return confusion_matrix(self.target, self.predicted, labels=labels, sample_weight=weights)


def held_out(model: Any) -> HeldOut | None:
    """Return the held-out rows of a fitted estimator of otdro.

    They are those of the folds that chose delta or the cost, at what they chose; else of five folds
    at the fitted cost and delta. None where the rows of the fit are gone, or too few.
    """
    rows = training_rows(model)
    if rows is None:
        return None
    tested = getattr(getattr(model, "path_", None), "out_of_fold", None)
    if tested is not None:
        index, score = tested.rows, tested.scores
        folds = "the folds that chose delta and the cost"
    else:
        made = _folds_at_the_ball(rows)
        if made is None:
            return None
        index, score = made
        folds = "folds at the fitted cost and delta"
    score = score[:, 0] if score.ndim == 2 and score.shape[1] == 1 else score
    times = np.bincount(index, minlength=len(rows.y))
    weights = rows.weights[index] / times[index]
    classes = getattr(model, "classes_", None)
    target = rows.y[index]
    return HeldOut(
        target=target if classes is None else np.searchsorted(classes, target),
        score=score,
        probability=model._probabilities(score) if hasattr(model, "predict_proba") else None,
        weights=weights / weights.sum(),
        classes=classes,
        rows=int(np.count_nonzero(times)),
        folds=folds,
    )


def _folds_at_the_ball(rows: Bootstrap) -> tuple[Array, Array] | None:
    """Return row numbers and scores of rows held out by folds at the fitted cost and delta.

    None where there are too few rows, or rows of a class, for two folds.
    """
    classes, y = is_classifier(rows.model), rows.y
    rarest = int(np.unique(y, return_counts=True)[1].min()) if classes else len(y)
    count = min(DROEstimator.cv, rarest)
    if count < 2:
        return None
    kind, method = (StratifiedKFold, "decision_function") if classes else (KFold, "predict")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = cross_val_predict(
            at_its_ball(rows.model),
            rows.X,
            y,
            cv=kind(count, shuffle=True, random_state=0),
            method=method,
            params={"sample_weight": rows.weights},
        )
    return np.arange(len(y)), score
