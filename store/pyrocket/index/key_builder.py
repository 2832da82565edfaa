"""Keeping the key index up with the log.

Every append notes its keys (`KeyNotes`). Whoever is writing puts the notes into the index from
CATCH_UP_BYTES behind on, or PUT_ITEMS notes, in a turn of its own, and all of them before a clean
end. What nobody has noted is indexed from the log, in slices of about SLICE_BYTES, a turn each, at
most AT_ONCE_BYTES after one append: about 100 ms. The word INDEXED says how far the index is; the
files say it too, and are believed where the two differ, because files can be removed. Readers look
through the rest themselves (`KeyTail`).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import DISPATCHED, INDEXED, STORE_TIME, StatePage
from pyrocket.errors import PyrocketError, StoreDamagedError, StoreUnavailableError
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.key_notes import NotesHeader, encode_notes
from pyrocket.formats.key_table import Geometry
from pyrocket.formats.record import read_header
from pyrocket.index.appender import Appended
from pyrocket.index.checkpointer import read_checkpoint
from pyrocket.index.key_index import KeyIndex
from pyrocket.index.key_items import key_items
from pyrocket.index.key_notes import MOST_NOTES, KeyNotes
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.walk import end_of, walk

_log = logging.getLogger(__name__)

CATCH_UP_BYTES = 64 * 1024 * 1024
PUT_ITEMS = 128 * 1024
SLICE_BYTES = 8 * 1024 * 1024
"""A turn ends after the run of the log, 16 MiB at most, in which it gets so far."""

AT_ONCE_BYTES = 64 * 1024 * 1024
"""Then the append returns, and the next one goes on."""

_HEAD_BYTES = 8


class KeyBuilder:
    """Builds the key index of one store that is open for writing."""

    def __init__(
        self,
        layout: Layout,
        log: CommitLog,
        page: StatePage,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._layout, self._log, self._page, self._clock = layout, log, page, clock
        self._index = KeyIndex(layout, Geometry(config.index_slots, config.index_items))
        self._notes = KeyNotes(layout.waiting_keys, writable=True)
        self._enabled = config.key_index
        self._noted, self._keyless_until = 0, 0

    def settle(self, *, clean: bool) -> None:
        """Begin after a recovery: forget the notes, then `join`.

        After an unclean end only files that were surely durable are kept. What is missing then is
        built again as the store is used.
        """
        self._notes.remove()
        self.join(clean=clean)

    def join(self, *, clean: bool = True) -> None:
        """Keep the files that agree with the log, and set INDEXED; the caller has the turn."""
        end = self._page[DISPATCHED]
        keep = self._index.sound(end)
        if not clean:
            keep = min(keep, self._index.durable(self._checkpointed()))
        self._index.cut(keep)
        while keep and not self._ends_at_a_record():
            keep -= 1
            self._index.cut(keep)
        self._lower_checkpoint()
        self._page[INDEXED] = self._start()

    def note(self, start: int, appended: Sequence[Appended]) -> None:
        """Note the keys of what has just been appended at `start`; the caller has the turn.

        Never raises: what is not noted is found in the log.
        """
        if not self._enabled:
            return
        page, self._noted = self._page, 0
        found = [(one.physical_offsets, one.batch.keys) for one in appended]
        known = [(offsets, keys) for offsets, keys in found if keys is not None]
        if len(known) < len(found) or sum(len(keys) for _, keys in known) > MOST_NOTES:
            return
        stored = page[STORE_TIME]
        notes = [encode_notes(offsets[keys.rows], stored, keys.hashes) for offsets, keys in known]
        try:
            self._noted = self._notes.add(
                start, page[DISPATCHED], b"".join(notes), keep=page[INDEXED] < start
            )
        except OSError as error:
            _log.warning("the keys of an append to %s are left: %s", self._layout.root, error)

    def catch_up(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Index slice after slice, a turn each, while the index is far behind.

        What fails is tried again with the next append: the messages are there all the same. A
        store without `abort` is one whose index was made durable, so it is left as it is.
        """
        page, before, done = self._page, -1, 0
        while self._is_behind() and done < AT_ONCE_BYTES:
            if page[INDEXED] == before or not self._layout.abort.exists():
                return
            before = page[INDEXED]
            try:
                with turn():
                    done += self._build_slice()
            except PyrocketError as error:
                _log.warning("the key index of %s stays behind: %s", self._layout.root, error)
                return

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
        try:
            while self._enabled and self._page[INDEXED] < self._page[DISPATCHED]:
                self._build_slice()
        except StoreDamagedError as error:
            _log.warning("the key index of %s stays incomplete: %s", self._layout.root, error)
        except OSError as error:
            raise StoreUnavailableError(
                f"the key index of {self._layout.root} could not be completed: {error}.",
                remedy="Free space or repair the disk, then open the store and close it again.",
                code="WRITE_FAILED",
            ) from error
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

    def _build_slice(self) -> int:
        """Index what follows, from the notes or the log; return how many bytes of the log."""
        start, noted, end = self._next_offset(), self._notes.header(), self._page[DISPATCHED]
        if start < noted.end <= end:
            if noted.start <= start and self._put_notes(noted, start):
                return noted.end - start
            end = noted.start if start < noted.start else end
        return self._index_log(start, end) - start

    def _next_offset(self) -> int:
        """Return from where on to index: from the beginning if there are no files, or no more."""
        first = self._log.first_offset()
        return max(self._page[INDEXED] if self._index.names() else self._keyless_until, first)

    def _put_notes(self, noted: NotesHeader, start: int) -> bool:
        """Put the notes from the log's `start` on; False if they are not all there."""
        items = self._notes.items(noted)
        if items is None:
            return False
        items = items[int(items.offsets.searchsorted(start)) :]
        self._index.append(items, self._clock())
        self._page[INDEXED], self._noted = noted.end, 0
        return True

    def _index_log(self, start: int, end: int) -> int:
        """Index a slice of the log's [start, end); return how far it goes."""
        reached, keyless = start, not self._index.names()
        for run in walk(self._log, start, end):
            self._index.append(key_items(run), self._clock())
            self._page[INDEXED] = reached = end_of(run)
            keyless = keyless and not self._index.names()
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

    def _start(self) -> int:
        """Return where building begins: the last record indexed may lack items."""
        return max(self._index.end(), self._log.first_offset())

    def _ends_at_a_record(self) -> bool:
        end = self._index.end()
        if end < self._log.first_offset():
            return True
        head = self._log.read(end, _HEAD_BYTES)
        return len(head) == _HEAD_BYTES and read_header(head).is_message

    def _checkpointed(self) -> int:
        return read_checkpoint(self._layout).index_timestamp

    def _lower_checkpoint(self) -> None:
        """Take back what the checkpoint says about files that are gone.

        Those built in their place end at the same times, but are not durable yet.
        """
        until = self._index.full_until()
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            checkpoint = decode_checkpoint(read_or_none(path) or b"")
            if checkpoint.index_timestamp > until:
                content = encode_checkpoint(replace(checkpoint, index_timestamp=until))
                replace_file(path, content, self._layout.scratch)
