"""After a clean end log and queues agree: what a queue has behind the log's end was a message."""

from pyrocket.disk.layout import file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.index.lost_files import lost_file
from pyrocket.index.queues import Queues
from pyrocket.log.commit_log import CommitLog


def check_no_entry_behind(log: CommitLog, queues: Queues, end: int) -> None:
    """Raise StoreDamagedError if a queue has an entry for something behind the log's end.

    After a clean end queues and log agree, so it was a message, and what follows it may be.
    """
    for topic, queue_id in queues.on_disk():
        _check_no_file_missing(log, queues.get(topic, queue_id), end)
        last = queues.get(topic, queue_id).last_entry()
        if last and last[0] + last[1] > end and _is_written(log, *last):
            raise StoreDamagedError(
                f"corrupt log: the record at {end} is damaged, but queue {queue_id} of"
                f" {topic!r} goes on until {last[0]}.",
                remedy="Restore the log from a backup; nothing has been changed. To give up"
                " what follows the damage, make an empty file `abort` in the store.",
            )


def _check_no_file_missing(log: CommitLog, queue: ConsumeQueue, end: int) -> None:
    """Raise StoreDamagedError if the queue goes on in the file that would be the log's next."""
    gone = lost_file(queue, log.run, end)
    if gone is None:
        return
    folder, name = log.run.folder, file_name(gone)
    is_there = (folder / name).exists()
    what = f"{folder / name} is empty" if is_there else f"{folder} lacks the file {name}"
    raise StoreDamagedError(
        f"{what}: queue {queue.queue_id} of {queue.topic!r} goes on in it.",
        remedy="Restore it from a backup; nothing has been changed. To give up what it"
        " held, make an empty file `abort` in the store.",
        code="STORE_FILE_MISSING",
    )


def _is_written(log: CommitLog, offset: int, size: int) -> bool:
    if offset % log.file_bytes + size > log.file_bytes:
        return False
    try:
        return bool(log.read(offset, size).strip(b"\0"))
    except FileNotFoundError:
        return False
