"""What the delay levels of a store wait, where nothing but its queue entries says so.

An entry of a message by delay level says when the message is due, by the levels of the broker that
stored it. RocketMQ keeps its `messageDelayLevel` nowhere else, and it may be changed at a restart.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from pyrocket.config import DELAY_LEVELS, MAX_DELAY_LEVELS, parse_delay_levels
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.properties import DELAY, decode_properties
from pyrocket.formats.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK_SIZE, Entries
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.queue_table import Queues
from pyrocket.log.commit_log import CommitLog

_LOOKED_AT = 32
"""Entries at the end of a queue that are looked at."""

_SECOND = 1000


def learn_delay_levels(layout: Layout, log_file_bytes: int, queue_file_bytes: int) -> str | None:
    """Return the levels as the newest entries have them, as text; None if they are RocketMQ's.

    A level counts that the last entries of its queue agree on, at least two of them unless there
    is only one; the others are RocketMQ's.
    """
    run = FileQueue(layout.commit_log, log_file_bytes, layout.scratch, writable=False)
    log, queues = CommitLog(run), Queues(layout, queue_file_bytes, writable=False)
    known = list(parse_delay_levels(DELAY_LEVELS))
    before = tuple(known)
    try:
        for queue_id in range(MAX_DELAY_LEVELS):
            with suppress(StoreDamagedError, OSError):
                delay = _agreed(log, queues.get(SCHEDULE_TOPIC, queue_id))
                if delay:
                    # Levels between that nothing is known of wait as long as the last one.
                    known += known[-1:] * (queue_id + 1 - len(known))
                    known[queue_id] = delay
    finally:
        queues.close()
        run.close()
    return None if tuple(known) == before else " ".join(f"{ms // _SECOND}s" for ms in known)


def _agreed(log: CommitLog, queue: ConsumeQueue) -> int:
    """Return the delay of a level queue's last entries, ms; 0 if they do not agree."""
    if not queue.run.starts():
        return 0
    last = list(_delays(log, queue, used_entries(queue, queue.run.starts()[-1:])[-_LOOKED_AT:]))
    if not last or (len(last) > 1 and last[-1] != last[-2]):
        return 0
    return last[-1] if last[-1] > 0 and last[-1] % _SECOND == 0 else 0


def used_entries(queue: ConsumeQueue, starts: Sequence[int]) -> Entries:
    """Return the entries of messages in the files that begin there, also behind missing ones."""
    per_file = queue.run.file_bytes // ENTRY_BYTES
    firsts = [start // ENTRY_BYTES for start in starts]
    entries = [queue.entries(first, first + per_file) for first in firsts]
    found = np.concatenate([np.zeros(0, ENTRY), *entries])
    return found[(found["size"] != 0) & (found["size"] != PRE_BLANK_SIZE)]


def _delays(log: CommitLog, queue: ConsumeQueue, entries: Entries) -> Iterator[int]:
    """Yield the delays of those entries whose messages are of the queue's level."""
    for entry in entries:
        place, size = int(entry["physical_offset"]), int(entry["size"])
        if place < log.first_offset() or not 0 < size <= log.file_bytes:
            continue
        with suppress(StoreDamagedError, OSError):
            record = decode_record(log.read(place, size))
            level = decode_properties(record.properties).get(DELAY)
            if record.topic == SCHEDULE_TOPIC and level == str(queue.queue_id + 1):
                yield int(entry["tags_code"]) - record.store_timestamp
