"""Keeping the key index up with the log.

Every append notes its keys (`PendingKeys`). Whoever is writing puts the notes into the index from
CATCH_UP_BYTES behind on, or PUT_ITEMS notes, in a turn of its own, and all of them before a clean
end. What nobody has noted is indexed from the log, in slices of about SLICE_BYTES, a turn each, at
most AT_ONCE_BYTES after one append: about 100 ms. The word INDEXED says how far the index is; the
files say it too, and are believed where the two differ, because files can be removed: before each
slice, and soon after the folder has changed (`IndexFiles`). Readers look through the rest
themselves (`UnindexedTail`).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.io import SyncError
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import DISPATCHED, INDEXED, STORE_TIME, SharedState
from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.pending_keys import NotesHeader, encode_notes
from pyrocket.formats.record_batch import Appended
from pyrocket.index.keys.index_files import IndexFiles
from pyrocket.index.keys.key_items import key_items
from pyrocket.index.keys.pending_keys import MAX_NOTES, PendingKeys
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, walk

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

    def settle(self, *, clean: bool) -> None:
        """Begin after a recovery: forget the notes, set INDEXED; see `IndexFiles.settle`."""
        self._notes.remove()
        self._files.settle(clean=clean)

    def join(self) -> None:
        """Begin where nothing had to be recovered, and set INDEXED; the caller has the turn."""
        self._files.join()

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

    def leave(self, size: int) -> None:
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
            raise StoreDamagedError(
                f"corrupt log: it should go on until {end}, but no record follows {reached}.",
                remedy="Restore the log from a backup.",
            )
        return reached
