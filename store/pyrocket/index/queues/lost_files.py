"""Files of the log and of queues that are not where a reader, or the queues, look for them.

Cleaning removes files from the first on, so the folder tells afterwards: what lay before the file
that is now the first was cleaned away, and what did not is lost.
"""

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name
from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.queues.consume_queue import ConsumeQueue

BEGIN_AT_MINIMUM = "Begin at the queue's minimum offset."
FROM_A_BACKUP = "Restore it from a backup; `pyrocket verify` says what else is missing."


def lost_file(queue: ConsumeQueue, log: FileQueue, end: int) -> int | None:
    """Return where the log file begins that is missing, and holds the queue's next message.

    `end` is where the log ends as far as it is there. None if the queue ends there, too; what
    points elsewhere than into the very next file is no message's entry.
    """
    ahead = queue.max_offset(end)
    for entry in queue.entries(ahead, ahead + 1):
        files, place = log.starts(), log.start_of(int(entry["physical_offset"]))
        gone = files[-1] + log.file_bytes if files else place
        if entry["size"] > 0 and place == gone:
            return gone
    return None


def no_log_file(log: FileQueue, position: int, where: str) -> PyrocketError:
    """Return the error of who found no file at log offset `position`, of the message `where`.

    OffsetOutOfRangeError if it was cleaned away. StoreDamagedError (STORE_FILE_MISSING) if it is
    lost; what points before 0, or beyond the file behind the last one, is no message's entry.
    """
    starts, start = log.starts(), log.start_of(position)
    where = f"{where} (log offset {position})"
    if starts and 0 <= position < starts[0]:
        message = f"the log file with {where} was cleaned away."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if position < 0 or (starts and start > starts[-1] + log.file_bytes):
        message = f"the entry of {where} points to no place in the log."
        return StoreDamagedError(message, remedy=VERIFY_FIRST)
    return lacks_file(log, start, FROM_A_BACKUP, f" with {where}")


def no_entry(queue: ConsumeQueue, offset: int) -> PyrocketError | None:
    """Return the error of who found no entry at an offset of a queue; None if no file tells.

    OffsetOutOfRangeError if the queue's file was cleaned away, StoreDamagedError (STORE_FILE_…) if
    it is missing before another one, or cut short.
    """
    run, where = queue.run, f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    starts, start = run.starts(), run.start_of(offset * ENTRY_BYTES)
    if starts and start < starts[0]:
        message = f"the messages from {where} on were cleaned away."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if start in starts:
        return wrong_length(run, start, REBUILD_QUEUES, f", with {where},")
    if starts and start < starts[-1]:
        return lacks_file(run, start, REBUILD_QUEUES, f" with {where}")
    return None


def lacks_file(run: FileQueue, start: int, remedy: str, what: str = "") -> StoreDamagedError:
    """Return the error that names a file that is not there (STORE_FILE_MISSING)."""
    message = f"{run.folder} lacks the file {file_name(start)}{what}."
    return StoreDamagedError(message, remedy=remedy, code="STORE_FILE_MISSING")


def wrong_length(
    run: FileQueue, start: int, remedy: str, what: str = ""
) -> StoreDamagedError | None:
    """Return the error that names a file that is short or long (STORE_FILE_LENGTH), or None.

    Raises FileNotFoundError.
    """
    path = run.folder / file_name(start)
    size = path.stat().st_size
    if size == run.file_bytes:
        return None
    message = f"{path}{what} has {size} bytes, not {run.file_bytes}."
    return StoreDamagedError(message, remedy=remedy, code="STORE_FILE_LENGTH")
