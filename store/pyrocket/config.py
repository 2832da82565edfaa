"""Every knob of a store, its unit and its default."""

from dataclasses import dataclass, replace
from typing import Any

from pyrocket.errors import OptionError

MAX_BODY_BYTES = 4 * 1024 * 1024
"""RocketMQ's maxMessageSize: the longest body as stored."""

MAX_PROPERTIES_BYTES = 32767
"""The properties block has a signed 16-bit length."""

COMPRESS_BODY_FROM_BYTES = 4096
"""Bodies of at least this many bytes are deflated, as RocketMQ's clients do."""

COMPRESS_LEVEL = 5

_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000

DELAY_LEVELS_MS = (
    *(_SECOND * count for count in (1, 5, 10, 30)),
    *(_MINUTE * count for count in (*range(1, 11), 20, 30)),
    *(_HOUR * count for count in (1, 2)),
)
"""RocketMQ's messageDelayLevel: what level 1, 2, … waits. Higher levels mean the last one."""

MAX_QUEUES = 1024
"""The most queues a topic may have: RocketMQ itself sets no bound, file systems do."""

DEFAULT_QUEUES = 4
"""Queues of a topic that is created by its first send, as RocketMQ does it."""

_ENTRY_BYTES = 20
_FLUSH = ("async", "sync")


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Sizes are fixed when a directory is created; the rest is free at each open.

    log_file_bytes: size of each CommitLog file.
    queue_file_entries: entries of 20 bytes in each ConsumeQueue file.
    broker_name: kept in the directory, so that offsets survive a move of host.
    auto_create_topics: whether the first send to an unknown topic creates it.
    default_queues: its read and write queues then.
    flush: "sync" returns from an append only when it is durable, "async" leaves that to
        `Store.flush` and `Store.close`.
    lock_timeout_ms: how long to wait for a turn to append.
    """

    log_file_bytes: int = 1024 * 1024 * 1024
    queue_file_entries: int = 300_000
    broker_name: str = "broker-a"
    auto_create_topics: bool = True
    default_queues: int = DEFAULT_QUEUES
    flush: str = "async"
    lock_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.flush not in _FLUSH:
            raise OptionError(f"flush is {self.flush!r}.", remedy=f"Use one of {_FLUSH}.")
        # A window of the log is mapped at multiples of the page size; an int32 counts in a file.
        if not 4096 <= self.log_file_bytes < 2**31 or self.log_file_bytes % 4096:
            raise OptionError(
                f"log_file_bytes is {self.log_file_bytes}.",
                remedy="Use a multiple of 4096 below 2 GiB.",
            )
        if not 1 <= self.queue_file_entries < 2**31 // _ENTRY_BYTES:
            raise OptionError(f"queue_file_entries is {self.queue_file_entries}.")
        if not 1 <= self.default_queues <= MAX_QUEUES:
            raise OptionError(
                f"default_queues is {self.default_queues}.", remedy=f"Use 1 to {MAX_QUEUES}."
            )

    @property
    def queue_file_bytes(self) -> int:
        """Size of each ConsumeQueue file."""
        return self.queue_file_entries * _ENTRY_BYTES

    def with_sizes(self, **sizes: Any) -> "StoreConfig":
        """Return this configuration with the sizes that an existing directory dictates."""
        return replace(self, **sizes)
