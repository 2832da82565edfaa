"""How much a micro-batch takes of what there is to read."""

from dataclasses import dataclass

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import STREAM, Option

ROWS = (
    Option(
        "maxOffsetsPerTrigger",
        "none",
        (STREAM,),
        "The most messages of one micro-batch, shared out by backlog; "
        "every queue that has any gives at least one.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """max_rows: messages per micro-batch, or None for no limit."""

    max_rows: int | None = None

    @classmethod
    def parse(cls, given: Given) -> "Admission":
        """Read the limits of a stream; a batch has none."""
        return cls(max_rows=given.whole("maxOffsetsPerTrigger"))
