"""How much a micro-batch takes, and how a read is split into tasks."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import READS, STREAM, Option, OptionReader

_MAX_ROWS, _MAX_BYTES = "maxOffsetsPerTrigger", "maxBytesPerTrigger"
_MIN_ROWS, _MAX_DELAY = "minOffsetsPerTrigger", "maxTriggerDelay"

DEFAULT_BYTES = 256 << 20
"""Of a micro-batch, where the user sets no limit: a first backlog must fit into memory."""

DEFAULT_DELAY_MS = 15 * 60_000

ADMISSION_ROWS = (
    Option(
        _MAX_ROWS,
        "none",
        (STREAM,),
        "The most messages of one micro-batch, shared out by backlog; "
        "every queue that has any gives at least one.",
    ),
    Option(
        _MAX_BYTES,
        "`256m`; `none` with `maxOffsetsPerTrigger`",
        (STREAM,),
        "The most bytes in the log of one micro-batch, as in `64m`, shared out by backlog; every "
        "queue that has any gives at least one message, however long. Bytes are those stored: "
        "compressed bodies become longer. With both limits the smaller one counts; `none`, "
        "`unlimited` or `0` lifts either, and the default.",
    ),
    Option(
        _MIN_ROWS,
        "none",
        (STREAM,),
        "Hold a micro-batch back until so many messages are there, or `maxTriggerDelay` has "
        "passed since the last one. `Trigger.AvailableNow` and `Once` wait for nothing.",
    ),
    Option(
        _MAX_DELAY,
        "`15m`",
        (STREAM,),
        "With `minOffsetsPerTrigger`: how long messages are held back at most.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Limits of a micro-batch, None where there is none.

    max_rows, max_bytes: messages, and bytes of the log, at most; `by_default` if the user gave
    neither.
    min_rows: messages it waits for, but no longer than `max_delay_ms` after the last micro-batch.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    by_default: bool = False
    min_rows: int | None = None
    max_delay_ms: int = DEFAULT_DELAY_MS

    @classmethod
    def parse(cls, given: OptionReader) -> "Admission":
        """Read the limits of a stream; a batch has none."""
        by_default = given.query == STREAM and not (_MAX_ROWS in given or _MAX_BYTES in given)
        rows = None if _is_lifted(given, _MAX_ROWS) else given.whole(_MAX_ROWS)
        size = None if _is_lifted(given, _MAX_BYTES) else given.size(_MAX_BYTES)
        least = given.whole(_MIN_ROWS)
        if least is not None and rows is not None and least > rows:
            raise OptionError(
                f"{_MIN_ROWS!r} is {least}, and {_MAX_ROWS!r} only {rows}.",
                remedy="A micro-batch cannot wait for more than it may take: lower the first.",
                code="OPTION_CONFLICT",
            )
        delay = given.duration_ms(_MAX_DELAY)
        if delay is not None and least is None:
            raise OptionError(
                f"{_MAX_DELAY!r} is given alone, and nothing is held back.",
                remedy=f"Say with {_MIN_ROWS!r} what to wait for, or remove {_MAX_DELAY!r}.",
                code="OPTION_MISSING",
            )
        return cls(
            max_rows=rows,
            max_bytes=DEFAULT_BYTES if by_default else size,
            by_default=by_default,
            min_rows=least,
            max_delay_ms=DEFAULT_DELAY_MS if delay is None else delay,
        )

    def describe(self) -> str:
        """Return the limits for a log line."""
        if self.by_default:
            return f"at most {_size(DEFAULT_BYTES)} at a time ({_MAX_BYTES}=none lifts it)"
        most = [] if self.max_rows is None else [f"{self.max_rows} messages"]
        most += [] if self.max_bytes is None else [_size(self.max_bytes)]
        return f"at most {' and '.join(most)} at a time" if most else "all that is there at once"


def _is_lifted(given: OptionReader, option: str) -> bool:
    return given.is_lifted(option) or set(given.text(option)) == {"0"}


def _size(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >> power and not count % (1 << power):
            return f"{count >> power} {unit}"
    return f"{count} bytes"


SPLITTING_ROWS = (
    Option(
        "coalesceQueues",
        "`true`",
        READS,
        "Queues with less than 1 MiB to read share a task; `false` gives each its own.",
    ),
    Option(
        "minPartitions",
        "none",
        READS,
        "About so many tasks, where there are enough messages: queues with more than their share "
        "of the bytes are cut into pieces, those with less than half of it are joined.",
    ),
    Option(
        "maxRecordsPerPartition",
        "none",
        READS,
        "The most messages of one task: queues with more are cut into pieces.",
    ),
    Option(
        "maxBytesPerPartition",
        "none",
        READS,
        "About the most bytes in the log of one task, as in `64m`: queues with more are cut into "
        "pieces of equal size, which may hold a part of a message more.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """coalesce: whether small queues share a task. The others are None where nothing is asked.

    min_tasks: about how many tasks; max_rows, max_bytes: messages and bytes of one at most.
    """

    coalesce: bool = True
    min_tasks: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None

    @classmethod
    def parse(cls, given: OptionReader) -> "Splitting":
        """Read how tasks are cut."""
        return cls(
            coalesce=given.boolean("coalesceQueues", default=True),
            min_tasks=given.whole("minPartitions"),
            max_rows=given.whole("maxRecordsPerPartition"),
            max_bytes=given.size("maxBytesPerPartition"),
        )

    @property
    def by_bytes(self) -> bool:
        """Whether queues are cut by their bytes."""
        return self.min_tasks is not None or self.max_bytes is not None
