"""``otdro predict``: labels and probabilities, or numbers, for the rows of a table."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from typing import Any

from ..files import replacing
from ..persistence import load
from . import printing
from .errors import UserError
from .options import PredictOptions, check_outputs
from .preparing import Differences, check_column, model_rows
from .reading import PIECE, PLAIN, locate, pieces

#: Texts that a spreadsheet takes for formulas; numbers and single signs are none.
FORMULA = re.compile(rf"(?!{PLAIN}$)[=+\-@].")


def predict(options: PredictOptions) -> None:
    """Read the table in pieces, predict, and write in pieces; nothing half-written is left."""
    model, out, identifier = options.model, options.out, options.identifier
    check_outputs({"--out": out}, model, options.data)
    fitted = load(model)
    if not hasattr(fitted, "feature_names_in_"):
        raise UserError(f"{model} holds a {type(fitted).__name__}, not a model from otdro fit.")
    if out is not None and out.suffix not in (".csv", ".tsv", ".txt", ""):
        raise UserError(
            f"predictions are written as CSV; {out} ends in {out.suffix}: name a .csv file."
        )
    separator = "\t" if out is not None and out.suffix == ".tsv" else ","
    differences = Differences()
    # on a terminal that shows the predictions themselves a bar would be in their way
    hidden = out is None and sys.stdout.isatty()
    target = nullcontext(sys.stdout.buffer) if out is None else replacing(out)
    with target as file, printing.working("predicting", hidden) as doing:
        source = locate(options.data, options.decimal)
        done, marked = 0, False
        for piece in pieces(source, PIECE):
            X = model_rows(fitted, piece, differences, (identifier,))
            if options.strict and differences.unseen:
                unseen = "; ".join(differences.unseen_values().values())
                raise UserError(
                    f"{unseen}: the training data did not have that. Correct it, or leave "
                    "--strict out."
                )
            rows = predictions(fitted, X)
            if identifier is not None:
                check_column(identifier, list(piece.columns))
                rows.insert(0, identifier, piece[identifier].to_numpy())
            texts = rows.select_dtypes(exclude="number")
            safe = texts.map(_no_formula)
            marked |= not safe.equals(texts)
            rows = rows.assign(**safe).rename(columns=_no_formula)
            rows.to_csv(file, index=False, header=done == 0, sep=separator, mode="wb")
            done += len(rows)
            doing(f"predicting, {done:,} rows done")
    notes = [*source.notes, *differences.notes()]
    if marked:
        notes.append("texts that a spreadsheet would run as formulas have a ' in front.")
    printing.remark(notes)


def _no_formula(value: Any) -> Any:
    """Return a text that a spreadsheet would take for a formula with a quote in front."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def predictions(model: Any, X: Any) -> Any:
    """Return a table of predictions, with one probability per class where the model has them."""
    columns: dict[str, Any] = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(X)
        columns |= {f"p_{c}": chances[:, k] for k, c in enumerate(model.classes_)}
    return type(X)(columns)
