"""What the log says of the batches that were published whole: messages of SINK_TOPIC, queue 0.

Each is found by its KEYS, the key of its query. The body is JSON. The tag BEGIN is for the first
record of a batch; then follow, up to `end`, exactly `rows` records. FENCE says only that another
run of the query has come, which found the batch published.

Version 2 records have a content sum (`formats.content_sum`), and batches without rows are noted
beside the ledger. In version 1, which is not named, `content` was a sum over stored bodies, and the
first ones lack `boot` and `began`.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.fastjson import describe_error
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.properties import KEYS, TAGS, encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SINK_TOPIC

BEGIN, FENCE = "BEGIN", "FENCE"
_DIGITS = 20
_PLACES = ("start", "end")
_ADDED: dict[str, str | int] = {"version": 1, "boot": "", "began": 0, "content_bytes": 0}

RECORD_VERSION = 2
"""From this version on records have a content sum."""


@dataclass(frozen=True, kw_only=True)
class SinkRecord:
    """One batch, or the coming of a run.

    key: of the query, with `identity` and `target` in clear text beside it.
    batch, run: of the batch; see `SinkBatch`. rows, bytes: of its records.
    boot, began: when work on it began, nanoseconds after that boot; "" and 0 if that is not known.
    content_bytes, content: a `ContentSum` of its rows, from version 2 on.
    start, end: where it lies in the log, this record included.
    offset, time_ms: where this record lies and when it was stored, as read from the log.
    """

    kind: str
    key: str
    identity: str
    target: str
    batch: int
    run: str
    rows: int = 0
    bytes: int = 0
    content: int = 0
    start: int = 0
    end: int = 0
    boot: str = ""
    began: int = 0
    version: int = RECORD_VERSION
    content_bytes: int = 0
    offset: int = 0
    time_ms: int = 0

    @property
    def name(self) -> str:
        """The query, as error messages name it."""
        target = f" into {self.target!r}" if self.target else ""
        return f"the query {self.identity!r}{target}"

    def at(self, start: int, end: int) -> "SinkRecord":
        """Return it for a batch that lies there; its record is as long as this one's."""
        return replace(self, start=start, end=end)


def encode_sink_record(record: SinkRecord, born_ms: int) -> EncodedBatch:
    """Return the message, ready but for its place."""
    content = {name: value for name, value in asdict(record).items() if name in _IN_BODY}
    # As long for every place: where a batch ends depends on how long this record is.
    content |= {name: f"{content[name]:0{_DIGITS}d}" for name in _PLACES}
    properties = {KEYS: record.key, TAGS: record.kind}
    data = encode_record(
        topic=SINK_TOPIC,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=json.dumps(content).encode(),
        properties=encode_properties(properties),
        born_timestamp=born_ms,
        store_timestamp=0,
    )
    return EncodedBatch(
        topic=SINK_TOPIC,
        data=pa.py_buffer(bytearray(data)),
        bounds=np.array([0, len(data)]),
        queue_ids=np.zeros(1, np.int32),
        tags_codes=np.array([java_hash(record.kind)], np.int64),
        keys=keys_of_message(SINK_TOPIC, "", [record.key]),
    )


_IN_BODY = [name for name in SinkRecord.__dataclass_fields__ if name not in ("offset", "time_ms")]


def decode_sink_records(records: RecordFields) -> Iterator[SinkRecord]:
    """Yield what the records of a checked run of SINK_TOPIC say. Raises StoreDamagedError."""
    places = zip(
        records.bodies().to_pylist(),
        records.physical_offset.tolist(),
        records.store_timestamp.tolist(),
        strict=True,
    )
    for body, offset, time_ms in places:
        try:
            content = json.loads(body)
            told = {name: (_ADDED | content)[name] for name in _IN_BODY}
            told |= {name: int(told[name]) for name in _PLACES}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(
                f"the record of {SINK_TOPIC} at {offset} cannot be parsed"
                f" ({describe_error(error)}).",
                remedy="Restore the log from a backup.",
            ) from error
        yield SinkRecord(**told, offset=offset, time_ms=time_ms)
