"""(data sets x replications x methods) -> rows, resumable and in any order."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..datasets import Dataset
from .comparison import Labelled, measures
from .device import Device, recorded
from .environments import fit_with_unlabelled
from .methods import METHODS, Method
from .models import Setting
from .rows import (
    FINAL,
    Key,
    Row,
    append,
    check_same,
    key,
    lock,
    read,
    to_csv,
    versions,
    write_atomic,
)
from .splits import SIZES, Split, folds, seed_of, split

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run: data sets in memory, methods by name, replications."""

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
    backend: str | None = None,
    device: Device | None = None,
    report: Callable[[int, float | None], None] | None = None,
) -> list[Row]:
    """Run what is missing in ``folder`` and return all rows of the plan in canonical order.

    Killed at any moment, the same call goes on; the final file is the same but for the seconds.
    With a ``device`` the replications of a method run side by side in this process, their small
    problems as one batch there; else ``jobs`` processes run. ``report`` is called with the rows
    done and the seconds that the rest will take, None while nobody knows.
    """
    with lock(folder):
        kept = read(folder)
        check_same(kept, {"base_seed": plan.seed, "intercept": plan.intercept}, folder)
        rows = {key(row): row for row in kept}
        units = _missing(plan, rows)
        if device is not None:
            units = _by_method(units)
        arriving = _arriving(plan, units, jobs, backend, device)
        for found in _counted(plan, units, arriving, report):
            rows.update((key(row), row) for row in found)
            append(folder, found)
        final = [rows[k] for k in plan.cells()]
        write_atomic(folder / FINAL, to_csv(final))
    return final


def _missing(plan: Plan, rows: dict[Key, Row]) -> list[Unit]:
    """Return the units to run, replication by replication so that estimates are fair."""
    units = []
    for rep in range(plan.reps):
        for name in plan.datasets:
            methods = tuple(m for m in plan.methods if (name, rep, m) not in rows)
            if methods:
                units.append(Unit(name, rep, methods))
    return units


def _by_method(units: list[Unit]) -> list[Unit]:
    """Return units of one method each, the replications of one on a data set after another."""
    single = [Unit(u.set, u.rep, (m,)) for u in units for m in u.methods]
    kinds = list(dict.fromkeys((u.set, u.methods) for u in single))
    return sorted(single, key=lambda u: kinds.index((u.set, u.methods)))


def _arriving(
    plan: Plan, units: list[Unit], jobs: int, backend: str | None, device: Device | None
) -> Iterator[list[Row]]:
    """Return the rows of each unit as it ends."""
    tasks = [partial(replicate, plan.datasets[u.set], u, _common(plan, u)) for u in units]
    if device is not None:
        return device.side_by_side(tasks, [u.methods[0] for u in units])
    calls = (delayed(task)() for task in tasks)
    return Parallel(n_jobs=jobs, backend=backend, return_as="generator_unordered")(calls)


def _counted(
    plan: Plan,
    units: list[Unit],
    arriving: Iterator[list[Row]],
    report: Callable[[int, float | None], None] | None,
) -> Iterator[list[Row]]:
    """Yield the rows of each unit, telling how far the run is."""
    total = len(plan.cells())
    clock = Clock(units)
    tell = report or (lambda done, remaining: None)
    tell(total - clock.rows_left, None)
    for found in arriving:
        yield found
        remaining = clock.tick(found)
        tell(total - clock.rows_left, remaining)


class Clock:
    """Estimate the time left from what units of each data set have cost so far."""

    def __init__(self, units: list[Unit]) -> None:
        self.start = time.perf_counter()
        self.left = Counter(unit.set for unit in units)
        self.rows_left = sum(len(unit.methods) for unit in units)
        self.spent: dict[str, list[float]] = {}

    def tick(self, found: list[Row]) -> float | None:
        """Count a unit as done; return the seconds left, None before every set has been seen."""
        name = found[0].set
        self.left[name] -= 1
        self.rows_left -= len(found)
        self.spent.setdefault(name, []).append(sum(row.seconds for row in found))
        waiting = {name: count for name, count in self.left.items() if count}
        if not set(waiting) <= set(self.spent):
            return None
        done = sum(map(sum, self.spent.values()))
        ahead = sum(n * float(np.mean(self.spent[name])) for name, n in waiting.items())
        # the wall clock a second of work has taken so far covers jobs, overhead and a busy machine
        return ahead * (time.perf_counter() - self.start) / done if done else None


def _common(plan: Plan, unit: Unit) -> dict[str, Any]:
    return {
        "sizes": plan.sizes[unit.set],
        "base_seed": plan.seed,
        "intercept": plan.intercept,
        "parent": os.getpid(),
    }


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


def replicate(data: Dataset, unit: Unit, common: dict[str, Any]) -> list[Row]:
    """Split once, then fit and score every method of the unit."""
    end_with(common["parent"])
    seed = seed_of(common["base_seed"], unit.set, unit.rep)
    parts = split(data.y, common["sizes"], seed)
    y = data.y[parts.train]
    # the split has used the seed itself; folds and models take the one after it
    setting = Setting(folds(y, (seed + 1) % 2**32), common["intercept"], (seed + 1) % 2**32)
    with threadpool_limits(1):
        scores = [_score(METHODS[name], setting, data, parts) for name in unit.methods]
    shared = {
        "set": unit.set,
        "rep": unit.rep,
        "seed": seed,
        "train_rows": len(parts.train),
        "test_rows": len(parts.test),
        "intercept": common["intercept"],
        "base_seed": common["base_seed"],
        "versions": versions(),
    }
    return [Row(method=m, **shared, **s) for m, s in zip(unit.methods, scores, strict=True)]


def _score(method: Method, setting: Setting, data: Dataset, parts: Split) -> dict[str, Any]:
    """Fit on the training rows and return the columns that depend on the method."""
    model = method.pipeline(setting)
    start = time.thread_time()
    try:
        with recorded() as caught:
            labelled = data.X[parts.train], data.y[parts.train]
            if method.unlabelled:
                fit_with_unlabelled(model, *labelled, data.X[parts.unlabelled])
            else:
                model.fit(*labelled)
        note = f"{len(caught)} warnings: {caught[0].category.__name__}" if caught else ""
        seconds = time.thread_time() - start
        return {**_measures(model, data, parts), "seconds": round(seconds, 4), "note": note}
    except Exception as error:  # one failed fit must not end a run of thousands
        nothing = dict.fromkeys(("train_loss", "test_loss", "accuracy", "radius"), float("nan"))
        note = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        return {**nothing, "seconds": round(time.thread_time() - start, 4), "note": note}


def _measures(model: Any, data: Dataset, parts: Split) -> dict[str, float]:
    train, test = (
        measures(model, Labelled(data.X[rows], data.y[rows], data.task))
        for rows in (parts.train, parts.test)
    )
    chosen = getattr(model[-1], "delta_", getattr(model[-1], "C_", np.nan))
    return {
        "train_loss": train["log-loss"],
        "test_loss": test["log-loss"],
        "accuracy": test["accuracy"],
        "radius": float(np.ravel(chosen)[0]),
    }
