"""Advances the checkpoint after flushes, so that recovery, also by a broker, reads little.

A checkpoint may contain a store time T only when every record older than T, and its queue entry, is
durable: recovery starts at the newest log file whose first record is older than T by three seconds,
and does not check earlier files. The flusher reads T first, and then the log offset up to which it
flushes, so the records of an append in progress are not older than T.

The checkpoint's third time covers the durable files of the key index: the full files, which never
change again. The last file, which still grows, is rebuilt after a crash.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress

from pyrocket.base.clock import Clock
from pyrocket.disk.io import SyncError, replace_file
from pyrocket.disk.shared_state import CHECKPOINT_TIME, CHECKPOINTED, DISPATCHED
from pyrocket.engine.recovery import StoreParts, save_progress
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.queues.dispatcher import Queue
from pyrocket.log.valid_end import read_checkpoint
from pyrocket.metadata.service_cursors import save_levels

_log = logging.getLogger(__name__)

INTERVAL_MS = 60_000
"""A flush advances the checkpoint this often at least: flushConsumeQueueThoroughInterval."""

LEVELS_INTERVAL_MS = 10_000
"""RocketMQ's flushDelayOffsetInterval."""


class Checkpointer:
    """Advances one store's checkpoint. Requires the flush lock or exclusive access."""

    def __init__(self, store: StoreParts, clock: Clock) -> None:
        self._store, self._clock, self._levels_ms = store, clock, 0
        self._layout, self._queues, self._state = store.layout, store.queues, store.page
        self._changed, self._log_file_bytes = store.dispatcher.changed, store.log.file_bytes

    def after_flush(self, end: int, stored: int, cursors: Mapping[int, int]) -> None:
        """Advance to `end` if the log has reached another file, or a minute has passed.

        Does nothing while records of a killed writer are not dispatched. Raises SyncError.
        """
        state = self._state
        if state[DISPATCHED] < end or end <= state[CHECKPOINTED]:
            return
        same_file = end // self._log_file_bytes == state[CHECKPOINTED] // self._log_file_bytes
        try:
            if same_file and self._clock() - state[CHECKPOINT_TIME] < INTERVAL_MS:
                self._keep_levels(cursors)
            else:
                self.advance(end, stored, cursors)
        except SyncError:
            raise
        except OSError as error:
            # The flush itself has succeeded, and an old checkpoint is still valid.
            _log.warning("the checkpoint of %s was not advanced: %s", self._layout.root, error)

    def advance(
        self,
        end: int,
        stored: int,
        cursors: Mapping[int, int],
        *,
        index_timestamp: int | None = None,
    ) -> None:
        """Flush the queue entries of all records before `end`, then write the checkpoint.

        The log must be durable, and the queues complete, up to `end`. `stored` is the store time
        for the checkpoint. Without an `index_timestamp`, full index files are flushed, too. Raises
        SyncError, OSError.
        """
        changed = self._changed.between(self._state[CHECKPOINTED], end)
        self._sync_queues(self._queues.on_disk() if changed is None else changed)
        index = index_timestamp
        if index is None:
            index = read_checkpoint(self._layout).index_timestamp
            # A damaged file is deleted by the next writer that opens the store.
            with suppress(StoreDamagedError):
                index = self._store.keys.index.sync_full(index)
        save_progress(self._store, end, cursors, changed)
        content = encode_checkpoint(Checkpoint(stored, stored, index))
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            replace_file(path, content, self._layout.scratch)
        self._state[CHECKPOINTED] = end
        self._changed.forget_before(end)
        self._state[CHECKPOINT_TIME] = self._clock()

    def _keep_levels(self, cursors: Mapping[int, int]) -> None:
        """Save the cursors of the delay levels, for a broker that is started after a crash."""
        now = self._clock()
        if not 0 <= now - self._levels_ms < LEVELS_INTERVAL_MS:
            save_levels(self._layout, cursors)
            self._levels_ms = now

    def _sync_queues(self, queues: Collection[Queue]) -> None:
        """Flush the entries written since the last checkpoint."""
        since = self._state[CHECKPOINTED]
        for topic, queue_id in queues:
            queue = self._queues.get(topic, queue_id)
            starts = queue.run.starts()
            if starts:
                first = queue.max_offset(since) * ENTRY_BYTES
                with suppress(FileNotFoundError):  # The topic is being deleted.
                    queue.run.sync(first, starts[-1] + queue.run.file_bytes)
