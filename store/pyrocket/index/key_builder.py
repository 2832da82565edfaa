"""Keeping the key index up with the log.

Messages are indexed after they have been appended, in turns of their own, by whoever is writing:
from CATCH_UP_BYTES behind on in slices of about SLICE_BYTES, and all of it before a clean end. The
word INDEXED says how far it is; the files say it too, and are believed where the two differ,
because files can be removed. Readers look through the rest of the log themselves.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import DISPATCHED, INDEXED, StatePage
from pyrocket.errors import PyrocketError, StoreDamagedError, StoreUnavailableError
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.key_table import Geometry
from pyrocket.formats.record import read_header
from pyrocket.index.key_index import KeyIndex
from pyrocket.index.key_items import key_items
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.walk import end_of, walk

_log = logging.getLogger(__name__)

CATCH_UP_BYTES = 64 * 1024 * 1024
SLICE_BYTES = 8 * 1024 * 1024
"""A turn ends after the run of the log, 16 MiB at most, in which it gets so far."""

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
        self._enabled = config.key_index

    def settle(self, *, clean: bool) -> None:
        """Keep the files that agree with the log, and set INDEXED; the caller has the turn.

        After an unclean end only those that were surely durable are kept. What is missing then is
        built again as the store is used.
        """
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

    def catch_up(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Index slice after slice, a turn each, while the index is far behind.

        What fails is tried again with the next append: the messages are there all the same. A
        store without `abort` is one whose index was made durable, so it is left as it is.
        """
        page, before = self._page, -1
        while self._enabled and page[DISPATCHED] - page[INDEXED] > CATCH_UP_BYTES:
            if page[INDEXED] == before or not self._layout.abort.exists():
                return
            before = page[INDEXED]
            try:
                with turn():
                    self._build_slice()
            except PyrocketError as error:
                _log.warning("the key index of %s stays behind: %s", self._layout.root, error)
                return

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
        return self._index.full_until()

    def remove_below(self, log_start: int) -> int:
        """Remove index files that only know messages before `log_start`; returns how many.

        The caller has the turn.
        """
        return self._index.remove_below(log_start)

    def _build_slice(self) -> None:
        page = self._page
        start, end = max(page[INDEXED], self._log.first_offset()), page[DISPATCHED]
        if not self._index.names():
            start = self._log.first_offset()
        reached = start
        for run in walk(self._log, start, end):
            self._index.append(key_items(run), self._clock())
            page[INDEXED] = reached = end_of(run)
            if reached - start >= SLICE_BYTES:
                return
        if reached != end:
            raise StoreDamagedError(
                f"corrupt log: it should go on until {end}, but no record follows {reached}.",
                remedy="Restore the log from a backup.",
            )

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
        return decode_checkpoint(read_or_none(self._layout.checkpoint) or b"").index_timestamp

    def _lower_checkpoint(self) -> None:
        """Take back what the checkpoint says about files that are gone.

        Those built in their place end at the same times, but are not durable yet.
        """
        known = read_or_none(self._layout.checkpoint) or b""
        checkpoint, until = decode_checkpoint(known), self._index.full_until()
        if checkpoint.index_timestamp > until:
            content = encode_checkpoint(replace(checkpoint, index_timestamp=until))
            replace_file(self._layout.checkpoint, content, self._layout.scratch)
