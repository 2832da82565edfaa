"""What is asked of a store about the bytes of messages."""

from collections.abc import Sequence
from typing import Protocol

from pyrocket import ByteSpan

ALL = 2**63 - 1
"""A mark that no queue reaches."""


class Sizes(Protocol):
    """A store, or what stands for one in tests."""

    def log_span(self, topic: str, queue_id: int, start: int, end: int) -> ByteSpan:
        """Return where [start, end) lies in the log, and about how many bytes it has."""
        ...

    def cut_by_bytes(
        self, topic: str, queue_id: int, start: int, end: int, marks: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return for each mark how far messages from `start` on reach it: offset and bytes."""
        ...
