"""After a clean end log and queues agree: a queue tells if the log's last file is missing."""

from pyrocket.disk.layout import file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.index.queues.missing_files import missing_log_file
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog


def check_no_file_missing(log: CommitLog, queues: QueueTable, end: int) -> None:
    """Raise StoreDamagedError if a queue goes on in the file that would be the log's next."""
    for topic, queue_id in queues.on_disk():
        gone = missing_log_file(queues.get(topic, queue_id), log.run, end)
        if gone is None:
            continue
        folder, name = log.run.folder, file_name(gone)
        is_there = (folder / name).exists()
        what = f"{folder / name} is empty" if is_there else f"{folder} lacks the file {name}"
        raise StoreDamagedError(
            f"{what}: queue {queue_id} of {topic!r} goes on in it.",
            remedy="Restore it from a backup; nothing has been changed. To give up what it"
            " held, make an empty file `abort` in the store.",
            code="STORE_FILE_MISSING",
        )
