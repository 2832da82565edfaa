"""Recovery: find the end of the log, cut what lies behind it, make the queues agree.

Runs alone, before anybody trusts the shared words, which it sets.
"""

from collections.abc import Container

from pyrocket.disk.state_page import (
    DISPATCHED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    STRUCTURE,
    StatePage,
)
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.index.queues import Queues
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.recovery import check_nothing_behind, recovery_start, valid_end
from pyrocket.log.walk import walk_all

QueueEnds = dict[tuple[str, int], int]


def recover(
    log: CommitLog,
    queues: Queues,
    dispatcher: Dispatcher,
    page: StatePage,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    topics: Container[str],
) -> QueueEnds:
    """Make log, queues and words agree and durable; return where the queues end.

    Nothing is changed before the log is known to be sound but for its tail.
    """
    log.run.check_whole()
    start = recovery_start(log, checkpoint, clean=clean)
    end, stored = valid_end(log, start)
    files = log.run.starts()
    if clean:
        check_nothing_behind(log, end)
    if files:
        log.erase(end, files[-1] + log.file_bytes)
    for topic, queue_id in queues.on_disk():
        # Pre-blank entries point at 0.
        queues.get(topic, queue_id).cut(end if clean else max(start, 1))
    _dispatch(log, queues, dispatcher, start, end, topics)
    log.run.sync(start, end)
    for word in (PUBLISHED, DISPATCHED, RESERVED, FLUSHED):
        page[word] = end
    page[STORE_TIME] = stored
    page[STRUCTURE] = page[STRUCTURE] + 1
    return {key: queues.get(*key).max_offset(end) for key in queues.on_disk()}


def _dispatch(
    log: CommitLog,
    queues: Queues,
    dispatcher: Dispatcher,
    start: int,
    end: int,
    topics: Container[str],
) -> None:
    """Write the entries of [start, end) anew; of the whole log where that leaves a gap."""
    first = log.first_offset()
    if start > first and queues.on_disk():
        try:
            dispatcher.dispatch(walk_all(log, start, end), dispatched=start, complete=topics)
        except StoreDamagedError as error:
            if error.code != "QUEUE_GAP":
                raise
        else:
            return
    dispatcher.dispatch(walk_all(log, first, end), dispatched=first)


def sync_queues(queues: Queues) -> None:
    """Make all queues durable."""
    for topic, queue_id in queues.on_disk():
        run = queues.get(topic, queue_id).run
        starts = run.starts()
        if starts:
            run.sync(starts[0], starts[-1] + run.file_bytes)
