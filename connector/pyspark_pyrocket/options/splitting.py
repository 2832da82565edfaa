"""How what is read is cut into tasks."""

from dataclasses import dataclass

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import READS, Option

ROWS = (
    Option(
        "coalesceQueues",
        "`true`",
        READS,
        "Queues with less than 1 MiB to read share a task; `false` gives each its own.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """coalesce: whether small queues share a task."""

    coalesce: bool = True

    @classmethod
    def parse(cls, given: Given) -> "Splitting":
        """Read how tasks are cut."""
        return cls(coalesce=given.boolean("coalesceQueues", default=True))
