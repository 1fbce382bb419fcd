"""``otdro table1``: the paper's experiment, resumable, beside the paper's numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..datasets import DatasetUnavailableError, load
from ..experiment import (
    SIZES,
    Device,
    Plan,
    Row,
    notes,
    resolve,
    run,
    tables,
    write_atomic,
)
from ..experiment.methods import listed
from . import printing
from .errors import UserError
from .options import Table1


def settings(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file, each of the kind of its default."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}.") from None
    values = {k: ",".join(v) if isinstance(v, list) else v for k, v in values.items()}
    known = Table1.__dataclass_fields__
    for name, value in values.items():
        if name not in known:
            raise UserError(f"{path} sets {name!r}, which is none of {', '.join(known)}.")
        default = getattr(Table1, name)
        if default is not None and type(value) is not type(default):
            raise UserError(f"{path}: {name} must be like {default!r}, got {value!r}.")
    return values


def table1(asked: Table1) -> None:
    """Run what is missing, then write and print the tables."""
    folder = Path(asked.out)
    device = _device(asked)
    plan = _plan(asked)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; --out names a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise UserError(f"no permission to write in {folder}. Choose another --out.")
    with printing.progress(len(plan.cells()), log=True) as tell:
        rows = run(
            plan,
            folder,
            jobs=asked.jobs,
            backend=asked.backend,
            device=device,
            report=tell,
        )
    text = write(rows, folder, asked)
    printing.console().print(text, soft_wrap=True)
    printing.say(f"rows and tables are in {folder}")
    if device is not None and device.problems:
        printing.note(device.done())


def _device(asked: Table1) -> Device | None:
    if asked.device is None:
        return None
    if asked.jobs != 1 or asked.backend is not None:
        raise UserError(
            "--device runs all replications in one process, and --jobs and --backend are for "
            "several: leave them out, or leave --device out."
        )
    return Device(asked.device)


def _plan(asked: Table1) -> Plan:
    if asked.reps < 1:
        raise UserError(f"--reps must be at least 1, got {asked.reps}.")
    if asked.seed < 0:
        raise UserError(f"--seed must be at least 0, got {asked.seed}.")
    if asked.jobs == 0:
        raise UserError("--jobs must be a number of processes, or -1 for all cores; got 0.")
    methods = resolve(asked.methods)
    names = listed(asked.sets, SIZES, {"all": tuple(SIZES)}, "{} is not in the paper's table")
    datasets = {}
    for name in names:
        try:
            datasets[name] = load(name, folder=asked.data, download=False)
        except DatasetUnavailableError as error:
            printing.note(f"{error} The others run.")
    if not datasets or not methods:
        raise UserError("none of the data sets or methods asked for is here; see otdro datasets.")
    return Plan(datasets, methods, asked.reps, asked.seed, asked.intercept)


def write(rows: list[Row], folder: Path, asked: Table1) -> str:
    """Write the tables in text, Markdown and LaTeX; return the text."""
    found = tables(rows, list(SIZES))
    reps = len({row.rep for row in rows})
    about = f"{reps} replications, seed {asked.seed}, {rows[0].versions}"
    about += "" if asked.intercept else ", no intercept"
    told = [f"note: {line}" for line in notes(rows)]
    write_atomic(folder / "table1.tex", "\n\n".join(t.latex() for t in found) + f"\n% {about}\n")
    parts = [about, *(t.markdown() for t in found), *told]
    write_atomic(folder / "table1.md", "\n\n".join(parts) + "\n")
    text = "\n\n".join([about, *(t.text() for t in found), *told]) + "\n"
    write_atomic(folder / "table1.txt", text)
    return text
