"""What a long example shows: a bar for each step, and how long each took."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

T = TypeVar("T")

_POLL_SECONDS = 0.2


class Steps:
    """Runs one step after the other; `seconds` holds what each took."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.seconds: dict[str, float] = {}

    def run(
        self,
        label: str,
        work: Callable[[], T],
        total: int | None = None,
        rows: Callable[[], int] | None = None,
    ) -> T:
        """Return what `work` returns, showing meanwhile how many of the rows are done."""
        started = time.monotonic()
        with self._bar() as bar:
            task = bar.add_task(label, total=total, rows="")
            with _repeating(lambda: _show(bar, task, rows()) if rows else None):
                result = work()
            _show(bar, task, total or 0, total or 1)
        self.seconds[label] = time.monotonic() - started
        return result

    def say(self, line: str) -> None:
        """Print one line."""
        self.console.print(line, soft_wrap=True)

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rows]:>12}"),
            TimeElapsedColumn(),
            console=self.console,
        )


@contextmanager
def _repeating(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` from a thread of its own, so that Ctrl-C reaches the work at once."""
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


def _show(bar: Progress, task: TaskID, rows: int, total: int | None = None) -> None:
    text = f"{rows:,} rows" if rows else ""
    bar.update(task, completed=rows or total, rows=text, total=total)


def with_bar_of_tasks(spark: SparkSession, label: str, work: Callable[[], T]) -> T:
    """Return what `work` returns; a terminal sees meanwhile how many of Spark's tasks are done."""
    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*parts, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        with _repeating(lambda: _show_tasks(bar, task, spark)):
            return work()


def _show_tasks(bar: Progress, task: TaskID, spark: SparkSession) -> None:
    """Show how many tasks of the stages that run now are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    counts = [(stage.numCompletedTasks, stage.numTasks) for stage in known]
    bar.update(
        task, completed=sum(done for done, _ in counts), total=sum(count for _, count in counts)
    )
