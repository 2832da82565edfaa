"""The writer of a replica: appends the log of its primary, byte for byte, and nothing else.

    receive     bytes of the primary's log arrive, each at the end of the bytes before
    append      the whole records among them are checked, written at their own offset, published,
                and dispatched by the code that recovery uses; an incomplete one waits in memory
    put         small files, from the log offset on from which they hold
    clean       the log files that the primary has deleted are deleted
    cut         a tail that the primary does not have, or a part of a batch, is saved, and cut off
    promote     the replica becomes a store of its own

There are no services: what they do arrives in the log. A replica has the epochs of its primary. A
process that is killed at any step leaves a store that the next follower continues; the primary
sends again from the end of its log. How the bytes arrive is not known here.
"""

import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    CHECKPOINTED,
    DISPATCHED,
    FLUSHED,
    INDEXED,
    NEVER,
    NEXT_DUE,
    PUBLISHED,
    RESERVED,
    lock_identity,
)
from pyrocket.engine.cleaner import log_files
from pyrocket.engine.hooks import RecoveryHooks
from pyrocket.engine.parts.history import mark_at, torn_batch
from pyrocket.engine.writer import Writer
from pyrocket.errors import InvalidInputError, StoreDamagedError
from pyrocket.formats.record import BLANK_BYTES, FIXED_BYTES, follow, read_header
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.rebuild import OffsetContinuity
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk
from pyrocket.log.salvage import keep_cut
from pyrocket.log.valid_end import Dense, whole_records
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.identity import check_directory
from pyrocket.metadata.role import Role, RoleFile
from pyrocket.metadata.service_cursors import forget_cursors, save_cursors
from pyrocket.values.admin import Removal
from pyrocket.values.message import LogMark

_NAMES = re.compile(
    r"config/[A-Za-z]+\.json(\.bak)?|pyrocket/sink/([0-9a-f]{32}|unclean\.json)"
    r"|pyrocket/(topics|epochs|sink|pop|retention|group_starts)\.json"
)
_OWN = frozenset(("propertyCrcRanges", "propertyCrcLock", "enabledAppendPropCRC"))
"""The fields of `store.json` that a replica does not copy: the primary may change them later."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SmallFiles:
    """Files that have changed, the names of those that are gone, and the services' cursors.

    The names are relative to the store; the cursors are by field of the shared state. With
    `is_all`, all other small files are gone, too.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    gone: Collection[str] = ()
    cursors: Mapping[int, int] = field(default_factory=dict)
    is_all: bool = False


def small_paths(layout: Layout) -> dict[str, Path]:
    """Return the small files of a store that its replica needs, by name."""
    known = {str(path.relative_to(layout.root)): path for path in layout.small_files}
    return {name: path for name, path in known.items() if _NAMES.fullmatch(name) and path.exists()}


def make_replica(layout: Layout, role: Role, identity: bytes) -> None:
    """Make an empty directory that of a replica; `identity` is the `store.json` of its primary.

    The role is written first: without it, the directory would be that of a store of its own.
    """
    check_directory(layout, create=True)
    RoleFile(layout).write(role)
    if not layout.identity.exists():
        known = {name: value for name, value in json.loads(identity).items() if name not in _OWN}
        io.replace_file(layout.identity, json.dumps(known, indent=1).encode(), layout.scratch)


class Follower(Writer):
    """The only writer of a replica; the directory must have a role. Used by one thread."""

    _follows = True

    def __init__(
        self, layout: Layout, config: StoreConfig, clock: Clock, recovery: RecoveryHooks
    ) -> None:
        super().__init__(layout, config, clock, recovery)
        self._rest = b""
        self.page[NEXT_DUE] = NEVER

    @property
    def end(self) -> int:
        """The log offset of the next bytes: those before it are appended, or wait in memory."""
        return self.page[PUBLISHED] + len(self._rest)

    @property
    def durable_end(self) -> int:
        """The log offset up to which the log is durable."""
        return self.page[FLUSHED]

    @property
    def is_empty(self) -> bool:
        """Whether the log has no records."""
        return not self._log.run.starts()

    def forget_rest(self) -> None:
        """Drop the bytes of an incomplete record: they will be sent again."""
        self._rest = b""

    def begin(self, published: int) -> None:
        """Begin to follow a primary whose log ends at `published`.

        Until all small files have arrived, the cursors may be much older than the log.
        """
        if published > self.end:
            RoleFile(self._layout).change(is_behind=True)

    def receive(self, offset: int, data: bytes) -> None:
        """Append bytes of the log at their own offset, which must be the log's end.

        A log without records begins at the first offset. Nothing is appended unless all whole
        records in the bytes are valid. Raises InvalidInputError (REPLICA_OFFSET),
        StoreDamagedError (REPLICA_RECORD), and the errors of appends.
        """
        if self.is_empty and not self._rest and offset != self.end:
            self._begin_at(offset)
        if offset != self.end:
            raise InvalidInputError(
                f"bytes of the log at {offset} were received, but the log ends at {self.end}.",
                remedy="The replica connects again by itself.",
                code="REPLICA_OFFSET",
            )
        start, data = offset - len(self._rest), self._rest + data
        dense = OffsetContinuity(self.dispatcher.first_offset, self._reached).check
        with self.exclusive():  # The queues end with the log, also if a process was killed before.
            size, runs = _whole(self._log, dense, start, data)
            if size:
                self.room.check_fits(size)
                self._mark_in_use()
                self._appender.append_raw(start, memoryview(data)[:size], runs)
                self.failure.end()
                self._keys.add_received(start, runs)
        self._rest = data[size:]

    def _reached(self, topic: str, queue_id: int) -> int:
        return self._queues.get(topic, queue_id).max_offset(WHOLE_LOG)

    def _begin_at(self, offset: int) -> None:
        """Let the empty log begin at an offset, the start of a file."""
        if offset % self._log.file_bytes:
            raise InvalidInputError(
                f"a log cannot begin at {offset}: its files have {self._log.file_bytes} bytes.",
                code="REPLICA_OFFSET",
            )
        fields = [RESERVED, DISPATCHED, FLUSHED, CHECKPOINTED, INDEXED, PUBLISHED]
        with self.exclusive():
            self._mark_in_use()
            # The log is published last if it begins later, otherwise first.
            for counter in fields if offset > self.page[PUBLISHED] else fields[::-1]:
                self.page[counter] = offset

    def put(self, small: SmallFiles) -> None:
        """Replace small files, from the end of the log on. Repeating it changes nothing.

        Raises InvalidInputError (REPLICA_FILE) for a name that no such file has.
        """
        if strange := [name for name in (*small.files, *small.gone) if not _NAMES.fullmatch(name)]:
            raise InvalidInputError(
                f"a replica has no file {strange[0]!r}.",
                remedy="Use the same release for replica and primary.",
                code="REPLICA_FILE",
            )
        root, scratch = self._layout.root, self._layout.scratch
        others = small_paths(self._layout).keys() - small.files.keys() if small.is_all else ()
        with self.exclusive(even_if_full=True):
            self._mark_in_use()
            for name, data in small.files.items():
                io.replace_file(root / name, data, scratch)
            for name in (*small.gone, *others):
                io.unlink(root / name)
            for cursor, value in small.cursors.items():
                self.page[cursor] = value
            self.page[NEXT_DUE] = NEVER
            if small.files or small.is_all:
                self._drop_earlier_generations()
                self.structure_changed()
        if small.is_all:
            self.flush()
            save_cursors(self._layout, self.page.cursors())
            RoleFile(self._layout).change(is_behind=False)

    def _drop_earlier_generations(self) -> None:
        """Delete the queues of topics that the primary has deleted.

        A topic that was created again continues its queues at their ends: the entries from there on
        are dispatched again.
        """
        stale, again, first = [], [self.page[DISPATCHED]], self._log.first_offset()
        for key in self._queues.on_disk():
            queue, ended = self._queues.get(*key), self._parts.topics.ended_at(*key)
            end = queue.max_offset(WHOLE_LOG) if ended else 0
            if ended and queue.min_offset(first, end) < ended:
                stale.append(queue)
                if end > ended:
                    again.append(int(queue.entries(ended, ended + 1)["physical_offset"][0]))
        # A process that is killed now leaves the rest to `roll_forward`.
        self.page[DISPATCHED] = min(again)
        for queue in stale:
            queue.drop()
        self._appender.roll_forward()

    def clean(self, log_start: int) -> None:
        """Delete the log files before `log_start`, except the last file."""
        if not self._log.first_offset() < log_start <= self._log.run.start_of(self.page[PUBLISHED]):
            return
        with self.exclusive(even_if_full=True):
            old = [file for file in log_files(self._log) if file.start < log_start]
            self.cleaner.remove([Removal(file, "deleted by the primary") for file in old])

    def newest_mark(self) -> LogMark | None:
        """Return the mark of the last record; None for an empty log. Reads a part of a file."""
        for start in reversed(self._file_starts()):
            if offsets := self._records(start):
                return mark_at(self._log, offsets[-1])
        return None

    def _file_starts(self) -> list[int]:
        return [start for start in self._log.run.starts() if start < self.page[PUBLISHED]]

    def _records(self, start: int) -> list[int]:
        """Return the log offsets of the records of the file that begins at `start`."""
        runs = walk(self._log, start, min(self.page[PUBLISHED], self._log.file_end(start)))
        return [at for run in runs for at in (run.starts + run.base).tolist()]

    def cut_what(self, lacks: Callable[[LogMark], bool]) -> None:
        """Cut off the records from the first one on that the primary `lacks`; see `cut`.

        The cursors go, too: what they call delivered or ended may be cut off.
        """

        def is_lacking(offset: int) -> bool:
            mark = mark_at(self._log, offset)
            return mark is None or lacks(mark)

        starts = self._file_starts()
        # The first file whose first record the primary lacks; the place is in the file before.
        number = bisect_left(starts, True, key=is_lacking)
        offsets = self._records(starts[max(number - 1, 0)])
        place = bisect_left(offsets, True, key=is_lacking)
        RoleFile(self._layout).change(is_behind=True)
        forget_cursors(self._layout)
        self.cut(offsets[place] if place < len(offsets) else starts[number])

    def cut(self, offset: int) -> None:
        """Save the log from a record on as `cut-…`, and cut it off; then close this follower.

        The directory must be opened again, which recovers it: its queues then end with the log. On
        an error, nothing is cut.
        """
        layout, end = self._layout, self.page[PUBLISHED]
        target = layout.own / f"cut-{self._clock()}-{offset}"
        with self._locked(self._timeout_ms):
            self._mark_in_use()
            keep_cut(self._log, target, layout.scratch, offset, end)
            io.unlink(layout.queue_ends)  # It would report the tail as lost.
            self.page.invalidate(lock_identity(layout.lock))
            self._log.truncate(offset, end)
        _log.warning(
            "%s: the log from %d to %d was cut off; it is saved in %s",
            *(layout.root, offset, end, target),
        )
        self.close(clean=False)

    def torn_batch(self) -> int | None:
        """Return the log offset of the exactly-once batch that has arrived only in part, if any."""
        with self._locked(self._timeout_ms):  # The queues end with the log: see `receive`.
            return torn_batch(self._log, self._queues, self.page[PUBLISHED])

    def promote(self) -> Role:
        """Make the replica a store of its own with the next term; then close this follower.

        Topics whose messages arrived before the table of topics did are created. The next writer
        recovers the store as after a crash: the whole log if the cursors are much older.
        """
        file, topics, queues = RoleFile(self._layout), self._parts.topics, dict[str, int]()
        role = file.read()
        with self._locked(self._timeout_ms):
            for topic, queue_id in self._queues.on_disk():
                if topic not in topics.all():
                    queues[topic] = max(queues.get(topic, 0), queue_id + 1)
            topics.ensure(queues)
            Epochs(self._layout).skip()
            if role.is_behind:
                for checkpoint in (self._layout.own_checkpoint, self._layout.checkpoint):
                    io.unlink(checkpoint)
            self._mark_in_use()
            self.page.invalidate(lock_identity(self._layout.lock))
            role = replace(role, primary="", term=role.term + 1, is_behind=False)
            file.write(role)
        self.close(clean=False)
        return role


def _whole(log: CommitLog, dense: Dense, start: int, data: bytes) -> tuple[int, list[RecordFields]]:
    """Return the size of the whole records in bytes at `start`, blanks included, and the records.

    Raises StoreDamagedError (REPLICA_RECORD) if they are not records that continue their queues.
    """
    view, buffer, runs = memoryview(data), pa.py_buffer(data), list[RecordFields]()
    at = end = 0
    while at < len(data):
        file_end = log.file_end(start + at) - start
        starts, at = follow(view[:file_end], at)
        if starts:
            bounds = np.array([*starts, at])
            run = RecordFields(buffer, start, bounds[:-1], np.diff(bounds))
            whole = whole_records(run)
            good = dense(run.head(whole)) if whole else 0
            if good < len(run):
                raise _no_record(start + starts[good])
            end = at
            runs.append(run)
        if at + BLANK_BYTES > min(len(data), file_end):
            break
        header = read_header(view, at)
        if header.is_message and FIXED_BYTES <= header.size <= file_end - BLANK_BYTES - at:
            break
        if not header.is_blank or header.size != file_end - at:
            raise _no_record(start + at)
        at = file_end
    return end, runs


def _no_record(offset: int) -> StoreDamagedError:
    return StoreDamagedError(
        f"the bytes of the primary's log at {offset} are not a record that continues its queue.",
        remedy="Nothing of it was appended. If the error persists, run `pyrocket verify` on the"
        " primary.",
        code="REPLICA_RECORD",
    )
