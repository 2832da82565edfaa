"""Prints the progress of a long example: a progress bar for each step, and the step's duration."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

T = TypeVar("T")

Done = tuple[int, int, str]
"""Progress of a step: done, total (0 if unknown), and the unit."""

_POLL_SECONDS = 0.2


class Steps:
    """Runs a known number of steps in order; `seconds` maps each step's label to its duration.

    On a terminal the running step shows a progress bar; elsewhere each step prints one line.
    """

    def __init__(self, count: int) -> None:
        self.console = Console(highlight=False)
        self.seconds: dict[str, float] = {}
        self._count = count

    def run(self, label: str, work: Callable[[], T], done: Callable[[], Done] | None = None) -> T:
        """Call `work` and return its result; show its progress while it runs."""
        started = time.monotonic()
        number = f"{len(self.seconds) + 1}/{self._count}"
        with self._bar() as bar:
            task = bar.add_task(f"{number} {label}", total=None, amount="")
            with _repeating(lambda: _show(bar, task, done()) if done else None):
                result = work()
        self.seconds[label] = taken = time.monotonic() - started
        count, total, unit = done() if done else (0, 0, "")
        amount = f"  {count:,} {unit}" if total else ""
        self.say(f"{number} {label:<26}{taken:6.1f} s{amount}")
        return result

    def say(self, line: str) -> None:
        """Print one line."""
        self.console.print(line, soft_wrap=True)

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<30}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]:<24}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )


@contextmanager
def _repeating(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` repeatedly in a thread, so that Ctrl-C interrupts the work at once."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_POLL_SECONDS):
            look()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show(bar: Progress, task: TaskID, done: Done) -> None:
    count, total, unit = done
    amount = f"{count:,} of {total:,} {unit}" if total else ""
    bar.update(task, completed=count, total=total or None, amount=amount)


def with_bar_of_tasks(spark: SparkSession, label: str, work: Callable[[], T]) -> T:
    """Call `work` and return its result; on a terminal, show the completed Spark tasks."""
    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
    with Progress(*parts, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None, amount="")
        with _repeating(lambda: _show(bar, task, tasks_done(spark))):
            return work()


def tasks_done(spark: SparkSession) -> Done:
    """Return the numbers of completed tasks and of all tasks in the running stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    counts = [(stage.numCompletedTasks, stage.numTasks) for stage in known]
    return sum(done for done, _ in counts), sum(count for _, count in counts), "tasks"
