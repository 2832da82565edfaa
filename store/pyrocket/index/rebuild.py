"""Recovery: find the end of the log, cut what lies behind it, make the queues agree.

Runs alone, before anybody trusts the shared words, which it sets.
"""

from pyrocket.disk.state_page import (
    DISPATCHED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    STRUCTURE,
    StatePage,
)
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.index.queues import Queues
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.recovery import recovery_start, valid_end
from pyrocket.log.walk import walk

QueueEnds = dict[tuple[str, int], int]


def recover(
    log: CommitLog,
    queues: Queues,
    dispatcher: Dispatcher,
    page: StatePage,
    checkpoint: Checkpoint,
    *,
    clean: bool,
) -> QueueEnds:
    """Make log, queues and words agree and durable; return where the queues end."""
    start = recovery_start(log, checkpoint, clean=clean)
    end, stored = valid_end(log, start)
    files = log.run.starts()
    if files:
        log.erase(end, files[-1] + log.file_bytes)
    for topic, queue_id in queues.on_disk():
        queues.get(topic, queue_id).cut(end if clean else max(start, 1))
    dispatcher.dispatch(walk(log, start, end))
    log.run.sync(start, end)
    for word in (PUBLISHED, DISPATCHED, RESERVED, FLUSHED):
        page[word] = end
    page[STORE_TIME] = stored
    page[STRUCTURE] = page[STRUCTURE] + 1
    return {key: queues.get(*key).max_offset(end) for key in queues.on_disk()}


def sync_queues(queues: Queues) -> None:
    """Make all queues durable."""
    for topic, queue_id in queues.on_disk():
        run = queues.get(topic, queue_id).run
        starts = run.starts()
        if starts:
            run.sync(starts[0], starts[-1] + run.file_bytes)
