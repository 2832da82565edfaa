"""Log files that are gone from the log's end, as the queues tell: they go on in them."""

from pyrocket.disk.file_run import FileRun
from pyrocket.index.consume_queue import ConsumeQueue


def lost_file(queue: ConsumeQueue, log: FileRun, end: int) -> int | None:
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
