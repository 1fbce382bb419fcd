"""Fits side by side: the small problems that they ask for together are one batch on a device.

A fit runs in a thread of its own until it asks for the solutions of small problems (folds, deltas).
Then the next one runs. When all have asked, or are done, what they asked for is solved as one
batch, on the device, and each goes on with its part. One thread runs at a time.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Semaphore, Thread
from typing import Any, Generic, TextIO, TypeVar

from threadpoolctl import threadpool_limits

from ..arrays import namespace, out_of_memory
from ..solvers.euclidean.batch import Batch, Minimum
from ..solvers.euclidean.gathered import ENTRIES, MINIMISE, Asked, minimise_together
from ..solvers.euclidean.order_one import minimise

Result = TypeVar("Result")
Task = Callable[[], Result]

#: Fits that are in memory at a time.
SIDE_BY_SIDE = 100
#: Arrays of the size of a batch's rows that the device holds at the peak.
COPIES = 4

#: The warnings of the fit that runs in this thread.
_HEARD: ContextVar[list[warnings.WarningMessage]] = ContextVar("_HEARD")


class Stopped(BaseException):
    """Ends a fit that waits for an answer which will not come."""


class Device:
    """Where torch solves the small problems of fits side by side: "cpu", "cuda" or "cuda:1".

    ``problems`` counts those of each kind of fit: none where a fit has no such problems and runs
    on the CPU as ever.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: Counter[str] = Counter()
        self._like = _empty_on(name)

    def side_by_side(self, tasks: Sequence[Task[Result]], kinds: Sequence[str]) -> Iterator[Result]:
        """Yield what each task returns, in their order; they run ``SIDE_BY_SIDE`` at a time."""
        for first in range(0, len(tasks), SIDE_BY_SIDE):
            part = slice(first, first + SIDE_BY_SIDE)
            yield from self._together(tasks[part], kinds[part])

    def done(self) -> str:
        """Return in words what was solved on the device, and which fits have nothing there."""
        there = {kind: count for kind, count in self.problems.items() if count}
        here = [kind for kind in self.problems if kind not in there]
        words = f"{sum(there.values()):,} problems of {', '.join(there)} were solved on {self.name}"
        if not there:
            words = f"nothing was solved on {self.name}"
        return words + (f"; {', '.join(here)} ran on the CPU." if here else ".")

    def _together(self, tasks: Sequence[Task[Result]], kinds: Sequence[str]) -> list[Result]:
        """Return what each task returns; answer what all have asked for at once."""
        turns = [_Turn(task) for task in tasks]
        # settings of the whole process are made once: threads in turns would mix theirs
        with threadpool_limits(1), _heard_by_thread():
            try:
                self._answer(turns)
            finally:
                for turn in turns:
                    turn.stop()
        for turn, kind in zip(turns, kinds, strict=True):
            self.problems[kind] += turn.problems
        return [turn.result for turn in turns]

    def _answer(self, turns: list[_Turn[Result]]) -> None:
        """Let all tasks run to their ends."""
        live = turns
        while live:
            for turn in live:
                turn.advance()
            live = [turn for turn in live if not turn.done]
            answers = self._minimised([turn.asked for turn in live])
            for turn, answer in zip(live, answers, strict=True):
                turn.answer = answer

    def _minimised(self, asked: list[Asked]) -> list[Minimum]:
        try:
            return minimise_together(asked, self._like)
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise ValueError(
                f"{self.name} ran out of memory: a batch needs about "
                f"{COPIES * 8 * ENTRIES / 2**30:.1f} GiB. Leave --device out, or free the device."
            ) from error


def _empty_on(device: str) -> Any:
    """Return an empty array on a device, or say what is missing."""
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda, got {device!r}.")
    try:
        import torch
    except ImportError:
        raise ValueError(
            "--device needs torch: pip install 'otdro[torch]', or leave --device out."
        ) from None
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(
            f"there is no CUDA device for --device {device}: use --device cpu, or leave it out."
        )
    try:
        like = torch.empty(0, dtype=torch.float64, device=device)
    except RuntimeError as error:
        raise ValueError(f"--device {device} cannot be used: {error}.") from None
    namespace(like)
    return like


class _Turn(Generic[Result]):
    """A task in a thread that runs only within ``advance``, up to its next question or its end."""

    asked: Asked
    answer: Minimum
    result: Result

    def __init__(self, task: Task[Result]) -> None:
        self._task = task
        self._error: BaseException | None = None
        self._stopped = False
        self.done = False
        self.problems = 0
        self._go, self._paused = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Let the task run; raise what it raises."""
        self._go.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the task where it waits."""
        self._stopped = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        MINIMISE.set(self._ask)
        _HEARD.set([])
        try:
            self._wait()
            self.result = self._task()
        except Stopped:
            pass
        except BaseException as error:
            self._error = error
        self.done = True
        self._paused.release()

    def _ask(
        self, batch: Batch, target: Any, max_iter: int, start: Any = None, zero: Any = None
    ) -> Minimum:
        """Return the minima of a batch, waiting for those that others ask for meanwhile."""
        asked = Asked(batch, target, max_iter, start)
        if not asked.stackable:
            return minimise(batch, target, max_iter, start, zero)
        self.asked = asked
        self.problems += len(target)
        self._paused.release()
        self._wait()
        return self.answer

    def _wait(self) -> None:
        self._go.acquire()
        if self._stopped:
            raise Stopped


@contextmanager
def recorded() -> Iterator[list[warnings.WarningMessage]]:
    """Collect all warnings of what runs inside; of fits side by side, those of this one."""
    if _HEARD.get(None) is None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
        return
    token = _HEARD.set([])
    try:
        yield _HEARD.get()
    finally:
        _HEARD.reset(token)


@contextmanager
def _heard_by_thread() -> Iterator[None]:
    """Send every warning to the list of the thread that it comes from."""

    def hear(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _HEARD.get([]).append(warnings.WarningMessage(message, category, filename, lineno))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear
        yield
