"""The limits of a micro-batch, and how a read is split into tasks."""

from dataclasses import dataclass, replace

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import (
    READS,
    SIZE,
    STREAM,
    WHOLE,
    Kind,
    Option,
    OptionReader,
    boolean,
    conflict,
    duration,
)

_MAX_ROWS, _MAX_BYTES = "maxOffsetsPerTrigger", "maxBytesPerTrigger"
_MIN_ROWS, _MAX_DELAY = "minOffsetsPerTrigger", "maxTriggerDelay"

DEFAULT_BYTES = 256 << 20
"""The default of maxBytesPerTrigger: without a limit, the first micro-batch would read the whole
backlog, which may not fit into memory.
"""

DEFAULT_DELAY_MS = 15 * 60_000


def _limit(kind: Kind[int | None]) -> Kind[int | None]:
    """Return the kind extended by `none`, `unlimited` and 0, which mean no limit."""

    def parse(option: str, text: str) -> int | None:
        is_lifted = text.lower() in ("none", "unlimited") or set(text) == {"0"}
        return None if is_lifted else kind.parse(option, text)

    return replace(kind, parse=parse)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """The limits of a micro-batch; None: no limit.

    max_rows, max_bytes: maximum messages, and bytes of the log; `by_default`: neither was given.
    min_rows: the number of messages to wait for, at most until `max_delay_ms` after the previous
    micro-batch.
    """

    max_rows: int | None = Option(
        _MAX_ROWS,
        (STREAM,),
        _limit(WHOLE),
        "Maximum number of messages in a micro-batch, shared between queues in proportion to "
        "their backlogs; every queue with messages contributes at least one.",
    ).field()
    max_bytes: int | None = Option(
        _MAX_BYTES,
        (STREAM,),
        _limit(SIZE),
        "Maximum bytes of the log in a micro-batch, such as `64m`, shared between queues in "
        "proportion to their backlogs; every queue with messages contributes at least one, "
        "however long. The limit is in stored bytes; compressed bodies take more memory. With "
        "both limits, the smaller one applies. `none`, `unlimited` or `0` removes a limit, "
        "including the default.",
        default="`256m`; `none` with `maxOffsetsPerTrigger`",
    ).field()
    by_default: bool = False
    min_rows: int | None = Option(
        _MIN_ROWS,
        (STREAM,),
        WHOLE,
        "Delay a micro-batch until this many messages have arrived, or `maxTriggerDelay` has "
        "passed since the last micro-batch. `Trigger.AvailableNow` and `Once` are not delayed.",
    ).field()
    max_delay_ms: int = Option(
        _MAX_DELAY,
        (STREAM,),
        duration(DEFAULT_DELAY_MS, "`15m`"),
        "With `minOffsetsPerTrigger`: the longest delay.",
    ).field()

    @classmethod
    def parse(cls, given: OptionReader) -> "Admission":
        """Read the limits of a stream; a batch has none."""
        limits = cls(**given.read_fields(cls))
        if limits.min_rows and limits.max_rows and limits.min_rows > limits.max_rows:
            raise conflict(
                f"{_MIN_ROWS!r} is {limits.min_rows}, but {_MAX_ROWS!r} is {limits.max_rows}.",
                "A micro-batch cannot wait for more messages than it may read: lower "
                f"{_MIN_ROWS!r}.",
            )
        if _MAX_DELAY in given and limits.min_rows is None:
            raise OptionError(
                f"{_MAX_DELAY!r} is given without {_MIN_ROWS!r}, so nothing is delayed.",
                remedy=f"Set {_MIN_ROWS!r}, or remove {_MAX_DELAY!r}.",
                code="OPTION_MISSING",
            )
        if given.query != STREAM or _MAX_ROWS in given or _MAX_BYTES in given:
            return limits
        return replace(limits, max_bytes=DEFAULT_BYTES, by_default=True)

    def describe(self) -> str:
        if self.by_default:
            return f"at most {_size(DEFAULT_BYTES)} at a time ({_MAX_BYTES}=none removes the limit)"
        limits = [] if self.max_rows is None else [f"{self.max_rows} messages"]
        limits += [] if self.max_bytes is None else [_size(self.max_bytes)]
        return f"at most {' and '.join(limits)} at a time" if limits else "everything at once"


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """How a read is split into tasks.

    coalesce: whether small queues share a task. min_tasks: the approximate number of tasks.
    max_rows, max_bytes: maximum messages, and bytes of the log, of one task; None: no limit.
    """

    coalesce: bool = Option(
        "coalesceQueues",
        READS,
        boolean(default=True),
        "Queues with less than 1 MiB to read share a task; `false` gives each queue its own task.",
    ).field()
    min_tasks: int | None = Option(
        "minPartitions",
        READS,
        WHOLE,
        "Approximate number of tasks, if there are enough messages: queues with more than their "
        "share of the bytes are split, queues with less than half of their share are joined.",
    ).field()
    max_rows: int | None = Option(
        "maxRecordsPerPartition",
        READS,
        WHOLE,
        "Maximum number of messages in a task: queues with more messages are split.",
    ).field()
    max_bytes: int | None = Option(
        "maxBytesPerPartition",
        READS,
        SIZE,
        "Approximate maximum bytes of the log in a task, such as `64m`: larger queues are split "
        "into parts of equal size, which may exceed the limit by part of a message.",
    ).field()

    @property
    def by_bytes(self) -> bool:
        return self.min_tasks is not None or self.max_bytes is not None


def _size(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >> power and not count % (1 << power):
            return f"{count >> power} {unit}"
    return f"{count} bytes"
