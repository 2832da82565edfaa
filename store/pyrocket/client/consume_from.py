"""Where a group starts to consume a topic.

`ConsumeFrom` determines the start once for each topic and broker, at the first contact of the group
with the topic: messages that are stored later are consumed, whenever their queues are created or a
member takes them. RocketMQ determines the start of each queue when a member takes it without a
committed offset, so that it can skip messages. The retry topic of a group is always consumed from
its first message.

Source: `RebalancePushImpl.computePullFromWhere`.
"""

from datetime import datetime
from enum import Enum

from pyrocket.base.config import parse_duration
from pyrocket.errors import InvalidInputError

DEFAULT_TIMESTAMP_AGE_MS = 30 * 60 * 1000
"""By default, `ConsumeFrom.TIMESTAMP` starts half an hour before the consumer was created."""

_TIMESTAMP_FORMAT = "%Y%m%d%H%M%S"


class ConsumeFrom(str, Enum):
    """The start of a group in a topic, at its first contact with it. Source: `ConsumeFromWhere`."""

    LAST = "last"
    """The messages that are stored from now on; RocketMQ's default."""
    FIRST = "first"
    """All messages that the broker still has."""
    TIMESTAMP = "timestamp"
    """The messages stored at or after a given time."""

    @classmethod
    def _missing_(cls, value: object) -> "ConsumeFrom | None":
        """Return the member for the name of a `ConsumeFromWhere`."""
        return {
            "CONSUME_FROM_LAST_OFFSET": cls.LAST,
            "CONSUME_FROM_FIRST_OFFSET": cls.FIRST,
            "CONSUME_FROM_TIMESTAMP": cls.TIMESTAMP,
        }.get(str(value))


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
