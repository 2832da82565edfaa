"""The steps of a repair. The caller must hold the store's locks exclusively."""

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import SharedState, lock_identity
from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG, Dispatcher, QueuePart, underivable
from pyrocket.index.queues.rebuild import restore_mtimes
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk_all
from pyrocket.log.salvage import keep_cut, written_after
from pyrocket.metadata.delay_levels import used_entries
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.identity import SealedLog, identify
from pyrocket.metadata.topics import Topics
from pyrocket.tools.repair.placeholders import DamagedLog
from pyrocket.tools.repair.plan import (
    CONFIG,
    CUT,
    KEYS,
    LENGTH,
    QUARANTINE,
    QUEUES,
    STEP_OVER,
    TIMERS,
    TOPICS,
    Action,
)
from pyrocket.tools.verify.report import Report


class Steps:
    """Takes the actions of a plan."""

    def __init__(self, layout: Layout, report: Report, clock: Clock, config: StoreConfig) -> None:
        self._layout, self._report, self._end = layout, report, report.log_end
        self._now, self._topics = clock(), Topics(layout, clock)
        self._levels_given = config.delay_levels is not None
        config = identify(layout, config)[0].config
        self._levels = config.delay_levels_ms
        run = FileQueue(layout.commit_log, config.log_file_bytes, layout.scratch)
        self._log = CommitLog(run, SealedLog(layout))
        self._queues = QueueTable(layout, config.queue_file_bytes, writable=True)

    def run(self, actions: tuple[Action, ...]) -> None:
        """Take the actions in order; readers wait until they are done."""
        state = self._invalidate()
        try:
            for kind, take in self._steps().items():
                subjects = [action.subject for action in actions if action.kind == kind]
                if subjects:
                    take(subjects)
        finally:
            self._queues.close()
            self._log.run.close()
            # The shared state is outdated; readers use the queues until a writer has recovered.
            io.unlink(self._layout.state)
            io.sync_directory(self._layout.own)
            if state is not None:
                state.close()

    def _steps(self) -> dict[str, Callable[[list[str]], object]]:
        return {
            QUARANTINE: self._quarantine,
            CONFIG: self._use_backups,
            TOPICS: lambda _: self._topics.restore(self._report.missing_topics),
            LENGTH: self._lengthen,
            STEP_OVER: self._step_over,
            CUT: self._cut,
            QUEUES: self._rebuild_queues,
            KEYS: lambda _: self._move_away("index"),
            TIMERS: self._quarantine,
        }

    def _invalidate(self) -> SharedState | None:
        try:
            state = SharedState(self._layout.state, writable=True)
        except (FileNotFoundError, ValueError, StoreDamagedError):
            return None
        state.invalidate(lock_identity(self._layout.lock))
        return state

    def _quarantine(self, files: list[str]) -> None:
        for file in files:
            self._move_away(file)

    def _move_away(self, file: str) -> Path:
        """Move a file or folder to the quarantine; return its new path."""
        target = self._quarantine_path(file)
        source = self._layout.root / file
        if source.exists():
            io.rename(source, target)
            io.sync_directory(target.parent)
            io.sync_directory(source.parent)
        return target

    def _quarantine_path(self, file: str) -> Path:
        """Return a free path in the quarantine, and create its folder.

        A second folder is needed if a file and its folder are both moved.
        """
        names = (f"{self._now}-{number}" if number > 1 else str(self._now) for number in count(1))
        targets = (self._layout.own / "quarantine" / name for name in names)
        target = next(folder for folder in targets if _has_room(folder, file)) / file
        io.make_directory(target.parent)
        return target

    def _use_backups(self, files: list[str]) -> None:
        for file in files:
            path = self._layout.root / file
            self._move_away(file)
            if path == self._layout.config("topics") and self._report.missing_topics:
                # The action TOPICS replaces the table by its backup with these topics added.
                continue
            backup = path.with_name(path.name + ".bak")
            if (content := read_or_none(backup)) is not None:
                replace_file(path, content, self._layout.scratch)

    def _lengthen(self, files: list[str]) -> None:
        for file in files:
            with io.opened(self._layout.root / file, os.O_RDWR) as descriptor:
                io.set_length(descriptor, self._log.file_bytes)
                io.sync(descriptor)

    def _step_over(self, _: list[str]) -> None:
        damaged = DamagedLog(self._log, self._queues)
        pieces = damaged.pieces()
        for start, end in damaged.ranges:
            name = file_name(self._log.run.start_of(start))
            target = self._quarantine_path(
                f"commitlog/{name}-{start - self._log.run.start_of(start)}"
            )
            keep_cut(self._log, target, self._layout.scratch, start, end)
        damaged.step_over(pieces)
        if damaged.unindexed:
            self._rebuild_queues([f"{topic}/{queue}" for topic, queue in damaged.unindexed])

    def _cut(self, subjects: list[str]) -> None:
        self._end = end = int(subjects[0])
        written_end = written_after(self._log, end)[1]
        if written_end > end:
            target = self._layout.own / f"cut-{self._now}-{end}"
            keep_cut(self._log, target, self._layout.scratch, end, written_end)
        # This file contains a log end that is later than the end after the truncation.
        io.unlink(self._layout.queue_ends)
        files = self._log.run.starts()
        if files:
            self._log.truncate(end, files[-1] + self._log.file_bytes)
        before = {
            key: self._queues.get(*key).max_offset(WHOLE_LOG) for key in self._queues.on_disk()
        }
        ends = {
            key: self._queues.get(*key).cut(end) or self._topics.ended_at(*key) for key in before
        }
        if any(end < before[key] for key, end in ends.items()):
            Epochs(self._layout).begin(ends)
            GroupOffsets(self._layout).truncate(ends)

    def _rebuild_queues(self, names: list[str]) -> None:
        keys = {(name.split("/")[0], int(name.split("/")[1])) for name in names}
        self._save_ends(keys - self._report.queues_in_log)
        kept = {} if self._levels_given else self._delayed_entries(keys)
        self._queues.close()
        targets = {key: self._move_away(self._folder(*key)) for key in keys}
        first = self._log.first_offset()
        end = max(first, self._end)
        dispatcher = Dispatcher(self._queues, self._topics.ended_at, self._levels)
        try:
            runs = walk_all(self._log, first, end)
            dispatcher.dispatch(
                runs,
                dispatched=first,
                only=keys,
                whole=True,
                keep_due_times=partial(_with_due_times, kept),
            )
            for key in keys:
                restore_mtimes(self._log, self._queues.get(*key), first, end)
        except PyrocketError:
            self._queues.close()
            for key, target in targets.items():
                self._restore(self._folder(*key), target)
            raise

    def _delayed_entries(self, keys: set[tuple[str, int]]) -> dict[int, Entries]:
        """Return the entries of the level queues by queue id, in log order.

        The due times of messages that a broker stored cannot be derived from the log.
        """
        kept = {}
        for topic, queue_id in keys:
            if topic == SCHEDULE_TOPIC:
                queue = self._queues.get(topic, queue_id)
                entries = used_entries(queue, queue.run.starts())
                kept[queue_id] = entries[np.argsort(entries["physical_offset"], kind="stable")]
        return kept

    def _folder(self, topic: str, queue_id: int) -> str:
        return f"consumequeue/{topic}/{queue_id}"

    def _restore(self, file: str, target: Path) -> None:
        """Undo a move to the quarantine; a file created in its place is quarantined instead."""
        made = self._layout.root / file
        if made.exists():
            io.rename(made, target.with_name(target.name + ".made"))
        if target.exists():
            io.rename(target, made)
            io.sync_directory(made.parent)

    def _save_ends(self, keys: set[tuple[str, int]]) -> None:
        """Save the end offsets of queues without messages in the log; new messages start there."""
        ends: dict[str, dict[int, int]] = {}
        for topic, queue_id in keys:
            last = self._queues.get(topic, queue_id)
            end = last.max_offset(self._log.first_offset() + 1)
            ends.setdefault(topic, {})[queue_id] = max(end, self._topics.ended_at(topic, queue_id))
        self._topics.save_ends(ends)


def _with_due_times(kept: dict[int, Entries], run: RecordFields, part: QueuePart) -> QueuePart:
    """Return the part; due times that cannot be derived are taken from the old entries."""
    old = kept.get(part.queue_id) if part.topic == SCHEDULE_TOPIC else None
    if old is None or not len(old):
        return part
    at = np.searchsorted(old["physical_offset"], part.entries["physical_offset"])
    entries = old[np.minimum(at, len(old) - 1)]
    return part.keeping(entries, underivable(run, part.entries, entries))


def _has_room(folder: Path, file: str) -> bool:
    """Whether nothing exists at the path and all its existing parents are folders."""
    target = folder / file
    return not target.exists() and all(
        parent.is_dir() or not parent.exists() for parent in target.parents
    )
