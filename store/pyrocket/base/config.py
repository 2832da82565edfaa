"""The settings of a store with units and defaults, and the parsers of durations and hours.

Durations: `10m`, `2h30m`, `1d`, `90s`, `500ms`, larger units first. Delay levels:
`1s 5s 10s 30s 1m …`, RocketMQ's messageDelayLevel, one unit each
(`ScheduleMessageService.parseDelayLevel`).
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyrocket.base.arguments import LONGEST_MS, check_amount, check_whole, is_whole
from pyrocket.errors import OptionError

_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,10}}){unit})?" for unit in _MS))
_LEVEL = re.compile("([0-9]{1,10})([smhd])")
MAX_DELAY_LEVELS = 64
"""The maximum number of delay levels, and so of level queues and of their cursors."""


def parse_duration(text: str) -> int | None:
    """Return a duration such as `2h30m` in milliseconds; None if it is invalid."""
    match = _DURATION.fullmatch(text)
    if not text or not match:
        return None
    return sum(int(count or 0) * ms for count, ms in zip(match.groups(), _MS.values(), strict=True))


def parse_hours(text: str) -> tuple[int, ...]:
    """Return hours of the day, such as `4` or `4,16`, sorted. Raises ValueError."""
    hours = [hour.strip() for hour in text.replace(";", ",").split(",")]
    if not all(hour.isascii() and hour.isdigit() and int(hour) < 24 for hour in hours):
        raise ValueError(text)
    return tuple(sorted({int(hour) for hour in hours}))


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of level 1, 2, … Raises OptionError (DELAY_LEVELS)."""
    levels = [_LEVEL.fullmatch(word) for word in text.split()]
    if not 1 <= len(levels) <= MAX_DELAY_LEVELS or None in levels:
        raise OptionError(
            f"delay_levels is {text!r}.",
            remedy=f"Use 1 to {MAX_DELAY_LEVELS} delays, each a whole number and s, m, h or d, such"
            " as '1s 5s 10s 30s 1m'.",
            code="DELAY_LEVELS",
        )
    return tuple(int(level[1]) * _MS[level[2]] for level in levels if level)


MAX_BODY_BYTES = 4 * 1024 * 1024
"""The maximum length of a body as stored; RocketMQ's default of maxMessageSize."""

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's messageDelayLevel: the delays of level 1, 2, …; higher levels use the last delay."""

MAX_QUEUES = 1024
"""The maximum number of queues of a topic: RocketMQ sets no limit, but file systems do."""

DEFAULT_QUEUES = 4
"""The queues of a topic that is created by its first send, as in RocketMQ."""

_ENTRY_BYTES = 20
_INDEX_HEADER = 40
_FLUSH = ("async", "sync", "manual")
_RANGES = {
    "queue_file_entries": (1, 2**31 // _ENTRY_BYTES - 1),
    "default_queues": (1, MAX_QUEUES),
    "flush_interval_ms": (1, LONGEST_MS),
    "flush_least_pages": (0, 2**63 - 1),
    "flush_thorough_interval_ms": (1, LONGEST_MS),
    "flush_timeout_ms": (1, LONGEST_MS),
    "lock_timeout_ms": (0, LONGEST_MS),
    "max_message_bytes": (1, MAX_BODY_BYTES),
    "timer_max_delay_ms": (0, 2**63 - 1),
}


def is_log_file_size(size: int) -> bool:
    """Whether `size` is a valid size of log files.

    Parts of the log are mapped at multiples of the page size, and positions in a file are int32.
    """
    return 4096 <= size < 2**31 and size % 4096 == 0


def is_queue_file_size(size: int) -> bool:
    """Whether `size` is a valid size of ConsumeQueue files: no entry may span two files."""
    return 0 < size < 2**31 - _ENTRY_BYTES and size % _ENTRY_BYTES == 0


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The rules for deleting old messages; the defaults are RocketMQ's.

    Only whole log files are deleted, and never the last one.

    hours: files whose last message is older are expired; None: files never expire. at_hours: the
    hours of the day (local time; RocketMQ's deleteWhen) when expired files are deleted.
    clean_ratio: while the disk is fuller, expired files are deleted at any hour. total_bytes: the
    oldest files are deleted, at any hour, while the log is larger. force_ratio: while the disk is
    fuller, the oldest files are deleted regardless of their age. full_ratio: while the disk is
    fuller, appends are refused with DISK_FULL. files_per_run: the maximum number of files deleted
    in one run, about every ten seconds.
    """

    hours: float | None = 72
    at_hours: tuple[int, ...] = (4,)
    total_bytes: int | None = None
    clean_ratio: float = 0.75
    force_ratio: float = 0.85
    full_ratio: float = 0.90
    files_per_run: int = 10

    def __post_init__(self) -> None:
        check_amount("hours", 0 if self.hours is None else self.hours)
        check_amount("total_bytes", 0 if self.total_bytes is None else self.total_bytes)
        check_whole("files_per_run", self.files_per_run, 1)
        for name in ("clean_ratio", "force_ratio", "full_ratio"):
            check_amount(name, getattr(self, name))
        if not set(self.at_hours) <= set(range(24)):
            raise OptionError(f"at_hours is {self.at_hours}.", remedy="Use hours from 0 to 23.")
        if not 0 <= self.clean_ratio <= self.force_ratio <= self.full_ratio <= 1:
            raise OptionError(
                f"{self} has ratios out of order.",
                remedy="Use 0 ≤ clean_ratio ≤ force_ratio ≤ full_ratio ≤ 1.",
            )


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Settings of a store. Sizes and broker_name are fixed when its directory is created.

    Other settings may change at each open. Sizes or a broker_name that differ from those of an
    existing directory are ignored, with a warning unless they are the defaults.

    log_file_bytes: size of each CommitLog file. queue_file_entries: entries of 20 bytes in each
    ConsumeQueue file. index_slots, index_items: of each key index file; RocketMQ's maxHashSlotNum
    and maxIndexNum. key_index: whether this process builds the index. Without the index
    `Store.lookup.query` searches the part of the log that is not indexed: the result is the same,
    but the query is slow. dir_mode: permissions of a new store's directory, such as 0o2770; None:
    the permissions that the umask allows. With the set-group-id bit (0o2000), the directory's group
    has the same permissions for everything in it, regardless of the creator and the umask.
    broker_name: saved in the directory, so that offsets stay valid when the directory moves to
    another host. property_crc: whether records get a second checksum, which also covers header,
    topic and properties, as with RocketMQ 5's enabledAppendPropCRC. It takes 20 bytes and about 0.4
    us per record. The setting and the log ranges written with it are saved in the directory; the
    setting applies to all writers. None keeps the saved setting, initially False. A record in such
    a range is damaged if its second checksum is missing or does not match. auto_create_topics:
    whether the first send to an unknown topic creates it. default_queues: the read and write queues
    of a topic created this way. flush: with "sync" an append returns when its messages are durable;
    with "async" a thread flushes it soon after; with "manual" only `Store.flush` and `Store.close`
    flush. flush_interval_ms: how often the thread checks; it flushes if flush_least_pages (4096
    bytes each) are dirty, and any dirty page after flush_thorough_interval_ms. flush_timeout_ms:
    how long a "sync" append waits for fsyncs by other writers before it returns the status
    FLUSH_DISK_TIMEOUT: the message is stored but may not be durable. lock_timeout_ms: how long to
    wait for the write lock. exclusive: whether other processes are prevented from opening the store
    for writing, as for a broker; readers are not affected. delay_levels: RocketMQ's
    messageDelayLevel, fixed when a directory is created; different levels are rejected later. None:
    the levels saved in the directory, or RocketMQ's 18 levels for a new directory.
    timer_max_delay_ms: the maximum delay of a timer message when it is sent. max_message_bytes:
    RocketMQ's maxMessageSize, the maximum length of a body, at most 4 MiB. retention: how long
    messages are kept. If given when a directory is created, it is saved there and applied by every
    writer (`Store.set_retention` changes it); without a retention no message is deleted until
    `Store.clean` is called. If given for an existing directory, it overrides the saved one in this
    process.
    """

    log_file_bytes: int = 1024 * 1024 * 1024
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_items: int = 20_000_000
    key_index: bool = True
    dir_mode: int | None = None
    broker_name: str = "broker-a"
    property_crc: bool | None = None
    auto_create_topics: bool = True
    default_queues: int = DEFAULT_QUEUES
    flush: str = "async"
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    flush_timeout_ms: int = 5000
    lock_timeout_ms: int = 30_000
    exclusive: bool = False
    delay_levels: str | None = None
    timer_max_delay_ms: int = 40 * 86_400_000
    max_message_bytes: int = MAX_BODY_BYTES
    retention: Retention | None = None

    def __post_init__(self) -> None:
        if self.flush not in _FLUSH:
            raise OptionError(f"flush is {self.flush!r}.", remedy=f"Use one of {_FLUSH}.")
        for name, (least, most) in _RANGES.items():
            check_whole(name, getattr(self, name), least, most)
        self._check_sizes()
        if not isinstance(self.property_crc, bool | None):
            raise OptionError(
                f"property_crc is {self.property_crc!r}.", remedy="Use True, False or None."
            )
        parse_delay_levels(self.delay_levels_text)
        mode = self.dir_mode
        if mode is not None and not (is_whole(mode) and mode & ~0o6077 == 0o700):
            raise OptionError(
                f"dir_mode is {oct(mode) if is_whole(mode, -(2**63)) else mode!r}.",
                remedy="Use permissions such as 0o2770 or 0o750: the owner's have to be 7.",
            )

    def _check_sizes(self) -> None:
        size, slots, items = self.log_file_bytes, self.index_slots, self.index_items
        if not (is_whole(size) and is_log_file_size(size)):
            raise OptionError(
                f"log_file_bytes is {size!r}.", remedy="Use a multiple of 4096 below 2 GiB."
            )
        fits = is_whole(slots, 1) and is_whole(items, 2)
        if not fits or _INDEX_HEADER + 4 * slots + 20 * items >= 2**31:
            raise OptionError(
                f"index_slots is {slots!r}, index_items is {items!r}.",
                remedy="Use at least 1 and 2; a file takes 4 and 20 bytes each, below 2 GiB.",
            )

    @property
    def queue_file_bytes(self) -> int:
        """Size of each ConsumeQueue file."""
        return self.queue_file_entries * _ENTRY_BYTES

    @property
    def delay_levels_text(self) -> str:
        """The delay levels in effect; RocketMQ's by default."""
        return DELAY_LEVELS if self.delay_levels is None else self.delay_levels

    @cached_property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of level 1, 2, … in ms."""
        return parse_delay_levels(self.delay_levels_text)

    def with_sizes(self, **sizes: Any) -> "StoreConfig":
        """Return this configuration with the fixed values of an existing directory."""
        return replace(self, **sizes)
