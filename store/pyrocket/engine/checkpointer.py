"""Moving the checkpoint after flushes, so that a recovery, Java's too, has little to read.

A checkpoint may claim a store time T only when every record older than T, and its queue entry, is
durable: recovery begins at the newest log file whose first record is older than T by three
seconds, and believes all before it. The flusher hands over a T that was read before the end it
made durable; an append that was then in progress has records of time T, none older.

Its third time says which files of the key index are durable: those that were full, which never
change again. The last one, which still grows, is built anew after a crash.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress

from pyrocket.clock import Clock
from pyrocket.disk.io import SyncError, replace_file
from pyrocket.disk.shared_state import CHECKPOINT_TIME, CHECKPOINTED, DISPATCHED
from pyrocket.engine.recovery import StoreParts, note_progress
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.queues.changed_queues import Queue
from pyrocket.log.checkpoint_file import read_checkpoint
from pyrocket.metadata.service_cursors import save_levels

_log = logging.getLogger(__name__)

INTERVAL_MS = 60_000
"""RocketMQ's flushConsumeQueueThoroughInterval, after which it flushes the checkpoint too."""

LEVELS_INTERVAL_MS = 10_000
"""RocketMQ's flushDelayOffsetInterval."""


class Checkpointer:
    """Moves one store's checkpoint. Its callers hold the flush lock, or have the store alone."""

    def __init__(self, store: StoreParts, clock: Clock) -> None:
        self._store, self._clock, self._levels_ms = store, clock, 0
        self._layout, self._queues, self._page = store.layout, store.queues, store.page
        self._changed, self._log_file_bytes = store.dispatcher.changed, store.log.file_bytes

    def after_flush(self, end: int, stored: int, cursors: Mapping[int, int]) -> None:
        """Advance to `end` if a log file has been filled since, or a minute has passed.

        Records without entries, left by a dead writer, put it off to the next time. Raises
        SyncError.
        """
        page = self._page
        if page[DISPATCHED] < end or end <= page[CHECKPOINTED]:
            return
        same_file = end // self._log_file_bytes == page[CHECKPOINTED] // self._log_file_bytes
        try:
            if same_file and self._clock() - page[CHECKPOINT_TIME] < INTERVAL_MS:
                self._keep_levels(cursors)
            else:
                self.advance(end, stored, cursors)
        except SyncError:
            raise
        except OSError as error:
            # The flush itself has succeeded; an old checkpoint is a true one.
            _log.warning("the checkpoint of %s stays behind: %s", self._layout.root, error)

    def advance(
        self,
        end: int,
        stored: int,
        cursors: Mapping[int, int],
        *,
        index_timestamp: int | None = None,
    ) -> None:
        """Make the queues durable up to the records below `end`, and say so.

        The log is durable up to there, and the queues are complete. Without an `index_timestamp`
        full index files are made durable, too. Raises SyncError, OSError.
        """
        changed = self._changed.between(self._page[CHECKPOINTED], end)
        self._sync_queues(self._queues.on_disk() if changed is None else changed)
        index = index_timestamp
        if index is None:
            index = read_checkpoint(self._layout).index_timestamp
            # A damaged file is the next writer's to drop.
            with suppress(StoreDamagedError):
                index = self._store.keys.sync_full(index)
        note_progress(self._store, end, cursors, changed)
        content = encode_checkpoint(Checkpoint(stored, stored, index))
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            replace_file(path, content, self._layout.scratch)
        self._page[CHECKPOINTED] = end
        self._changed.forget_before(end)
        self._page[CHECKPOINT_TIME] = self._clock()

    def _keep_levels(self, cursors: Mapping[int, int]) -> None:
        """Save how far the delay levels are delivered, for a broker that comes after a crash."""
        now = self._clock()
        if not 0 <= now - self._levels_ms < LEVELS_INTERVAL_MS:
            save_levels(self._layout, cursors)
            self._levels_ms = now

    def _sync_queues(self, queues: Collection[Queue]) -> None:
        """Make the entries written since the last checkpoint durable."""
        since = self._page[CHECKPOINTED]
        for topic, queue_id in queues:
            queue = self._queues.get(topic, queue_id)
            starts = queue.run.starts()
            if starts:
                first = queue.max_offset(since) * ENTRY_BYTES
                with suppress(FileNotFoundError):  # The topic is being deleted.
                    queue.run.sync(first, starts[-1] + queue.run.file_bytes)
