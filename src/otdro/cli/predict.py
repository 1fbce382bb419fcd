"""``otdro predict``: labels and probabilities, or numbers, for the rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..files import replacing
from ..persistence import load
from . import printing
from .errors import UserError
from .fit import check_writable
from .preparing import absent_values, check_column, column_as, numbers_of
from .reading import PIECE, locate, pieces

#: What is done with values that are missing, and with infinite ones, after how many there are.
MISSING = "replaced as in the training data."
INFINITE = "replaced as missing ones are in the training data."


def predict(
    model: Path,
    data: str,
    out: Path | None,
    *,
    identifier: str | None = None,
    decimal: str = "auto",
) -> None:
    """Read the table in pieces, predict, and write in pieces; nothing half-written is left."""
    fitted = load(model)
    if not hasattr(fitted, "feature_names_in_"):
        raise UserError(f"{model} holds a {type(fitted).__name__}, not a model from otdro fit.")
    if out is not None:
        check_writable(out)
        if out.suffix not in (".csv", ".tsv", ".txt", ""):
            raise UserError(
                f"predictions are written as CSV; {out} ends in {out.suffix}: name a .csv file."
            )
    notes: dict[str, int] = {}
    # on a terminal that shows the predictions themselves a bar would be in their way
    hidden = out is None and sys.stdout.isatty()
    with _writer(out) as write, printing.working("predicting", hidden) as doing:
        separator = "\t" if out is not None and out.suffix == ".tsv" else ","
        source = locate(data, decimal)
        done = 0
        for k, piece in enumerate(pieces(source, PIECE)):
            rows = predictions(fitted, features(fitted, piece, notes, k * PIECE))
            if identifier is not None:
                check_column(identifier, list(piece.columns))
                rows.insert(0, identifier, piece[identifier].to_numpy())
            write(rows.to_csv(index=False, header=k == 0, sep=separator))
            done += len(rows)
            doing(f"predicting, {done:,} rows done")
    printing.remark([*source.notes, *counted(notes)])


@contextmanager
def _writer(out: Path | None) -> Iterator[Callable[[str], int]]:
    """Yield standard output, or a file that is in place only when it is whole."""
    if out is None:
        yield sys.stdout.write
        return
    with replacing(out) as file:
        yield lambda text: file.write(text.encode())


def check_model_columns(wanted: Any, table: Any, notes: dict[str, int]) -> None:
    """Refuse a table that lacks columns of a model; note those that the model does not use."""
    missing = [str(name) for name in wanted if name not in table.columns]
    if missing:
        raise UserError(
            f"the table lacks columns that the model needs: {', '.join(missing[:8])}. Add them, or "
            "fit again without them."
        )
    extra = [str(name) for name in table.columns if name not in wanted]
    if extra:
        notes[f"columns that the model does not use are ignored: {', '.join(extra[:8])}."] = 0


def features(model: Any, table: Any, notes: dict[str, int], first: int) -> Any:
    """Return the model's columns in its order, as the numbers and texts it was fitted to."""
    wanted = [str(name) for name in model.feature_names_in_]
    check_model_columns(wanted, table, notes)
    kinds = {name: kind for kind, _, names in model[0].transformers_ for name in names}
    found = {name: column_as(table[name], kinds.get(name, "numbers"), first) for name in wanted}
    frame = type(table)(found)
    if _has_new_categories(model, frame):
        notes["categories that the training data did not have count as none of them."] = 0
    numbers = [name for name in wanted if kinds.get(name, "numbers") == "numbers"]
    infinite = sum(int(np.isinf(numbers_of(table[name], first)).sum()) for name in numbers)
    absent = int(frame.isna().sum().sum()) - infinite
    for text, count in ((MISSING, absent), (INFINITE, infinite)):
        if count:
            notes[text] = notes.get(text, 0) + count
    return frame


def counted(notes: dict[str, int]) -> list[str]:
    """Return the notes on a table, those on values with their counts."""
    found = []
    for text, count in notes.items():
        if text in (MISSING, INFINITE):
            subject = absent_values(count) if text == MISSING else absent_values(0, count)
            found.append(f"{subject} {text}")
        else:
            found.append(text)
    return found


def _has_new_categories(model: Any, frame: Any) -> bool:
    """Whether a text column holds a value that the encoder has not seen."""
    for kind, steps, names in model[0].transformers_:
        if kind == "texts":
            known = zip(names, steps[-1].categories_, strict=True)
            return any(set(frame[name].dropna()) - set(seen) for name, seen in known)
    return False


def predictions(model: Any, X: Any) -> Any:
    """Return a table of predictions, with one probability per class where the model has them."""
    columns: dict[str, Any] = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(X)
        columns |= {f"p_{c}": chances[:, k] for k, c in enumerate(model.classes_)}
    return type(X)(columns)
