"""Defines the parts of each view and the columns of their rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from pyrocket.formats.record_columns import SCAN_COLUMNS
from pyrocket.views.pending import DUE, PendingRange

ViewName = Literal["commitlog", "retry", "dlq", "groups", "topics"]

_TIMESTAMP = pa.timestamp("us", "UTC")

IN_QUEUE = "inQueue"
"""The column that is true if the queue of a record has an entry that points to the record."""

GROUP, ORIGIN_TOPIC, ORIGIN_ID = "consumerGroup", "originTopic", "originMsgId"
CONSUMED = "consumed"

_SENT_BACK = {GROUP: pa.string(), ORIGIN_TOPIC: pa.string(), ORIGIN_ID: pa.string()}

_QUEUE = pa.struct(
    {
        "queueId": pa.int32(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "bytes": pa.int64(),
        "firstStoreTimestamp": _TIMESTAMP,
        "lastStoreTimestamp": _TIMESTAMP,
    }
)
"""The columns of a queue of a topic; queues that never had a message are omitted."""

VIEW_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "commitlog": {**SCAN_COLUMNS, IN_QUEUE: pa.bool_()},
    "retry": {**SCAN_COLUMNS, **_SENT_BACK, CONSUMED: pa.bool_(), DUE: _TIMESTAMP},
    "dlq": {**SCAN_COLUMNS, **_SENT_BACK},
    "groups": {
        GROUP: pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "committedOffset": pa.int64(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "lag": pa.int64(),
        "lagBytes": pa.int64(),
        "lost": pa.int64(),
        "beyondEnd": pa.int64(),
        "nextStoreTimestamp": _TIMESTAMP,
    },
    "topics": {
        "topic": pa.string(),
        "kind": pa.string(),
        "perm": pa.int32(),
        "readQueues": pa.int32(),
        "writeQueues": pa.int32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "firstStoreTimestamp": _TIMESTAMP,
        "lastStoreTimestamp": _TIMESTAMP,
        "queues": pa.list_(_QUEUE),
    },
}
"""View → column → Arrow type."""


@dataclass(frozen=True)
class LogPart:
    """Whole files of the log: the records in [start, end).

    With `is_whole` there must be records up to `end`; otherwise zeros may follow the last record.
    If `topics` is not empty, only records of these topics are read. With `skips_damage`, corrupt
    records are skipped and logged.
    """

    start: int
    end: int
    is_whole: bool
    topics: tuple[str, ...] = ()
    skips_damage: bool = False

    @property
    def weight(self) -> int:
        """The approximate number of log bytes that are read."""
        return self.end - self.start


@dataclass(frozen=True)
class RetryPart:
    """Messages [start, end) of a queue of a group's retry or dead-letter topic.

    committed: the offset that the group consumes next; 0 without a committed offset.
    """

    topic: str
    group: str
    queue_id: int
    start: int
    end: int
    committed: int
    weight: int


@dataclass(frozen=True)
class PendingRetryPart:
    """Messages that will be delivered to retry topics; `groups` maps each topic to its group."""

    pending: PendingRange
    groups: Mapping[str, str]

    @property
    def weight(self) -> int:
        """The approximate number of log bytes that are read."""
        return self.pending.messages * 512


@dataclass(frozen=True)
class TablePart:
    """The rows of the view "groups" (all groups or one) or "topics" (all topics or some)."""

    view: Literal["groups", "topics"]
    group: str = ""
    topics: tuple[str, ...] = ()
    weight: int = 0


ViewPart = LogPart | RetryPart | PendingRetryPart | TablePart
