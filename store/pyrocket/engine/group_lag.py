"""The lag of consumer groups: the messages of a queue that a group has not consumed."""

from collections.abc import Iterator, Mapping

from pyrocket.engine.group_starts import EARLIEST, first_offset
from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.metadata.groups import Offsets
from pyrocket.values.admin import GroupLag
from pyrocket.values.consuming import GroupStart


def positions(
    reader: Reader,
    offsets: Mapping[tuple[str, str], Offsets],
    starts: Mapping[str, Mapping[str, GroupStart]],
    group: str = "",
) -> Iterator[GroupLag]:
    """Yield the lags of a group, or of all groups, without delays, by group, topic and queue.

    offsets: The committed offsets by (topic, group).
    starts: Where groups start in queues without a committed offset, by group and topic.
    """
    queues = all_queues(reader)
    places = {*offsets, *((topic, name) for name in starts for topic in starts[name])}
    wanted = [key for key in places if group in ("", key[1])]
    for topic, name in sorted(wanted, key=lambda key: (key[1], key[0])):
        committed = offsets.get((topic, name), {})
        start = starts.get(name, {}).get(topic, EARLIEST)
        for queue_id in sorted({*queues.get(topic, ()), *committed}):
            has = reader.system_offsets(topic, queue_id)
            at = committed.get(queue_id)
            first = first_offset(reader, topic, queue_id, start) if at is None else 0
            yield GroupLag(name, topic, queue_id, at, has.minimum, has.maximum, first=first)


def all_queues(reader: Reader) -> dict[str, list[int]]:
    """Return the queue ids of each topic: queues in the topic table, and queues that have files."""
    queues = {name: set(range(topic.read_queues)) for name, topic in reader.topics.all().items()}
    for name, queue_id in reader.queues_on_disk():
        queues.setdefault(name, set()).add(queue_id)
    return {name: sorted(ids) for name, ids in sorted(queues.items())}


def delay_ms(reader: Reader, one: GroupLag, now_ms: int) -> int:
    """Return the age of the first message of a lag; 0 if there is none, or if it is corrupt."""
    if not one.lag:
        return 0
    try:
        return max(now_ms - reader.store_time(one.topic, one.queue_id, one.start), 0)
    except (OffsetOutOfRangeError, StoreDamagedError):
        return 0
