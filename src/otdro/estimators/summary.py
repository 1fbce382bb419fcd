"""A fitted estimator on one page: data, ball, coefficients, held-out rows, and what is attacked."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..arrays import numpy
from ..costs import Cost
from ..costs.table import ROWS, Grid, cost_name, left_out, named
from .columns import column_groups, column_parts, score_vectors, units_of
from .resampling import held_out, training_rows, training_scale

Array = NDArray[Any]

#: Columns that the adversary attacks, and risks of classes, that a reader is shown.
LISTED = 6
#: The ends of an interval: the quantiles between which 95% of the refits lie.
ENDS = (0.025, 0.975)
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
