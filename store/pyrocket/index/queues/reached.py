"""Where the queues ought to end: after a killed writer only the last part of the log tells."""

from pyrocket.errors import StoreDamagedError
from pyrocket.index.queues.dispatcher import queue_rows
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk_all


def ends_in_log(log: CommitLog, start: int, end: int) -> dict[tuple[str, int], int]:
    """Return, by topic and queue id, one past the last queue offset in [start, end) of the log.

    Nothing for a log that cannot be followed: that is for whoever reads it.
    """
    ends: dict[tuple[str, int], int] = {}
    try:
        for run in walk_all(log, start, end):
            run.check_structure()
            for queue, rows in queue_rows(run):
                ends[queue] = int(run.queue_offset[rows[-1]]) + 1
    except (StoreDamagedError, FileNotFoundError):
        return {}
    return ends
