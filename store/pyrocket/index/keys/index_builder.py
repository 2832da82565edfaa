"""Keeps the key index up to date with the log.

Each append notes its keys (`PendingKeys`). A writer moves the notes into the index once the index
is CATCH_UP_BYTES behind the log, or PUT_ITEMS keys are noted, under the write lock, and all of them
before a clean shutdown. Keys that were not noted are read from the log in slices of about
SLICE_BYTES, one exclusive section each, at most AT_ONCE_BYTES after one append, which takes about
100 ms. INDEXED is how far the index is complete. The files say it too, and win where the two
differ, because files can be removed: they are checked before each slice, and soon after the folder
has changed (`IndexFiles`). Readers search the rest of the log themselves (`UnindexedTail`).

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
from dataclasses import replace

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
    """The files of one store that is open for writing; all but `have_changed` need the turn.

    `names` are those that counted at the last look, and those made since.
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
        """Begin after a recovery; whoever wrote last has gone.

        After an unclean end only files that were surely durable are kept. What is missing then is
        built again as the store is used.
        """
        files = self._sound()
        if not clean:
            files = files[: self.index.count_durable(read_checkpoint(self._layout).index_timestamp)]
        self._begin(files)

    def attach(self) -> None:
        """Begin where nothing had to be recovered."""
        self._begin(self._ours(self._sound()))

    def check(self) -> None:
        """Remove files that do not count; INDEXED goes back if one of ours is gone."""
        files = self._ours(self._sound())
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        if made in map(_identity, files) or (made == _NONE and not files):
            self._keep(files)
        else:
            self._begin(files)

    def have_changed(self) -> bool:
        """Whether files may have come or gone since the last look."""
        return self._last_change() != self._changed

    def _last_change(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return 0

    def append(self, items: KeyItems, now_ms: int) -> None:
        """Append to the files that count; see `KeyIndex.append`."""
        self.names = self.index.append(items, now_ms, self.names)

    def _sound(self) -> list[IndexFileInfo]:
        """Return the first files, as far as they agree with the log."""
        self._changed = self._last_change()
        files = self._span.contiguous_prefix(self.index.valid_prefix(self._page[DISPATCHED]))
        while files and not self._is_record(files[-1].header.end_offset):
            files.pop()
        return files

    def _ours(self, files: list[IndexFileInfo]) -> list[IndexFileInfo]:
        """Return the first files, up to one that is not full; that one only if it is ours."""
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        for count, file in enumerate(files):
            if not self.index.is_full(file.header):
                return files[: count + (_identity(file) == made)]
        return files

    def _begin(self, files: list[IndexFileInfo]) -> None:
        """Keep these files as ours and go on behind them: the last record may lack items."""
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
        """Take back what the checkpoint says about files that are gone.

        Those built in their place end at the same times, but are not durable yet.
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

CATCH_UP_BYTES = 64 * 1024 * 1024
PUT_ITEMS = 128 * 1024
SLICE_BYTES = 8 * 1024 * 1024
"""A turn ends after the run of the log, 16 MiB at most, in which it gets so far."""

AT_ONCE_BYTES = 64 * 1024 * 1024
"""Then the append returns, and the next one goes on; unless it was longer itself."""

_MAX_AGAIN = 3
"""So often a slice is built that was there before, until it is clear that none of them counts."""


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
        self._noted, self._left, self._keyless_until = 0, 0, 0

    def after_recovery(self, *, clean: bool) -> None:
        """Drop the noted keys and set INDEXED: see `IndexFiles.after_recovery`."""
        self._notes.remove()
        self._files.after_recovery(clean=clean)

    def attach(self) -> None:
        """Begin where nothing had to be recovered, and set INDEXED; the caller has the turn."""
        self._files.attach()

    def note(self, start: int, appended: Sequence[Appended]) -> None:
        """Note the keys of what has just been appended at `start`; the caller has the turn.

        Never raises: what is not noted is found in the log.
        """
        if not self._enabled:
            return
        page, self._noted = self._page, 0
        found = [(one.physical_offsets, one.batch.keys) for one in appended]
        known = [(offsets, keys) for offsets, keys in found if keys is not None]
        if len(known) < len(found) or sum(len(keys) for _, keys in known) > MAX_NOTES:
            return
        stored = page[STORE_TIME]
        notes = [encode_notes(offsets[keys.rows], stored, keys.hashes) for offsets, keys in known]
        try:
            self._noted = self._notes.add(
                start, page[DISPATCHED], b"".join(notes), keep=page[INDEXED] < start
            )
        except OSError as error:
            _log.warning("the keys of an append to %s are left: %s", self._layout.root, error)

    def defer(self, size: int) -> None:
        """Leave so many bytes, just appended with more keys than can be noted, to `catch_up`."""
        self._left = size

    def catch_up(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Index slice after slice, a turn each, while the index is far behind.

        What fails is tried again with the next append: the messages are there all the same. A
        store without `abort` is one whose index was made durable, so it is left as it is.
        """
        page, before, done = self._page, -1, 0
        most, self._left = max(AT_ONCE_BYTES, self._left), 0
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
                _log.warning("the key index of %s stays behind: %s", self._layout.root, error)

    def _is_behind(self) -> bool:
        if not self._enabled:
            return False
        behind = self._page[DISPATCHED] - self._page[INDEXED]
        return behind > CATCH_UP_BYTES or (behind > 0 and self._noted >= PUT_ITEMS)

    def complete(self) -> int:
        """Index all that is readable, durably; the caller has the turn.

        Returns what the checkpoint may say of it: the store time at which the last full file ends.
        A damaged log is indexed up to the damage, which queries will name. Raises
        StoreUnavailableError (WRITE_FAILED), SyncError.
        """
        root, what = self._layout.root, "the key index of {root} could not be completed: {error}."
        again = "open the store and close it again"
        with translating_os_errors(root, again, what=what, through=(SyncError,)):
            try:
                self._files.check()
                self._build_all()
            except StoreDamagedError as error:
                _log.warning("the key index of %s stays incomplete: %s", root, error)
        self._index.sync()
        self._notes.remove()
        return self._index.full_until()

    def sync_full(self, since: int) -> int:
        """Make full files durable that end at the store time `since` (ms) or later.

        Returns the time at which the last full file ends, or `since` if none ends later. Needs no
        turn: full files do not change. Raises SyncError.
        """
        return self._index.sync_full(since)

    def close(self) -> None:
        """Close what is open."""
        self._notes.close()

    def remove_below(self, log_start: int) -> int:
        """Remove index files that only know messages before `log_start`; returns how many.

        The caller has the turn.
        """
        return self._index.remove_below(log_start)

    def _build_all(self) -> None:
        """Index what is dispatched. Raises StoreDamagedError if files never last.

        A broker may remove some meanwhile, but not each time.
        """
        again = 0
        while self._enabled and self._page[INDEXED] < self._page[DISPATCHED]:
            before = self._page[INDEXED]
            self._build_slice()
            again += self._page[INDEXED] <= before
            if again == _MAX_AGAIN:
                raise StoreDamagedError(
                    f"index files that were just built up to {before} do not count.",
                    remedy="Queries read the log instead; see what `pyrocket verify` says.",
                )

    def _build_slice(self) -> int:
        """Index what follows, from the notes or the log; return how many bytes of the log."""
        self._files.check()
        start, noted, end = self._next_offset(), self._notes.header(), self._page[DISPATCHED]
        if start < noted.end <= end:
            if noted.start <= start and self._put_notes(noted, start):
                return noted.end - start
            end = noted.start if start < noted.start else end
        return self._index_log(start, end) - start

    def _next_offset(self) -> int:
        """Return from where on to index: from the beginning if there are no files, or no more."""
        first = self._log.first_offset()
        return max(self._page[INDEXED] if self._files.names else self._keyless_until, first)

    def _put_notes(self, noted: NotesHeader, start: int) -> bool:
        """Put the notes from the log's `start` on; False if they are not all there."""
        items = self._notes.items(noted)
        if items is None:
            return False
        items = items[int(items.offsets.searchsorted(start)) :]
        self._files.append(items, self._clock())
        self._page[INDEXED], self._noted = noted.end, 0
        return True

    def _index_log(self, start: int, end: int) -> int:
        """Index a slice of the log's [start, end); return how far it goes."""
        reached, keyless = start, not self._files.names
        for run in walk(self._log, start, end):
            self._files.append(key_items(run), self._clock())
            self._page[INDEXED] = reached = end_of(run)
            keyless = keyless and not self._files.names
            if keyless:
                self._keyless_until = reached
            if reached - start >= SLICE_BYTES:
                return reached
        if reached != end:
            raise record_missing(reached, end)
        return reached
