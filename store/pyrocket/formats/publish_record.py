"""Publish records: messages in queue 0 of SINK_TOPIC, one for each completely published batch.

They are found by their KEYS, the key of the query. The body is JSON. A record with the tag BEGIN
starts a batch; exactly `rows` records follow, up to `end`. A record with the tag FENCE means that
another run of the query found the batch published.

Records of version 2 have a content sum (`formats.content_sum`); batches without rows are saved in
files. Records of version 1 do not contain a version; their `content` is a sum of stored bodies, and
the earliest records lack `boot` and `began`.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.fastjson import describe_error
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.properties import KEYS, TAGS, encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch, batch_of_records
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SINK_TOPIC

BEGIN, FENCE = "BEGIN", "FENCE"
_DIGITS = 20
_PLACES = ("start", "end")
_ADDED: dict[str, str | int] = {"version": 1, "boot": "", "began": 0, "content_bytes": 0}

RECORD_VERSION = 2
"""Records have a content sum since this version."""


@dataclass(frozen=True, kw_only=True)
class SinkRecord:
    """A published batch (BEGIN), or a run that found it published (FENCE).

    key: the key of the query; identity, target: the same in plain text.
    batch, run: see `SinkBatch`. rows, bytes: number and size of the batch's records.
    boot, began: boot id, and time since boot (ns) at which the batch began; "" and 0 if unknown.
    content_bytes, content: the `ContentSum` of the rows, since version 2.
    start, end: the batch's range in the log, including this record.
    offset, time_ms: log offset and store time of this record, as read from the log.
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
        """The description of the query in error messages."""
        target = f" into {self.target!r}" if self.target else ""
        return f"the query {self.identity!r}{target}"

    def at(self, start: int, end: int) -> "SinkRecord":
        """Return the record for a batch at this range of the log, with the same length."""
        return replace(self, start=start, end=end)


def encode_sink_record(record: SinkRecord, born_ms: int) -> EncodedBatch:
    """Return the encoded message, without offsets and store time."""
    content = {name: value for name, value in asdict(record).items() if name in _IN_BODY}
    # Fixed width, because the end of a batch depends on the length of this record.
    content |= {name: f"{content[name]:0{_DIGITS}d}" for name in _PLACES}
    properties = {KEYS: record.key, TAGS: record.kind}
    data = encode_record(
        topic=SINK_TOPIC,
        queue_id=0,
        body=json.dumps(content).encode(),
        properties=encode_properties(properties),
        born_timestamp=born_ms,
    )
    keys = keys_of_message(SINK_TOPIC, "", [record.key])
    return batch_of_records(SINK_TOPIC, 0, [data], record.kind, keys)


_IN_BODY = [name for name in SinkRecord.__dataclass_fields__ if name not in ("offset", "time_ms")]


def decode_sink_records(records: RecordFields) -> Iterator[SinkRecord]:
    """Decode the records of a checked run of SINK_TOPIC. Raises StoreDamagedError."""
    places = zip(
        records.bodies().to_pylist(),
        records.physical_offset.tolist(),
        records.store_timestamp.tolist(),
        strict=True,
    )
    for body, offset, time_ms in places:
        try:
            content = json.loads(body)
            fields = {name: (_ADDED | content)[name] for name in _IN_BODY}
            fields |= {name: int(fields[name]) for name in _PLACES}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(
                f"the record of {SINK_TOPIC} at {offset} cannot be parsed"
                f" ({describe_error(error)}).",
                remedy="Restore the log from a backup.",
            ) from error
        yield SinkRecord(**fields, offset=offset, time_ms=time_ms)
