"""Detects from queue entries that files of the log or of a queue are missing.

Messages before the first file have expired; messages in any other missing file are lost.
"""

from pyrocket.disk.file_checks import missing_file, wrong_length
from pyrocket.disk.file_queue import FileQueue
from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable

BEGIN_AT_MINIMUM = "Start at the queue's minimum offset."
RESTORE_FROM_BACKUP = "Restore it from a backup; `pyrocket verify` shows what else is missing."


def missing_log_file(queue: ConsumeQueue, log: FileQueue, end: int) -> int | None:
    """Return the start offset of a missing log file that contains the queue's next message.

    `end` is the end of the last existing log file. Returns None if the queue's messages end there,
    too, or if the queue's next entry is invalid because it does not point into the following file.
    """
    ahead = queue.max_offset(end)
    for entry in queue.entries(ahead, ahead + 1):
        files, start = log.starts(), log.start_of(int(entry["physical_offset"]))
        expected = files[-1] + log.file_bytes if files else start
        if entry["size"] > 0 and start == expected:
            return expected
    return None


def no_log_file(log: FileQueue, position: int, where: str) -> PyrocketError:
    """Return the error for a message, described by `where`, whose log file does not exist.

    Returns OffsetOutOfRangeError if the file at log offset `position` has expired, and
    StoreDamagedError (STORE_FILE_MISSING) if it is lost. If the position is negative or after the
    next file of the log, the queue's entry is invalid.
    """
    starts, start = log.starts(), log.start_of(position)
    where = f"{where} (log offset {position})"
    if starts and 0 <= position < starts[0]:
        message = f"the log file with {where} has expired."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if position < 0 or (starts and start > starts[-1] + log.file_bytes):
        message = f"the queue entry of {where} points outside the log."
        return StoreDamagedError(message, remedy=VERIFY_FIRST)
    return missing_file(log, start, RESTORE_FROM_BACKUP, f" with {where}")


def no_entry(queue: ConsumeQueue, offset: int) -> PyrocketError | None:
    """Return the error for an offset without an entry; None if the queue's files are complete.

    Returns OffsetOutOfRangeError if the queue's file has expired, and StoreDamagedError
    (STORE_FILE_…) if it is too short, or missing while a later file exists.
    """
    run, where = queue.run, f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    starts, start = run.starts(), run.start_of(offset * ENTRY_BYTES)
    if starts and start < starts[0]:
        message = f"the messages starting at {where} have expired."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if start in starts:
        return wrong_length(run, start, REBUILD_QUEUES, f", with {where},")
    if starts and start < starts[-1]:
        return missing_file(run, start, REBUILD_QUEUES, f" with {where}")
    return None


def check_queues_end(log: FileQueue, queues: QueueTable, end: int, remedy: str) -> None:
    """Raise StoreDamagedError (STORE_FILE_MISSING) if a queue continues after the log's last file.

    `end` is as in `missing_log_file`. Call this only after a clean shutdown: after a crash a queue
    may be ahead of the log.
    """
    for topic, queue_id in queues.on_disk():
        start = missing_log_file(queues.get(topic, queue_id), log, end)
        if start is not None:
            what = f": queue {queue_id} of {topic!r} continues in it"
            raise missing_file(log, start, remedy, what)
