"""The paper's Table 1: (data sets x replications x methods) -> rows -> tables beside the paper's.

    make table1
    python experiments/table1.py [--sets BC,BN] [--methods seven] [--reps 200] [--out FOLDER]

A killed run goes on where it was stopped when the same command is given again, and fits that raised
are tried again. The exit status is 1, after all results are written, if a fit raised.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import FOLDER, Dataset, DatasetUnavailableError, load
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from otdro import costs, metrics
from otdro.comparison import (
    Labelled,
    Setting,
    default_model,
    fit_model,
    folds,
    measures,
    plain,
    prepare,
    standard_error,
    tuned_l1,
    tuned_l2,
)
from otdro.costs.table import Grid
from otdro.files import write_atomic
from otdro.scaling import AUTO, scaler

Array = NDArray[Any]

#: Train, unlabelled and test rows of every data set in the paper's table.
SIZES = {
    "BC": (40, 200, 329),
    "BN": (20, 600, 752),
    "QSAR": (80, 500, 475),
    "Magic": (30, 9000, 9990),
    "MB": (30, 5000, 125034),
    "SB": (150, 1500, 2951),
}
#: Rows in the order in which they were computed, one JSON object per line.
ROWS = "rows.jsonl"
#: The same rows in canonical order.
FINAL = "results.csv"
#: Columns of a terminal.
WIDTH = 80
#: The cell of a table without a number.
NOT_RUN = "-"


# Methods.


@dataclass(frozen=True)
class Method:
    """A model behind a scaling that is fitted on the training rows.

    ``unlabelled`` says whether it is given the unlabelled rows of the paper's splits.
    """

    name: str
    build: Callable[[Setting], Any]
    scale: str
    about: str
    unlabelled: bool = False


def dro_l(setting: Setting) -> Any:
    """Return DRO-L: a learned Mahalanobis cost, delta by the minimum over the folds."""
    return _paper(metrics.GeometricMean(), setting)


def dro_l_printed(setting: Setting) -> Any:
    """Return DRO-L with the metric program as printed, whose solution has rank one."""
    return _paper(metrics.Eigen(), setting)


def dro_nl(setting: Setting) -> Any:
    """Return DRO-NL: a cost on linear and quadratic features, the model linear in x.

    The metric on the features is diagonal: there are more features (1,710 for spambase) than rows.
    The cost is linearised about each row, which is exact for small delta.
    """
    cost = costs.FeatureMap(metric=metrics.Diagonal(), linearised=True)
    return _paper(cost, setting, order=2)


def repeated(setting: Setting) -> Any:
    """Return our default with folds of its own, repeated three times where rows are few."""
    return default_model("classification", replace(setting, cv=5))


def by_profile(setting: Setting) -> Any:
    """Return our default with delta by the scaled profile alone."""
    return default_model("classification", setting).set_params(rule="profile")


def wasserstein(setting: Setting) -> Any:
    """Return plain Wasserstein robust logistic regression: the Euclidean cost."""
    return _paper("euclidean", setting)


def _paper(cost: Any, setting: Setting, order: Any = "auto") -> Any:
    model = default_model("classification", setting)
    return model.set_params(cost=cost, order=order, delta="cv", rule="min")


def _baselines(scale: str) -> list[Method]:
    suffix, words = ("", "") if scale == "standard" else (f"+{scale}", f", after {scale}")
    return [
        Method(f"LR{suffix}", partial(plain, "classification"), scale, f"no penalty{words}"),
        Method(f"LRL1{suffix}", partial(tuned_l1, "classification"), scale, f"tuned L1{words}"),
        Method(f"L2{suffix}", partial(tuned_l2, "classification"), scale, f"tuned L2{words}"),
        Method(f"W{suffix}", wasserstein, scale, f"plain Wasserstein, Euclidean cost{words}"),
    ]


def _registry() -> dict[str, Method]:
    lr, l1, l2, euclidean = _baselines("standard")
    default = partial(default_model, "classification")
    more = f"default with the unlabelled rows, {AUTO}"
    listed = [
        lr,
        l1,
        Method("DRO-L", dro_l, "standard", "learned cost, as in the paper"),
        Method("DRO-NL", dro_nl, "standard", "cost on quadratic features, as in the paper"),
        l2,
        euclidean,
        Method("ours", default, "auto", f"default, {AUTO}"),
        Method("ours-u", default, "auto", more, unlabelled=True),
        *_baselines(AUTO),
        Method("DRO-L1r", dro_l_printed, "standard", "DRO-L, rank-one metric as printed"),
        Method("ours-r", repeated, "auto", f"default with repeated folds of its own, {AUTO}"),
        Method("ours-p", by_profile, "auto", f"default, rule='profile', {AUTO}"),
    ]
    return {method.name: method for method in listed}


#: The methods by name, in the order of the table.
METHODS = _registry()
#: Those of the paper, tuned L2, the Euclidean cost and our default.
SEVEN = ("LR", "LRL1", "DRO-L", "DRO-NL", "L2", "W", "ours")
#: The seven, ours with unlabelled rows, every baseline with the transform of ours.
DEFAULT = (*SEVEN, "ours-u", *(f"{name}+{AUTO}" for name in ("LR", "LRL1", "L2", "W")))


def resolve(names: str) -> list[str]:
    """Return the methods that a comma-separated list names, in the order of the table."""
    groups = {"default": DEFAULT, "seven": SEVEN, "all": tuple(METHODS)}
    return _listed(names, METHODS, groups, "unknown method {}")


def _listed(
    text: str, known: Iterable[str], groups: dict[str, tuple[str, ...]], refusal: str
) -> list[str]:
    """Return the ``known`` names and groups in a comma-separated list, in the order of known."""
    meant = {name.lower(): (name,) for name in known} | groups
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for part in asked:
        if part.lower() not in meant:
            choice = ", ".join([*known, *groups])
            raise ValueError(f"{refusal.format(repr(part))}; known: {choice}.")
    chosen = {name for part in asked for name in meant[part.lower()]}
    return [name for name in known if name in chosen]


# Splits.


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers."""

    train: Array
    unlabelled: Array
    test: Array


def seed_of(base: int, name: str, rep: int) -> int:
    """Return the seed of a replication; it depends on nothing but these three."""
    entropy = [base, zlib.crc32(name.encode()), rep]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def split(y: Array, sizes: tuple[int, int, int], seed: int) -> Split:
    """Draw the rows at random, again until every class has two training rows."""
    rng = np.random.default_rng(seed)
    train, unlabelled, test = sizes
    while True:
        rows = rng.permutation(len(y))
        if all((y[rows[:train]] == label).sum() >= 2 for label in np.unique(y)):
            start = train + unlabelled
            return Split(rows[:train], rows[train:start], rows[start : start + test])


# Results on disk: an append-only file that survives a kill, and a canonical final file.


@dataclass(frozen=True)
class Row:
    """One replication of one method on one data set.

    Losses are mean log-losses, ``radius`` is the delta (or C) chosen, ``seconds`` is processor
    time, ``note`` is empty or says what went wrong.
    """

    set: str
    rep: int
    method: str
    seed: int
    train_rows: int
    test_rows: int
    train_loss: float
    test_loss: float
    accuracy: float
    radius: float
    seconds: float
    intercept: bool
    base_seed: int
    note: str
    versions: str

    @property
    def key(self) -> tuple[str, int, str]:
        """The identity of a row within a run."""
        return (self.set, self.rep, self.method)

    @property
    def raised(self) -> bool:
        """Whether the fit raised: its note is then the error, not a count of warnings."""
        return bool(self.note) and " warnings: " not in self.note


Key = tuple[str, int, str]


def read(folder: Path) -> list[Row]:
    """Return the rows that were written whole; the torn end of a killed run is cut off."""
    path = folder / ROWS
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if len(whole) < len(raw):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    try:
        return [Row(**json.loads(line)) for line in whole.splitlines()]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is not a file of rows of this version ({error}). Use another --out."
        ) from None


def append(folder: Path, rows: Iterable[Row]) -> None:
    """Add rows in one write, on the disk when this returns."""
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    try:
        with (folder / ROWS).open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder / ROWS)) from None


def to_csv(rows: Iterable[Row]) -> str:
    """Return rows as comma-separated text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep a second run out of the folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        # no such locks on Windows
        yield
        return
    with (folder / ROWS).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is writing to {folder}. Wait for it, or use another --out."
            ) from None
        yield


@cache
def versions() -> str:
    """Return the versions that the numbers depend on."""
    from importlib.metadata import version

    names = ("otdro", "numpy", "scipy", "scikit-learn")
    return " ".join(f"{name}={version(name)}" for name in names)


def check_same(rows: list[Row], settings: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with rows of another seed or model."""
    for row in rows:
        for name, value in settings.items():
            if getattr(row, name) != value:
                raise ValueError(
                    f"{folder} holds a run with {name}={getattr(row, name)}, not {value}. "
                    "Use the same, or another --out."
                )


# The run.


@dataclass(frozen=True, eq=False)
class Plan:
    """Data sets in memory, methods by name, and the number of replications."""

    datasets: dict[str, Dataset]
    methods: list[str]
    reps: int = 200
    seed: int = 0
    intercept: bool = True
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=lambda: dict(SIZES))

    def cells(self) -> list[Key]:
        """Return every row of the plan in canonical order: set, replication, method."""
        reps = range(self.reps)
        return [(s, rep, m) for s in self.datasets for rep in reps for m in self.methods]


@dataclass(frozen=True)
class Unit:
    """One replication of one data set with the methods that are still to run."""

    set: str
    rep: int
    methods: tuple[str, ...]


def run(
    plan: Plan,
    folder: Path,
    *,
    jobs: int = 1,
    report: Callable[[int, float | None], None] | None = None,
) -> list[Row]:
    """Run what is missing in ``folder`` and return all rows of the plan in canonical order.

    Killed at any moment, the same call goes on; the final file is the same but for the seconds.
    ``report`` is called with the number of rows done and the estimated seconds left, or None.
    """
    tell = report or (lambda done, seconds: None)
    with lock(folder):
        kept = read(folder)
        check_same(kept, {"base_seed": plan.seed, "intercept": plan.intercept}, folder)
        rows = {row.key: row for row in kept if not row.raised}
        cells = plan.cells()
        # replication by replication, so that the estimates of the time left are fair
        units = [
            Unit(name, rep, methods)
            for rep in range(plan.reps)
            for name in plan.datasets
            if (methods := tuple(m for m in plan.methods if (name, rep, m) not in rows))
        ]
        clock = Clock(units)
        tell(len(cells) - clock.rows_left, None)
        # each process gets the one data set it needs
        bare = replace(plan, datasets={})
        parent = os.getpid()
        calls = (delayed(replicate)(plan.datasets[u.set], u, bare, parent) for u in units)
        for unit_rows in Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
            rows.update((row.key, row) for row in unit_rows)
            append(folder, unit_rows)
            seconds = clock.tick(unit_rows)
            tell(len(cells) - clock.rows_left, seconds)
        final = [rows[cell] for cell in cells]
        write_atomic(folder / FINAL, to_csv(final))
    return final


class Clock:
    """Estimate the time left from what units of each data set have cost so far."""

    def __init__(self, units: list[Unit]) -> None:
        self.start = time.perf_counter()
        self.left = Counter(unit.set for unit in units)
        self.rows_left = sum(len(unit.methods) for unit in units)
        self.spent: dict[str, list[float]] = {}

    def tick(self, rows: list[Row]) -> float | None:
        """Count a unit as done; return the seconds left, None before every set has been seen."""
        name = rows[0].set
        self.left[name] -= 1
        self.rows_left -= len(rows)
        self.spent.setdefault(name, []).append(sum(row.seconds for row in rows))
        waiting = {name: count for name, count in self.left.items() if count}
        if not set(waiting) <= set(self.spent):
            return None
        done = sum(map(sum, self.spent.values()))
        ahead = sum(n * float(np.mean(self.spent[name])) for name, n in waiting.items())
        # the wall clock a second of work has taken so far covers jobs, overhead and a busy machine
        return ahead * (time.perf_counter() - self.start) / done if done else None


@cache
def end_with(parent: int) -> None:
    """In a worker process, end when the run that started it is gone, killed for instance."""
    if os.getppid() != parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def replicate(data: Dataset, unit: Unit, plan: Plan, parent: int) -> list[Row]:
    """Split once, then fit and score every method of the unit."""
    end_with(parent)
    seed = seed_of(plan.seed, unit.set, unit.rep)
    parts = split(data.y, plan.sizes[unit.set], seed)
    # the split has used the seed itself; folds and models take the one after it
    after = (seed + 1) % 2**32
    setting = Setting(folds(data.y[parts.train], after), plan.intercept, after)
    shared = {
        "set": unit.set,
        "rep": unit.rep,
        "seed": seed,
        "train_rows": len(parts.train),
        "test_rows": len(parts.test),
        "intercept": plan.intercept,
        "base_seed": plan.seed,
        "versions": versions(),
    }
    with threadpool_limits(1):
        return [
            Row(method=name, **shared, **_score(METHODS[name], setting, data, parts))
            for name in unit.methods
        ]


def _score(method: Method, setting: Setting, data: Dataset, parts: Split) -> dict[str, Any]:
    """Fit on the training rows and return the columns that depend on the method."""
    model = make_pipeline(scaler(method.scale), method.build(setting))
    train, test = (
        Labelled(data.X[rows], data.y[rows], data.task) for rows in (parts.train, parts.test)
    )
    if method.unlabelled:
        train = replace(train, unlabelled=data.X[parts.unlabelled])
    start = time.thread_time()
    try:
        with warnings.catch_warnings(record=True, action="always") as caught:
            fit_model(model[-1], prepare(model[:-1], train))
        seconds = time.thread_time() - start
        on_test = measures(model, test)
        chosen = getattr(model[-1], "delta_", getattr(model[-1], "C_", np.nan))
        return {
            "train_loss": measures(model, train)["log-loss"],
            "test_loss": on_test["log-loss"],
            "accuracy": on_test["accuracy"],
            "radius": float(np.ravel(chosen)[0]),
            "seconds": round(seconds, 4),
            "note": f"{len(caught)} warnings: {caught[0].category.__name__}" if caught else "",
        }
    except Exception as error:  # one failed fit must not end a run of thousands
        nothing = dict.fromkeys(("train_loss", "test_loss", "accuracy", "radius"), float("nan"))
        note = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        return {**nothing, "seconds": round(time.thread_time() - start, 4), "note": note}


# Tables.


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of short texts; the first column names the row."""

    title: str
    head: list[str]
    body: list[list[str]]

    def text(self) -> str:
        """Return the table in fixed columns."""
        grid = Grid(self.head, self.body)
        lines = grid.lines()
        lines = lines if max(map(len, lines)) <= WIDTH else grid.lines(" ")
        rule = "-" * max(map(len, lines))
        return "\n".join([self.title, rule, lines[0], rule, *lines[1:], rule])

    def markdown(self) -> str:
        """Return the table in Markdown."""
        marks = ["---", *["---:"] * (len(self.head) - 1)]
        lines = [self.head, marks, *self.body]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(x)} |" for x in lines)])

    def latex(self) -> str:
        """Return the table as a LaTeX table."""
        lines = [" & ".join(_tex(cell) for cell in line) + r" \\" for line in self.body]
        return "\n".join(
            [
                r"\begin{table}[ht]",
                r"\centering",
                rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
                " & ".join(_tex(cell) for cell in self.head) + r" \\ \hline",
                *lines,
                r"\end{tabular}",
                rf"\caption{{{_tex(self.title)}}}",
                r"\end{table}",
            ]
        )


def _tex(text: str) -> str:
    text = text.replace("%", r"\%").replace("_", r"\_").replace("±", r"$\pm$")
    return f"${text[0]}${text[1:]}" if text[:1] in ("-", "+") and len(text) > 1 else text


def paper_numbers() -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return the paper's mean and standard deviation by (set, method) and measure."""
    text = Path(__file__).with_name("paper_table1.csv").read_text()
    return {
        (line["set"], line["method"]): {
            name: (float(line[f"{name}_mean"]), float(line[f"{name}_sd"]))
            for name in ("train", "test", "accuracy")
        }
        for line in csv.DictReader(text.splitlines())
    }


def tables(rows: list[Row], sets: list[str] | None = None) -> list[Table]:
    """Return every table of the experiment; a set without rows is shown as not run."""
    results = Results(rows, sets or list(SIZES))
    shown = [
        results.beside_paper("test", "Test log-loss, mean ± standard deviation", "test_loss"),
        results.beside_paper("accuracy", "Test accuracy, mean ± standard deviation", "accuracy"),
        results.medians(),
        results.beside_paper("train", "Train log-loss, mean ± standard deviation", "train_loss"),
    ]
    if "ours" in results.methods and len(results.methods) > 1:
        shown += [
            results.paired("test log-loss, mean ± standard error", "test_loss", _mean_se),
            results.paired("accuracy, mean ± standard error", "accuracy", _mean_se),
            results.paired("test log-loss, median", "test_loss", _signed_median),
        ]
    return [*shown, results.seconds()]


class Results:
    """Rows by set and method, each an array over the replications in order."""

    def __init__(self, rows: list[Row], sets: list[str]) -> None:
        self.sets = sets
        self.methods = list(dict.fromkeys(row.method for row in rows))
        self.cells: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.rep):
            self.cells.setdefault((row.set, row.method), []).append(row)

    def values(self, name: str, method: str, measure: str) -> Array:
        """Return the measure over the replications."""
        return np.array([getattr(row, measure) for row in self.cells.get((name, method), [])])

    def beside_paper(self, key: str, title: str, measure: str) -> Table:
        """Return means and standard deviations, the paper's under ours."""
        paper = paper_numbers()
        body = []
        for method in self.methods:
            body.append([method, *self._cells(method, measure, _mean_sd)])
            if any((name, method) in paper for name in self.sets):
                theirs = [paper.get((name, method)) for name in self.sets]
                shown = [_pair(*numbers[key]) if numbers else NOT_RUN for numbers in theirs]
                body.append(["  in the paper", *shown])
        return Table(title, ["", *self.sets], body)

    def medians(self) -> Table:
        """Return the median test log-loss: a mean may hang on a few splits."""
        body = [
            [m, *self._cells(m, "test_loss", lambda v: number(np.median(v)))] for m in self.methods
        ]
        return Table("Test log-loss, median", ["", *self.sets], body)

    def seconds(self) -> Table:
        """Return the processor seconds of a fit, and those of all fits of a method."""
        body = []
        for m in self.methods:
            cells = self._cells(m, "seconds", lambda v: f"{np.mean(v):.3f}")
            total = sum(self.values(name, m, "seconds").sum() for name in self.sets)
            body.append([m, *cells, f"{total:.0f}"])
        return Table("Processor seconds a fit, and of all fits", ["", *self.sets, "all"], body)

    def paired(self, of: str, measure: str, show: Callable[[Array], str]) -> Table:
        """Return differences, ours minus the method, on the same splits."""
        body = []
        for method in self.methods:
            if method == "ours":
                continue
            pairs = [
                (self.values(name, "ours", measure), self.values(name, method, measure))
                for name in self.sets
            ]
            shown = [_shown(a - b, show) if len(a) == len(b) else NOT_RUN for a, b in pairs]
            body.append([method, *shown])
        return Table(f"Ours minus the method, {of}", ["", *self.sets], body)

    def _cells(self, method: str, measure: str, show: Callable[[Array], str]) -> list[str]:
        return [_shown(self.values(name, method, measure), show) for name in self.sets]


def _shown(values: Array, show: Callable[[Array], str]) -> str:
    values = values[~np.isnan(values)]
    return show(values) if len(values) else NOT_RUN


def _mean_sd(values: Array) -> str:
    return _pair(float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1))))


def _mean_se(values: Array) -> str:
    se = standard_error(values) if len(values) > 1 else 0.0
    return f"{number(float(np.mean(values)), signed=True)}±{number(se)}"


def _signed_median(values: Array) -> str:
    return number(float(np.median(values)), signed=True)


def _pair(mean: float, sd: float) -> str:
    return f"{number(mean)}±{number(sd)}"


def number(value: float, *, signed: bool = False) -> str:
    """Return three significant figures as the paper writes them: .119, 8.75, 35.5."""
    size = abs(value)
    digits = 3 if size < 0.9995 else 2 if size < 9.995 else 1 if size < 99.95 else 0
    text = f"{size:.{digits}f}" if size < 99_999.5 else f"{size:.0e}".replace("e+0", "e")
    text = text.removeprefix("0") if text.startswith("0.") else text
    sign = "-" if value < 0 and text.strip(".0") else "+" if signed else ""
    return sign + text


def notes(rows: list[Row]) -> list[str]:
    """Return in words how many fits raised or warned, by method."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.note:
            counts[row.method, row.note if row.raised else row.note.split(":")[-1].strip()] += 1
    return [f"{m}: {n} of the fits: {kind}" for (m, kind), n in sorted(counts.items())]


# The command.


def arguments(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Return the parser and what was asked; the defaults are those of the paper's table."""
    parser = argparse.ArgumentParser(description="Redo the paper's Table 1; resumable.")
    results = Path(__file__).with_name("results")
    parser.add_argument("--sets", default="all", help="e.g. BC,BN; all is all six")
    parser.add_argument("--methods", default="default", help="e.g. L2,ours; seven, default or all")
    parser.add_argument("--reps", type=int, default=200, help="replications (200)")
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 is all cores")
    parser.add_argument("--seed", type=int, default=0, help="base seed (0)")
    parser.add_argument("--out", type=Path, default=results, help="folder of the results")
    parser.add_argument("--data", help=f"folder of data files; {FOLDER} names it too")
    parser.add_argument("--intercept", action=argparse.BooleanOptionalAction, default=True)
    return parser, parser.parse_args(argv)


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan; a data set whose file is missing is left out with a note."""
    if options.reps < 1:
        raise ValueError(f"--reps must be at least 1, got {options.reps}.")
    if options.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {options.seed}.")
    if options.jobs == 0:
        raise ValueError("--jobs must be a number of processes, or -1 for all cores; got 0.")
    methods = resolve(options.methods)
    names = _listed(options.sets, SIZES, {"all": tuple(SIZES)}, "{} is not in the paper's table")
    datasets = {}
    for name in names:
        try:
            datasets[name] = load(name, folder=options.data, download=False)
        except DatasetUnavailableError as error:
            sys.stderr.write(f"note: {error} The others run.\n")
    if not datasets or not methods:
        raise ValueError(
            "none of the data sets or methods asked for is here; see python experiments/datasets.py"
        )
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"{options.out} is a file; --out names a folder.")
    return Plan(datasets, methods, options.reps, options.seed, options.intercept)


def tenths(total: int) -> Callable[[int, float | None], None]:
    """Return a function that writes a line to standard error at every tenth of the rows."""
    seen = [0]

    def tell(done: int, seconds: float | None) -> None:
        tenth = 10 * done // total
        if tenth > seen[0]:
            seen[0] = tenth
            left = "?" if seconds is None else f"{seconds / 60:.1f}"
            sys.stderr.write(f"{done}/{total}, {left} minutes left\n")

    return tell


def write(rows: list[Row], folder: Path, plan: Plan) -> str:
    """Write the tables in text, Markdown and LaTeX; return the text."""
    shown = tables(rows, list(SIZES))
    about = f"{plan.reps} replications, seed {plan.seed}, {rows[0].versions}"
    about += "" if plan.intercept else ", no intercept"
    remarks = [f"note: {line}" for line in notes(rows)]
    write_atomic(folder / "table1.tex", "\n\n".join(t.latex() for t in shown) + f"\n% {about}\n")
    parts = [about, *(t.markdown() for t in shown), *remarks]
    write_atomic(folder / "table1.md", "\n\n".join(parts) + "\n")
    text = "\n\n".join([about, *(t.text() for t in shown), *remarks]) + "\n"
    write_atomic(folder / "table1.txt", text)
    return text


def main(argv: list[str] | None = None) -> int:
    """Run what is missing, write and print the tables; return 1 if a fit raised."""
    parser, options = arguments(argv)
    try:
        plan = plan_of(options)
        rows = run(plan, options.out, jobs=options.jobs, report=tenths(len(plan.cells())))
        print(write(rows, options.out, plan))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    raised = [row for row in rows if row.raised]
    if raised:
        methods = ", ".join(dict.fromkeys(row.method for row in raised))
        sys.stderr.write(f"{len(raised)} of {len(rows)} fits raised an error: {methods}.\n")
    return 1 if raised else 0


if __name__ == "__main__":
    # worker processes find functions by the name of their module, not in __main__
    import table1

    sys.exit(table1.main())
