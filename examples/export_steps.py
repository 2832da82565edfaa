"""The steps of an exactly-once export: stage the rows, record the plan, move the files, and commit
the group's offsets.

    FOLDER/_export/lock             locked by the running export
    FOLDER/_export/rows-<id>/       the files that Spark writes
    FOLDER/_export/complete.json    written when those rows are durable: topic, group and offsets
    FOLDER/date=…/*.parquet         the export; readers skip names that begin with an underscore

A complete plan is always carried out: its files are moved, then its end offsets are committed
durably for the group, and then the plan is deleted. A run that finds a plan of an earlier run
finishes it. This exports nothing twice: a file that was moved is not moved again, and the group's
offsets never decrease. Rows without a plan are deleted, because no reader has seen them. If the
driver of a run was killed, its executors may still write, but only to the folder of that run.

If the topic loses a queue before the offsets are committed, the group keeps its old offset of that
queue. If the queue is added again later, its messages in the plan are exported again.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyrocket import Store


class UnfitOutputError(Exception):
    """The output folder belongs to another export."""


@dataclass(frozen=True)
class Plan:
    """The messages of one run: offsets [start, end) of each queue; `rows` is their folder."""

    rows: str
    store: str
    topic: str
    group: str
    ranges: dict[int, tuple[int, int]]

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def starts(self) -> str:
        """The first offsets, as the option `startingOffsets`."""
        return json.dumps({self.topic: {queue: start for queue, (start, _) in self.ranges.items()}})

    @property
    def ends(self) -> str:
        """The offsets after the last, as the option `endingOffsets`."""
        return json.dumps({self.topic: {queue: end for queue, (_, end) in self.ranges.items()}})

    @classmethod
    def load(cls, text: str) -> "Plan":
        """Parse a plan from JSON."""
        known = json.loads(text)
        ranges = {int(queue): (start, end) for queue, (start, end) in known.pop("ranges").items()}
        return cls(**known, ranges=ranges)


@contextmanager
def try_lock(output: str) -> Iterator[bool]:
    """Lock the folder; yield False if another run has locked it."""
    folder = Path(output, "_export")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            # The lock is released when the process ends, even if the process is killed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Export:
    """The export of a topic to a folder; a consumer group records its progress."""

    def __init__(self, store: Store, topic: str, group: str, output: str) -> None:
        self._store, self._topic, self._group = store, topic, group
        self._output = Path(output)
        self._folder = self._output / "_export"
        self._complete = self._folder / "complete.json"

    def plan(self) -> Plan:
        """Plan all messages after the group's offsets, or all messages if the group has none."""
        committed = self._store.groups.committed(self._group, self._topic)
        ranges = {}
        for queue_id, has in self._store.offsets(self._topic).items():
            # Messages that retention deletes before they are read are missing; the number of rows
            # is then lower than the plan's.
            start = min(max(committed.get(queue_id, has.minimum), has.minimum), has.maximum)
            ranges[queue_id] = start, has.maximum
        return Plan(f"rows-{uuid.uuid4().hex}", self._store.uuid, self._topic, self._group, ranges)

    def prepare_rows(self, plan: Plan) -> str:
        """Delete the folders of interrupted runs, and return the folder for Spark to write to."""
        for left in self._folder.glob("rows-*"):
            shutil.rmtree(left)
        return f"file://{(self._folder / plan.rows).absolute()}"

    def complete(self, plan: Plan) -> None:
        """Record durably that all rows are written."""
        rows = self._folder / plan.rows
        for path in (rows, *rows.rglob("*")):
            _sync(path)
        draft = self._complete.with_suffix(".new")
        draft.write_text(json.dumps(asdict(plan)))
        _sync(draft)
        draft.replace(self._complete)
        _sync(self._folder)

    def unfinished(self) -> Plan | None:
        """Return the plan of an interrupted run whose rows are complete, or None."""
        if not self._complete.exists():
            return None
        plan = Plan.load(self._complete.read_text())
        if (plan.store, plan.topic, plan.group) != (self._store.uuid, self._topic, self._group):
            whose = f"{plan.topic} for the group {plan.group}"
            raise UnfitOutputError(f"{self._output} is in use for an export of {whose}.")
        return plan

    def finish(self, plan: Plan) -> None:
        """Move the files and commit the group's offsets, both durably. Idempotent."""
        rows = self._folder / plan.rows
        for file in sorted(rows.glob("date=*/*.parquet")):
            day = self._output / file.parent.name
            day.mkdir(exist_ok=True)
            file.rename(day / file.name)
        for day in self._output.glob("date=*"):
            _sync(day)
        _sync(self._output)
        self._move_group(plan)
        self._complete.unlink()
        shutil.rmtree(rows, ignore_errors=True)

    def _move_group(self, plan: Plan) -> None:
        """Commit the plan's end offsets, or a queue's maximum offset if that is lower."""
        has = self._store.offsets(self._topic)
        ends = {
            # A power failure may have truncated the queue; its offsets are then reused.
            queue_id: min(end, has[queue_id].maximum)
            for queue_id, (_, end) in plan.ranges.items()
            if queue_id in has
        }
        self._store.groups.commit(self._group, self._topic, ends)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
