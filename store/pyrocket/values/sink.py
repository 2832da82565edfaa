"""The results of staging and publishing a batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_MASK = 2**63 - 1


class ContentSum(NamedTuple):
    """bytes: size of bodies and attributes. sum: sum of one number per row, modulo 2⁶³."""

    bytes: int = 0
    sum: int = 0

    def plus(self, other: "ContentSum") -> "ContentSum":
        """Return the sum of both."""
        return ContentSum(self.bytes + other.bytes, (self.sum + other.sum) & _MASK)


FAIL, DROP, PUBLISH, ACCEPT = "fail", "drop", "publish", "accept"
ON_DIFFERENCE = (FAIL, DROP, PUBLISH)
ON_GAP = (FAIL, ACCEPT)


@dataclass(frozen=True)
class Staged:
    """The result of staging in one task, small enough to send to the publishing process.

    name: file name in the staging folder; "" if there are no rows.
    rows, bytes: number of messages, and their size in the log.
    file_bytes, checksum: length and checksum of the file.
    content: checksum of the rows' values, equal for a replay with the same rows.
    store: the store's uuid.
    topics: topic → number of write queues from which queues were selected.
    left_out: rows that the task did not write.
    """

    name: str
    rows: int
    bytes: int
    file_bytes: int
    checksum: int
    content: ContentSum
    store: str
    topics: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True)
class Published:
    """The result of publishing a batch.

    rows, bytes: messages that this call appended, and their size in the log.
    dropped: whether the batch was published before.
    log_end: end of the log after this call.
    left_out: rows that the tasks did not write, such as rows without a body.
    """

    rows: int
    bytes: int
    dropped: bool
    log_end: int
    left_out: int = 0
