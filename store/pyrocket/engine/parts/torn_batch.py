"""Finds the part of an exactly-once batch at the end of a log that was received from a primary.

A writer publishes a batch as a whole, but a replica receives the records one after the other. A
store of its own must not begin with a part of a batch: its query would take it for the batch.
"""

from contextlib import suppress

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.publish_record import decode_sink_records
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk


def torn_batch(log: CommitLog, queues: QueueTable, end: int) -> int | None:
    """Return the log offset of the batch that continues after `end`, or None."""
    queue = queues.get(SINK_TOPIC, 0)
    last = queue.max_offset(end)
    for entry in queue.entries(max(last - 1, 0), last):
        at = int(entry["physical_offset"])
        with suppress(StoreDamagedError):  # A placeholder, whose batch is not known.
            for run in walk(log, at, at + int(entry["size"])):
                return next(
                    (part.offset for part in decode_sink_records(run) if part.end > end), None
                )
    return None
