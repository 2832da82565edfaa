"""At which offset a consumer starts to read a queue, and how it continues after an invalid offset.

A queue is consumed from the offset that its group committed. If there is none, `ConsumeFrom`
determines the offset. Source: `RebalancePushImpl.computePullFromWhere`, and the broker's
`ConsumerManageProcessor` and `DefaultMessageStore.getMessage`.
"""

from datetime import datetime
from enum import Enum

from pyrocket.config import parse_duration
from pyrocket.errors import InvalidInputError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.message import QueueOffsets

DEFAULT_TIMESTAMP_AGE_MS = 30 * 60 * 1000
"""By default, `ConsumeFrom.TIMESTAMP` starts half an hour before the consumer was created."""

_IN_MEMORY_PERCENT = 40
_TIMESTAMP_FORMAT = "%Y%m%d%H%M%S"


class ConsumeFrom(str, Enum):
    """The start of a group without committed offsets. Source: `ConsumeFromWhere`."""

    LAST = "last"
    """The end of the queue; RocketMQ's default. See also `offset_of_new_group`."""
    FIRST = "first"
    """The first message that the broker still has."""
    TIMESTAMP = "timestamp"
    """The first message stored at or after a given time."""

    @classmethod
    def _missing_(cls, value: object) -> "ConsumeFrom | None":
        """Return the member for the name of a `ConsumeFromWhere`."""
        return {
            "CONSUME_FROM_LAST_OFFSET": cls.LAST,
            "CONSUME_FROM_FIRST_OFFSET": cls.FIRST,
            "CONSUME_FROM_TIMESTAMP": cls.TIMESTAMP,
        }.get(str(value))


class OffsetQuery(Enum):
    """An offset that the consumer must request from the broker."""

    MAXIMUM = "maximum"
    """The end of the queue."""
    BY_TIMESTAMP = "by timestamp"
    """The offset of the first message stored at or after the consumer's timestamp."""


def start_offset(topic: str, committed: int | None, consume_from: ConsumeFrom) -> int | OffsetQuery:
    """Return the offset at which the consumption of a queue starts, or the query for it.

    `committed` is the offset that the group committed for the queue, as the broker returned it;
    None if there is none. In a retry topic, LAST starts at the first message and TIMESTAMP at the
    end, as in RocketMQ. FIRST starts at 0; the first pull corrects this offset if messages have
    been deleted (see `corrected_offset`).

    >>> start_offset("orders", 7, ConsumeFrom.LAST)
    7
    >>> start_offset("orders", None, ConsumeFrom.LAST)
    <OffsetQuery.MAXIMUM: 'maximum'>
    >>> start_offset("%RETRY%billing", None, ConsumeFrom.LAST)
    0
    """
    if committed is not None:
        return committed
    retries = topic.startswith(RETRY_PREFIX)
    if consume_from is ConsumeFrom.FIRST or (retries and consume_from is ConsumeFrom.LAST):
        return 0
    if retries or consume_from is ConsumeFrom.LAST:
        return OffsetQuery.MAXIMUM
    return OffsetQuery.BY_TIMESTAMP


def offset_of_new_group(minimum: int, log_bytes: int, memory_bytes: int) -> int | None:
    """Return the offset that a RocketMQ 4 broker returns if a group has not committed one.

    The result is 0, as if the group had committed it, if the queue's first message has not been
    deleted and is recent. A new group with `ConsumeFrom.LAST` therefore reads a young queue from
    its first message. Otherwise the result is None.

    `minimum` is the queue's minimum offset. `log_bytes` is the distance in bytes from the queue's
    first message to the end of the log, 0 if the queue is empty. The first message is recent if
    this distance is at most 40 % of the machine's memory, `memory_bytes`. RocketMQ 5 checks instead
    whether the first message is in memory, and returns None for an empty queue.

    >>> offset_of_new_group(0, 1 << 20, 8 << 30), offset_of_new_group(3, 1 << 20, 8 << 30)
    (0, None)
    """
    recent = log_bytes * 100 <= memory_bytes * _IN_MEMORY_PERCENT
    return 0 if minimum <= 0 and recent else None


def corrected_offset(requested: int, available: QueueOffsets) -> int:
    """Return `requested` if it is a valid offset to pull from, otherwise the nearest valid offset.

    An offset before the queue's minimum is corrected to the minimum, an offset after the maximum to
    the maximum. A RocketMQ broker reports the correction with PULL_OFFSET_MOVED, which its clients
    call OFFSET_ILLEGAL. A push consumer then drops the queue with all messages fetched from it,
    commits the corrected offset, and rebalances at once; clients before 5.2 wait ten seconds before
    the commit, and do not rebalance earlier than usual. A pull consumer only continues at the
    corrected offset. Brokers up to 4.9.3 correct an offset after the maximum to 0 if the minimum
    is 0.

    >>> [corrected_offset(offset, QueueOffsets(5, 9)) for offset in (2, 5, 9, 12)]
    [5, 5, 9, 9]
    """
    return min(max(requested, available.minimum), available.maximum)


def consume_timestamp(given: str | datetime | None, now_ms: int) -> int:
    """Return the timestamp of `ConsumeFrom.TIMESTAMP` in epoch milliseconds.

    `given` is a string like "20210701080000" (yyyyMMddHHmmss) in the local time zone, a string like
    "-1h" for a time before `now_ms`, or a datetime. `now_ms` is the current time in epoch
    milliseconds; None stands for half an hour before it, rounded down to seconds. If a local time
    occurs twice, the later one is returned, as in RocketMQ. Raises InvalidInputError
    (CONSUMER_CONFIG).

    >>> consume_timestamp(None, now_ms=1_801_999), consume_timestamp("-30m", now_ms=1_801_999)
    (1000, 1999)
    """
    if given is None:
        return (now_ms - DEFAULT_TIMESTAMP_AGE_MS) // 1000 * 1000
    try:
        if isinstance(given, str):
            ago = parse_duration(given[1:].lower()) if given.startswith("-") else None
            return _parse(given) if ago is None else now_ms - ago
        if isinstance(given, datetime):
            return round(given.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidInputError(
        f"consume_timestamp is {given!r}.",
        remedy="Use a string like '-1h' or '20210701080000' (yyyyMMddHHmmss), or a datetime.",
        code="CONSUMER_CONFIG",
    )


def _parse(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) == len("yyyyMMddHHmmss")):
        raise ValueError
    local = datetime.strptime(text, _TIMESTAMP_FORMAT)  # noqa: DTZ007 (local, as in RocketMQ)
    # When the clocks change, a local time occurs twice or not at all. Java uses the later instant.
    return round(max(local.replace(fold=fold).timestamp() for fold in (0, 1)) * 1000)
