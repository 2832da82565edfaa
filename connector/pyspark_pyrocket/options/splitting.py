"""How what is read is cut into tasks."""

from dataclasses import dataclass

from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import READS, Option

ROWS = (
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
