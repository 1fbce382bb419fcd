"""Rows larger than memory, and on many workers: passes, memory, time, and equality with memory.

    python benchmarks/streams.py memmap --rows 20000000 --folder FOLDER
    python benchmarks/streams.py dask --rows 400000

The first writes a float32 file of ROWS x 50 into FOLDER, fits order-1 logistic loss to it in a
process of its own with a given delta (and with --default also with all defaults), reports the peak
of anonymous memory above that of the process before the fit, and removes the file. The second fits
to Dask arrays on local workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

COLUMNS = 50
BATCH = 500_000


def coefficients():
    return np.random.default_rng(1).normal(size=COLUMNS) / 5


def write(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write rows and labels batch by batch."""
    files = folder / "rows.f32", folder / "labels.i8"
    beta = coefficients()
    with files[0].open("wb") as X_file, files[1].open("wb") as y_file:
        for start in range(0, rows, BATCH):
            rng = np.random.default_rng([2, start])
            X = rng.standard_normal((min(BATCH, rows - start), COLUMNS), dtype=np.float32) + 1
            p = 1 / (1 + np.exp(-((X - 1) @ beta - 0.5)))
            X.tofile(X_file)
            (rng.random(len(X)) < p).astype(np.int8).tofile(y_file)
    return files


def anonymous() -> int:
    """Return the anonymous memory of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Peak:
    """The largest anonymous memory, looked at a hundred times a second."""

    def __enter__(self):
        self.before = self.largest = anonymous()
        self.on = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self):
        while self.on:
            self.largest = max(self.largest, anonymous())
            time.sleep(0.01)

    def __exit__(self, *error):
        self.on = False
        self.thread.join()

    @property
    def above(self) -> float:
        return (self.largest - self.before) / 2**30


def fit_memmap(folder: Path, rows: int, default: bool) -> None:
    """Fit in this process and print what it took."""
    from otdro import DROClassifier

    X = np.memmap(folder / "rows.f32", np.float32, "r", shape=(rows, COLUMNS))
    y = np.memmap(folder / "labels.i8", np.int8, "r", shape=(rows,))
    settings = {} if default else {"cost": "euclidean", "delta": 0.01}
    model = DROClassifier(**settings)
    cpu, wall = time.process_time(), time.perf_counter()
    with Peak() as peak:
        model.fit(X, y)
    print(
        json.dumps(
            {
                "rows": rows,
                "fit": "all defaults" if default else "cost='euclidean', delta=0.01",
                "message": model.message_,
                "anonymous_GiB": round(peak.above, 3),
                "process_s": round(time.process_time() - cpu, 1),
                "wall_s": round(time.perf_counter() - wall, 1),
                "gap": model.gap_,
                "robust_risk": model.robust_risk_,
                "delta": model.delta_,
            }
        )
    )


def memmap(folder: Path, rows: int, default: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = write(folder, rows)
    try:
        for flag in ([], ["--default"]) if default else ([],):
            command = [sys.executable, __file__, "child", "--rows", str(rows)]
            subprocess.run([*command, "--folder", str(folder), *flag], check=True)
    finally:
        for file in files:
            file.unlink()


#: What is fitted to Dask arrays: one delta to a fine gap, and folds, which are more work per row.
DASK_FITS = {
    "delta=0.01, tol=1e-11": {"cost": "euclidean", "delta": 0.01, "tol": 1e-11},
    "five folds, 20 deltas": {"cost": "euclidean", "tol": 1e-11},
}


def dask_table(rows: int, repeats: int, numbers: list[int]) -> None:
    """Fit on some numbers of local workers of one thread: the numbers of memory, and the times.

    Fits on different numbers of workers take turns, so that what else the machine does meets all of
    them; wall time is the median of the repeats. The processor time of the busiest worker is what
    the work takes where each has a core.
    """
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    from otdro import DROClassifier

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS))
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-(X @ coefficients() - 0.5))), 1, -1)
    size = rows // 8
    with ExitStack() as stack:
        clusters = []
        for workers in numbers:
            form = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            cluster = stack.enter_context(LocalCluster(**form))
            client = stack.enter_context(Client(cluster))
            with client.as_current():
                D = client.persist(da.from_array(X, chunks=(size, COLUMNS)))
                Y = client.persist(da.from_array(y, chunks=size))
                wait([D, Y])
                DROClassifier(cost="euclidean", delta=0.01).fit(D, Y)
            clusters.append((client, D, Y))
        for name, settings in DASK_FITS.items():
            timed = [
                [_timed(client, DROClassifier(**settings), D, Y) for client, D, Y in clusters]
                for _ in range(repeats)
            ]
            delta = timed[0][0][0].delta_
            memory = DROClassifier(**settings | {"delta": delta}).fit(X, y)
            for of_workers in zip(*timed, strict=True):
                _print_times(name, of_workers, memory)


def _print_times(name, timed, memory):
    found = timed[0][0]
    line = {
        "fit": name,
        "workers": len(timed[0][2]),
        "wall_s": round(float(np.median([wall for _, wall, _ in timed])), 2),
        "walls_s": [round(wall, 1) for _, wall, _ in timed],
        "busiest_worker_s": round(float(np.median([max(busy) for *_, busy in timed])), 2),
        "all_workers_s": round(float(np.median([sum(busy) for *_, busy in timed])), 2),
        "delta": found.delta_,
        "objective": abs(found.robust_risk_ - memory.robust_risk_),
        "coefficients": float(np.abs(found.coef_ - memory.coef_).max()),
        "message": found.message_,
    }
    print(json.dumps(line), flush=True)


def _timed(client, model, D, Y):
    """Return the fitted model, the wall time and the processor time of every worker."""
    before, start = client.run(time.process_time), time.perf_counter()
    with client.as_current():
        found = model.fit(D, Y)
    wall, after = time.perf_counter() - start, client.run(time.process_time)
    return found, wall, [after[worker] - before[worker] for worker in after]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("memmap", "dask", "child"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("streams_tmp"))
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    warnings.simplefilter("default")
    if options.what == "memmap":
        memmap(options.folder, options.rows, options.default)
    elif options.what == "child":
        fit_memmap(options.folder, options.rows, options.default)
    else:
        dask_table(options.rows, options.repeats, options.workers)


if __name__ == "__main__":
    main()
