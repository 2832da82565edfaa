"""How an export is done once, whatever dies: a plan, rows beside the others, moves, the group.

    FOLDER/_export/lock             held by the run that is at it
    FOLDER/_export/rows-<id>/       what Spark writes
    FOLDER/_export/complete.json    once those are durable: whose they are, and from where to where
    FOLDER/date=…/*.parquet         the export: readers pass over names with an underscore

A plan that is complete is carried out: its files are moved in, then the group's offsets move to
its ends, durably, and then it goes. Whoever finds one does what is left of it, and nothing twice: a
file is moved or it is not, and a group does not move back. Rows without such a plan go: nobody has
seen them. A Spark that still writes some, its driver dead, has a folder of its own.

Of a queue that the topic loses before the group has moved, the group keeps the old place: if the
topic gets it back, its messages of that one plan are exported again.
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
    """The folder holds what another export has begun."""


@dataclass(frozen=True)
class Plan:
    """What a run exports: of each queue, the messages [start, end); `rows` is their folder."""

    rows: str
    store: str
    topic: str
    group: str
    ranges: dict[int, tuple[int, int]]

    @property
    def count(self) -> int:
        """How many messages that is."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def starts(self) -> str:
        """The first offsets, as the option `startingOffsets`."""
        return json.dumps({self.topic: {queue: start for queue, (start, _) in self.ranges.items()}})

    @property
    def ends(self) -> str:
        """The offsets behind the last, as the option `endingOffsets`."""
        return json.dumps({self.topic: {queue: end for queue, (_, end) in self.ranges.items()}})

    @classmethod
    def load(cls, text: str) -> "Plan":
        """Return the plan of a file."""
        known = json.loads(text)
        ranges = {int(queue): (start, end) for queue, (start, end) in known.pop("ranges").items()}
        return cls(**known, ranges=ranges)


@contextmanager
def the_only_one(output: str) -> Iterator[bool]:
    """Yield whether no other run exports to the folder; none can begin meanwhile."""
    folder = Path(output, "_export")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            # It goes with the process, whatever kills it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Export:
    """A topic's way to a folder, which a group of its own keeps track of."""

    def __init__(self, store: Store, topic: str, group: str, output: str) -> None:
        self._store, self._topic, self._group = store, topic, group
        self._output = Path(output)
        self._folder = self._output / "_export"
        self._complete = self._folder / "complete.json"

    def plan(self) -> Plan:
        """Return what has come since the group's offsets, or is there where it has none."""
        committed = self._store.groups.committed(self._group, self._topic)
        ranges = {}
        for queue_id, has in self._store.offsets(self._topic).items():
            # What was cleaned away meanwhile is lost to the export; the counts show it.
            start = min(max(committed.get(queue_id, has.minimum), has.minimum), has.maximum)
            ranges[queue_id] = start, has.maximum
        return Plan(f"rows-{uuid.uuid4().hex}", self._store.uuid, self._topic, self._group, ranges)

    def place(self, plan: Plan) -> str:
        """Return where Spark is to write the rows; what runs that died have left goes."""
        for left in self._folder.glob("rows-*"):
            shutil.rmtree(left)
        return f"file://{(self._folder / plan.rows).absolute()}"

    def complete(self, plan: Plan) -> None:
        """Note, durably, that the rows are all there."""
        rows = self._folder / plan.rows
        for path in (rows, *rows.rglob("*")):
            _sync(path)
        draft = self._complete.with_suffix(".new")
        draft.write_text(json.dumps(asdict(plan)))
        _sync(draft)
        draft.replace(self._complete)
        _sync(self._folder)

    def unfinished(self) -> Plan | None:
        """Return the plan of a run that died when its rows were complete."""
        if not self._complete.exists():
            return None
        plan = Plan.load(self._complete.read_text())
        if (plan.store, plan.topic, plan.group) != (self._store.uuid, self._topic, self._group):
            whose = f"{plan.topic} for the group {plan.group}"
            raise UnfitOutputError(f"{self._output} is in use for an export of {whose}.")
        return plan

    def finish(self, plan: Plan) -> None:
        """Move the rows in, durably, then the group; once or again."""
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
        """Commit what the topic still has: a plan with more could never be carried out."""
        has = self._store.offsets(self._topic)
        ends = {
            # A crash of the machine may have cut the queue: its offsets are given anew.
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
