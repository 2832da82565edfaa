"""Derives the delay levels of a broker's store from its queue entries.

RocketMQ does not store its setting `messageDelayLevel`, which may change with a restart. But the
queue entry of a message of a delay level contains its due time: the store time plus the delay of
its level.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import numpy as np

from pyrocket.base.config import DELAY_LEVELS, MAX_DELAY_LEVELS, parse_delay_levels
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.properties import DELAY, decode_properties
from pyrocket.formats.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK_SIZE, Entries
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable
from pyrocket.log.commit_log import CommitLog

_MAX_ENTRIES = 32
"""Number of entries read from the end of a queue."""

_SECOND = 1000


def learn_delay_levels(layout: Layout, log_file_bytes: int, queue_file_bytes: int) -> str | None:
    """Return the delay levels of the newest entries as a string; None for RocketMQ's defaults.

    If a level's queue has several entries, the last two must have the same delay; otherwise the
    level has RocketMQ's default.
    """
    run = FileQueue(layout.commit_log, log_file_bytes, layout.scratch, writable=False)
    log, queues = CommitLog(run), QueueTable(layout, queue_file_bytes, writable=False)
    known = list(parse_delay_levels(DELAY_LEVELS))
    before = tuple(known)
    with closing(queues), closing(run):
        for queue_id in range(MAX_DELAY_LEVELS):
            with suppress(StoreDamagedError, OSError):
                delay = _agreed(log, queues.get(SCHEDULE_TOPIC, queue_id))
                if delay:
                    # Unknown levels in between get the delay of the last known level.
                    known += known[-1:] * (queue_id + 1 - len(known))
                    known[queue_id] = delay
    return None if tuple(known) == before else " ".join(f"{ms // _SECOND}s" for ms in known)


def _agreed(log: CommitLog, queue: ConsumeQueue) -> int:
    """Return the delay of a level queue's last entries in ms; 0 if they differ or are missing."""
    if not queue.run.starts():
        return 0
    last = list(_delays(log, queue, used_entries(queue, queue.run.starts()[-1:])[-_MAX_ENTRIES:]))
    if not last or (len(last) > 1 and last[-1] != last[-2]):
        return 0
    return last[-1] if last[-1] > 0 and last[-1] % _SECOND == 0 else 0


def used_entries(queue: ConsumeQueue, starts: Sequence[int]) -> Entries:
    """Return the entries of messages in the files with these start offsets."""
    per_file = queue.run.file_bytes // ENTRY_BYTES
    firsts = [start // ENTRY_BYTES for start in starts]
    entries = [queue.entries(first, first + per_file) for first in firsts]
    joined = np.concatenate([np.zeros(0, ENTRY), *entries])
    return joined[(joined["size"] != 0) & (joined["size"] != PRE_BLANK_SIZE)]


def _delays(log: CommitLog, queue: ConsumeQueue, entries: Entries) -> Iterator[int]:
    """Yield the delays of the entries whose messages have the queue's level."""
    for entry in entries:
        place, size = int(entry["physical_offset"]), int(entry["size"])
        if place < log.first_offset() or not 0 < size <= log.file_bytes:
            continue
        with suppress(StoreDamagedError, OSError):
            record = decode_record(log.read(place, size))
            level = decode_properties(record.properties).get(DELAY)
            if record.topic == SCHEDULE_TOPIC and level == str(queue.queue_id + 1):
                yield int(entry["tags_code"]) - record.store_timestamp
