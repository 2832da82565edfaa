"""Keeps the key index up to date with the log.

Each append notes its keys (`PendingKeys`). A writer moves the notes into the index once the index
is `catch_up_bytes` behind the log, or `put_items` keys are noted, under the write lock, and all of
them before a clean shutdown. Keys that were not noted are read from the log in slices of about
`slice_bytes`, one exclusive section each, at most `at_once_bytes` after one append, which takes
about 100 ms (`IndexLimits`). INDEXED is how far the index is complete. The files show it too, and
take precedence, because files can be removed: they are checked before each slice, and soon after
the folder has changed (`IndexFiles`). Readers search the rest of the log themselves
(`UnindexedTail`).

A RocketMQ broker that our lock will refuse has loaded the store before: it removes the file that is
not full, and others that its checkpoint does not cover, and builds new ones from the offset at
which it recovers, for seconds if need be. So the last file is continued only if our writer created
it (KEY_FILE in the shared state) or found it after a broker's clean shutdown. Other files count
only if they are full, as those never change; and none counts after a gap (`IndexCoverage`). Files
that do not count are removed, which is harmless while a broker still builds them.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.io import SMALL_FILE_BYTES, SyncError, read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import (
    DISPATCHED,
    INDEXED,
    KEY_FILE,
    KEY_FILE_INODE,
    STORE_TIME,
    SharedState,
)
from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.pending_keys import NotesHeader, encode_notes
from pyrocket.formats.record import read_header
from pyrocket.formats.record_batch import Appended
from pyrocket.index.keys.index_coverage import IndexCoverage
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import KeyItems, key_items
from pyrocket.index.keys.pending_keys import MAX_NOTES, PendingKeys
from pyrocket.log.checkpoint_file import read_checkpoint
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, record_missing, walk

_HEAD_BYTES = 8


class IndexFiles:
    """The index files of a store that is open for writing. Needs the write lock but in one method.

    That is `have_changed`. `names` are the files that counted at the last check, and newer ones.
    """

    def __init__(
        self, layout: Layout, log: CommitLog, page: SharedState, geometry: Geometry
    ) -> None:
        self._layout, self._log, self._page = layout, log, page
        self.index = KeyIndex(layout, geometry, self._made)
        self._span = IndexCoverage(log, self.index)
        self._folder, self._changed = str(layout.index), 0
        self.names: list[str] = []

    def after_recovery(self, *, clean: bool) -> None:
        """Begin after a recovery: no other writer is left.

        After an unclean shutdown only files that were certainly durable are kept. The rest is
        rebuilt as the store is used.
        """
        files = self._valid()
        if not clean:
            files = files[: self.index.count_durable(read_checkpoint(self._layout).index_timestamp)]
        self._begin(files)

    def attach(self) -> None:
        """Begin without a recovery."""
        self._begin(self._ours(self._valid()))

    def check(self) -> None:
        """Delete files that do not count; lower INDEXED if one of ours is missing."""
        files = self._ours(self._valid())
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        if made in map(_identity, files) or (made == _NONE and not files):
            self._keep(files)
        else:
            self._begin(files)

    def have_changed(self) -> bool:
        """Whether files may have been created or deleted since the last check."""
        return self._last_change() != self._changed

    def _last_change(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return 0

    def append(self, items: KeyItems, now_ms: int) -> None:
        """Append items to the files that count: see `KeyIndex.append`."""
        self.names = self.index.append(items, now_ms, self.names)

    def _valid(self) -> list[IndexFileInfo]:
        """Return the first files that agree with the log."""
        self._changed = self._last_change()
        files = self._span.contiguous_prefix(self.index.valid_prefix(self._page[DISPATCHED]))
        while files and not self._is_record(files[-1].header.end_offset):
            files.pop()
        return files

    def _ours(self, files: list[IndexFileInfo]) -> list[IndexFileInfo]:
        """Return the full files up to the first that is not, and that one if we created it."""
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        for count, file in enumerate(files):
            if not self.index.is_full(file.header):
                return files[: count + (_identity(file) == made)]
        return files

    def _begin(self, files: list[IndexFileInfo]) -> None:
        """Keep these files and continue after them: their last record may lack items."""
        self._keep(files)
        self._lower_checkpoint()
        made = _identity(files[-1]) if files else _NONE
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = made
        end = files[-1].header.end_offset if files else 0
        self._page[INDEXED] = max(end, self._log.first_offset())

    def _keep(self, files: list[IndexFileInfo]) -> None:
        self.names = [file.name for file in files]
        self.index.keep_only(self.names)

    def _made(self, name: str, inode: int) -> None:
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = int(name), inode

    def _is_record(self, offset: int) -> bool:
        if offset < self._log.first_offset():
            return True
        head = self._log.read(offset, _HEAD_BYTES)
        return len(head) == _HEAD_BYTES and read_header(head).is_message

    def _lower_checkpoint(self) -> None:
        """Lower the checkpoint's time for the index to that of the files that are left.

        New files in place of deleted ones end at the same times, but are not durable yet.
        """
        until = self.index.full_until()
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            checkpoint = decode_checkpoint(read_or_none(path, SMALL_FILE_BYTES) or b"")
            if checkpoint.index_timestamp > until:
                content = encode_checkpoint(replace(checkpoint, index_timestamp=until))
                replace_file(path, content, self._layout.scratch)


_NONE = 0, 0


def _identity(file: IndexFileInfo) -> tuple[int, int]:
    return int(file.name), file.inode


_log = logging.getLogger(__name__)

_MAX_AGAIN = 3
"""Number of attempts to build a slice before its files are taken as never counting."""


@dataclass(frozen=True)
class IndexLimits:
    """How far the index may be behind the log, and how much of it is built at a time.

    slice_bytes: an exclusive section ends after the run of the log, 16 MiB at most, that reaches
    it. at_once_bytes: then the append returns and the next one continues.
    """

    catch_up_bytes: int = 64 * 1024 * 1024
    put_items: int = 128 * 1024
    slice_bytes: int = 8 * 1024 * 1024
    at_once_bytes: int = 64 * 1024 * 1024
    max_notes: int = MAX_NOTES


class IndexBuilder:
    """Builds the key index of one store that is open for writing."""

    def __init__(
        self,
        layout: Layout,
        log: CommitLog,
        page: SharedState,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._layout, self._log, self._page, self._clock = layout, log, page, clock
        geometry = Geometry(config.index_slots, config.index_items)
        self._files = IndexFiles(layout, log, page, geometry)
        self._index = self._files.index
        self._notes = PendingKeys(layout.pending_keys, writable=True)
        self._enabled = config.key_index
        self.limits = IndexLimits()
        self._noted, self._left, self._keyless_until = 0, 0, 0

    def after_recovery(self, *, clean: bool) -> None:
        """Drop the noted keys and set INDEXED: see `IndexFiles.after_recovery`."""
        self._notes.remove()
        self._files.after_recovery(clean=clean)

    def attach(self) -> None:
        """Begin without a recovery, and set INDEXED. Needs the write lock."""
        self._files.attach()

    def note(self, start: int, appended: Sequence[Appended]) -> None:
        """Note the keys of the batches just appended at `start`. Needs the write lock.

        Never raises: keys that are not noted are read from the log.
        """
        if not self._enabled:
            return
        page, self._noted = self._page, 0
        found = [(one.physical_offsets, one.batch.keys) for one in appended]
        known = [(offsets, keys) for offsets, keys in found if keys is not None]
        if len(known) < len(found) or sum(len(keys) for _, keys in known) > self.limits.max_notes:
            return
        stored = page[STORE_TIME]
        notes = [encode_notes(offsets[keys.rows], stored, keys.hashes) for offsets, keys in known]
        try:
            self._noted = self._notes.add(
                start,
                page[DISPATCHED],
                b"".join(notes),
                keep=page[INDEXED] < start,
                max_notes=self.limits.max_notes,
            )
        except OSError as error:
            _log.warning("the keys of an append to %s were not noted: %s", self._layout.root, error)

    def defer(self, size: int) -> None:
        """Leave this many bytes, just appended with more keys than can be noted, to `catch_up`."""
        self._left = size

    def catch_up(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Index slice after slice, one exclusive section each, while the index is far behind.

        A failure is retried with the next append: it does not affect messages. A store without
        `abort` has a durable index, which is not changed.
        """
        page, before, done = self._page, -1, 0
        most, self._left = max(self.limits.at_once_bytes, self._left), 0
        try:
            if self._enabled and self._files.have_changed():
                with turn():
                    self._files.check()
            while self._is_behind() and done < most:
                if page[INDEXED] == before or not self._layout.abort.exists():
                    return
                before = page[INDEXED]
                with turn():
                    done += self._build_slice()
        except PyrocketError as error:
            if error.code != "LOCK_TIMEOUT":
                _log.warning("the key index of %s is behind: %s", self._layout.root, error)

    def _is_behind(self) -> bool:
        if not self._enabled:
            return False
        behind, limits = self._page[DISPATCHED] - self._page[INDEXED], self.limits
        return behind > limits.catch_up_bytes or (behind > 0 and self._noted >= limits.put_items)

    def complete(self) -> int:
        """Index all readable messages, durably. Needs the write lock.

        Returns the checkpoint's time for the index: the store time at which the last full file
        ends. A damaged log is indexed up to the damage, which queries report. Raises
        StoreUnavailableError (WRITE_FAILED), SyncError.
        """
        root, what = self._layout.root, "the key index of {root} could not be completed: {error}."
        again = "open the store and close it again"
        with translating_os_errors(root, again, what=what, through=(SyncError,)):
            try:
                self._files.check()
                self._build_all()
            except StoreDamagedError as error:
                _log.warning("the key index of %s is incomplete: %s", root, error)
        self._index.sync()
        self._notes.remove()
        return self._index.full_until()

    def sync_full(self, since: int) -> int:
        """Make full files durable that end at the store time `since` (ms) or later.

        Returns the time at which the last full file ends, or `since` if none ends later. Works
        without the write lock: full files do not change. Raises SyncError.
        """
        return self._index.sync_full(since)

    def close(self) -> None:
        """Close the file of noted keys."""
        self._notes.close()

    def remove_below(self, log_start: int) -> int:
        """Delete index files that only have messages before `log_start`; return how many.

        Needs the write lock.
        """
        return self._index.remove_below(log_start)

    def _build_all(self) -> None:
        """Index up to the dispatched end. Raises StoreDamagedError if new files never count.

        A broker may delete some meanwhile, but not each time.
        """
        again = 0
        while self._enabled and self._page[INDEXED] < self._page[DISPATCHED]:
            before = self._page[INDEXED]
            self._build_slice()
            again += self._page[INDEXED] <= before
            if again == _MAX_AGAIN:
                raise StoreDamagedError(
                    f"index files that were just built up to {before} do not count.",
                    remedy="Queries read the log instead; run `pyrocket verify`.",
                )

    def _build_slice(self) -> int:
        """Index the next slice, from the notes or the log; return its length in the log."""
        self._files.check()
        start, noted, end = self._next_offset(), self._notes.header(), self._page[DISPATCHED]
        if start < noted.end <= end:
            if noted.start <= start and self._put_notes(noted, start):
                return noted.end - start
            end = noted.start if start < noted.start else end
        return self._index_log(start, end) - start

    def _next_offset(self) -> int:
        """Return where indexing continues: at the start of the log if there are no files."""
        first = self._log.first_offset()
        return max(self._page[INDEXED] if self._files.names else self._keyless_until, first)

    def _put_notes(self, noted: NotesHeader, start: int) -> bool:
        """Add the notes from log offset `start` on; False if some are missing."""
        items = self._notes.items(noted)
        if items is None:
            return False
        items = items[int(items.offsets.searchsorted(start)) :]
        self._files.append(items, self._clock())
        self._page[INDEXED], self._noted = noted.end, 0
        return True

    def _index_log(self, start: int, end: int) -> int:
        """Index a slice of the log's [start, end); return its end."""
        reached, keyless = start, not self._files.names
        for run in walk(self._log, start, end):
            self._files.append(key_items(run), self._clock())
            self._page[INDEXED] = reached = end_of(run)
            keyless = keyless and not self._files.names
            if keyless:
                self._keyless_until = reached
            if reached - start >= self.limits.slice_bytes:
                return reached
        if reached != end:
            raise record_missing(reached, end)
        return reached
