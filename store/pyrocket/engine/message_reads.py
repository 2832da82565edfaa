"""Iterating over the messages of a topic: `Store.messages`."""

from collections.abc import Iterator, Mapping

from pyrocket.arguments import check_numbers, check_place
from pyrocket.engine.reader import Reader
from pyrocket.errors import InvalidInputError
from pyrocket.message import QueueOffsets, StoredMessage
from pyrocket.metadata.topics import TopicConfig

_PULL_MESSAGES, _PULL_BYTES = 1024, 4 << 20
"""In memory at a time at most, except one larger message."""


def iterate_messages(
    reader: Reader, topic: TopicConfig, queue_id: int | None, start: int | None, end: int | None
) -> Iterator[StoredMessage]:
    """Return an iterator over all queues, or [start, end) of one; the range is checked at once."""
    if queue_id is None:
        if start is not None or end is not None:
            raise InvalidInputError(
                f"start is {start} and end is {end}, but no queue is named.",
                remedy="Offsets count in one queue: give its queue_id, too.",
                code="QUEUE_MISSING",
            )
        return _messages(reader, topic, reader.offsets(topic))
    check_place(topic.name, queue_id)
    known = reader.system_offsets(topic.name, queue_id)
    first = known.minimum if start is None else start
    last = known.maximum if end is None else end
    check_numbers(start=first, end=last)
    reader.check_range(topic, queue_id, first, last)
    return _messages(reader, topic, {queue_id: QueueOffsets(first, last)})


def _messages(
    reader: Reader, topic: TopicConfig, ranges: Mapping[int, QueueOffsets]
) -> Iterator[StoredMessage]:
    for queue_id, has in ranges.items():
        offset = has.minimum
        while offset < has.maximum:
            last = min(has.maximum, offset + _PULL_MESSAGES)
            cuts = reader.cut_by_bytes(topic.name, queue_id, offset, last, [_PULL_BYTES])
            # A message larger than that is read alone.
            count = max(cuts[0][0] - offset, 1)
            yield from reader.read(topic, queue_id, offset, count)
            offset += count
