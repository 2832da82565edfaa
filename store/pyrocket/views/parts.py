"""Defines the parts of each view and the columns of their rows."""

import pyarrow as pa

from pyrocket.formats.record_columns import SCAN_COLUMNS
from pyrocket.views.pending import DUE

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
