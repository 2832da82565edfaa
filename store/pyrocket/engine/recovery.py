"""A recovery of everything: log, queues, key index, words and the services' cursors."""

from collections.abc import Collection, Mapping
from functools import partial

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import lock_identity
from pyrocket.disk.shared_state import (
    CHECKPOINT_TIME,
    DISPATCHED,
    FAILED,
    PUBLISHED,
    RESTED,
    STORE_TIME,
    SharedState,
)
from pyrocket.engine.hooks import Recovered, RecoveryHooks
from pyrocket.index.keys.index_builder import IndexBuilder
from pyrocket.index.queues.dispatcher import Dispatcher
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.index.queues.rebuild import expected_ends, recover
from pyrocket.log.checkpoint_file import read_checkpoint
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import keep_tail
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.queue_ends import QueueEnds, SavedEnds
from pyrocket.metadata.service_cursors import restore_cursors, save_cursors
from pyrocket.metadata.topics import Topics

_YEAR_MS = 365 * 24 * 3_600_000
_LOOKED_THROUGH = 1 << 20
"""Bytes of log that are gone through to see that all queues have them."""


def recover_alone(
    layout: Layout,
    log: CommitLog,
    queues: QueueTable,
    dispatcher: Dispatcher,
    keys: IndexBuilder,
    page: SharedState,
    now_ms: int,
    topics: Topics,
    hooks: RecoveryHooks,
) -> None:
    """Make the words say what the files hold; the caller has the store alone, and vouches then.

    Raises StoreDamagedError, StoreFailedError, StoreUnavailableError.
    """
    noted, checkpoint = QueueEnds(layout).read(), read_checkpoint(layout)
    clean = not layout.abort.exists() and not page[FAILED]
    try:
        recovered = recover(
            *(log, queues, dispatcher, page, checkpoint),
            clean=clean,
            topics=topics.all(),
            known=noted.ranges(log.first_offset()) if noted else None,
            durable_end=QueueEnds(layout).durable_end(),
            before_change=partial(_begin, layout, page),
            before_cut=partial(keep_tail, log, layout.own, layout.scratch, now_ms),
        )
        if not clean or recovered.missing:
            Epochs(layout).begin(recovered.ends)
        keys.after_recovery(clean=clean)
        restore_cursors(layout, page, queues)
        for hook in hooks.after_recovery:
            hook(Recovered(log, queues, page, clean))
        QueueEnds(layout).note(queues, topics.ended_at, log.until(page[PUBLISHED]))
    except BaseException:
        # Readers must not wait for a recovery that is over.
        if page.is_recovering():
            page.abandon_recovery()
        raise
    page[CHECKPOINT_TIME] = now_ms
    if page[STORE_TIME] > now_ms + _YEAR_MS:
        # No checksum covers a record's time, and later ones must not follow a flipped bit.
        page[STORE_TIME] = now_ms


def _begin(layout: Layout, page: SharedState) -> None:
    page.invalidate(lock_identity(layout.lock))
    io.clear_directory(layout.scratch)


def note_progress(
    layout: Layout,
    log: CommitLog,
    queues: QueueTable,
    topics: Topics,
    hooks: RecoveryHooks,
    end: int,
    cursors: Mapping[int, int],
    changed: Collection[tuple[str, int]] | None,
) -> None:
    """Note how far queues and services have come in the log until `end`, which is durable.

    Only the queues `changed` have changed since this was done last; None if any may have.
    """
    save_cursors(layout, cursors, hooks.before_cursor_save)
    QueueEnds(layout).note_changed(queues, topics.ended_at, log.until(end), changed)


def queues_agree(
    layout: Layout, log: CommitLog, queues: QueueTable, page: SharedState, topics: Topics
) -> bool:
    """Whether the queues look as if they had what was dispatched; the caller is alone.

    Takes about a stat for each queue. Where a writer was killed, what came after the last
    checkpoint is gone through, unless that is much. Raises StoreDamagedError where the log's last
    file is gone: its queues must not be cut for it.
    """
    log.check_holds(page[PUBLISHED])
    ends, end = QueueEnds(layout), page[DISPATCHED]
    noted = ends.read()
    if noted is None:
        if page[RESTED] == end:
            return False
        noted = SavedEnds(log.first_offset())
    if 0 < end - noted.log_end <= _LOOKED_THROUGH:
        noted = noted.and_later(expected_ends(log, noted.log_end, end))
    return ends.are_reached(noted, topics.ended_at, queues.file_bytes, log.until(end))
