"""Queue offsets that two messages of the log have: only the later one is in the queue.

That is as it should be where the topic had an earlier life: one that we know to have ended, or that
a broker has ended, which begins at old offsets again. We never do: then the queue had been lost
when they were given.
"""

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import STORE_HOST
from pyrocket.formats.record_decode import decode_record
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog
from pyrocket.tools.verify.finding import Findings, Severity

GIVEN_TWICE = (
    "The log still has them: read them as Store.views shows it (commitlog), and send again what is"
    " missed. No repair brings them back into the queue. Where a RocketMQ broker has deleted the"
    " topic in between, nothing has to be done."
)


def report_superseded(
    findings: Findings, file: str, position: int, at: int, count: int, *, twice: bool
) -> None:
    """Add that later messages have the offsets, from `at` on, of `count` others."""
    if twice:
        what = f"{count} messages are in no queue: offsets from {at} on were given twice."
        findings.add("QUEUE_OFFSETS_TWICE", Severity.ERROR, file, what, GIVEN_TWICE, position)
        return
    what = f"{count} messages before offset {at} are of an older topic of this name."
    fix = "Nothing has to be done."
    findings.add("QUEUE_SUPERSEDED", Severity.NOTE, file, what, fix, position)


def is_of_a_broker(log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a RocketMQ broker has stored the message that the queue has at an offset."""
    for entry in queue.entries(offset, offset + 1):
        place, size = int(entry["physical_offset"]), int(entry["size"])
        if place < 0 or not 0 < size <= log.file_bytes:
            return False
        try:
            return decode_record(log.read(place, size), verify_crc=False).store_host != STORE_HOST
        except (StoreDamagedError, OSError):
            return False
    return False
