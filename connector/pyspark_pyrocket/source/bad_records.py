"""`badRecordsTopic`: messages whose bodies cannot be decoded, sent by the tasks that read them.

A task that is retried, a micro-batch that is replayed and a DataFrame that is read twice find the
same messages again. A message is sent with a key made of its queue and offset, and only if no
message has that key. It is therefore sent once, unless two attempts of one task read it at the same
time.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyrocket import LookupRequest, MessageLocations, ScanTally, StoreConfig

from pyspark_pyrocket.json.decode import BadRecord, OnBad
from pyspark_pyrocket.options.option import conflict
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import MESSAGES
from pyspark_pyrocket.transport.interface import BrokerSource, BrokerTarget, Target

_REASON_CHARACTERS = 500

KeysAt = Callable[[BrokerSource, MessageLocations, ScanTally], Iterator[pa.RecordBatch]]
"""Reads the column `keysText` of messages."""


def sender(target: BrokerTarget, topic: str, keys_at: KeysAt) -> OnBad | None:
    """Return the function that sends a task's bad records; None without `badRecordsTopic`."""
    return partial(_send, target, topic, keys_at) if topic else None


def _send(target: BrokerTarget, topic: str, keys_at: KeysAt, records: list[BadRecord]) -> None:
    """Durably append the records that have not been sent yet."""
    sent = _sent(target.open_source(), topic, keys_at, records)
    missing = [record for record in records if key_of(record) not in sent]
    if not missing:
        return
    sink = target.open_sink(config=StoreConfig(flush="manual"))
    try:
        first, last = key_of(missing[0]), key_of(missing[-1])
        sink.append(_batch(missing), topic=topic, repeat_id=f"{first} to {last}")
        sink.flush()
    finally:
        sink.close(clean=False)


def _sent(source: BrokerSource, topic: str, keys_at: KeysAt, records: list[BadRecord]) -> set[str]:
    """Return the keys of those records that have been sent before."""
    request = LookupRequest(topics=(topic,), keys=tuple(map(key_of, records)))
    located = source.locate(request).locations
    found = (batch for each in located for batch in keys_at(source, each, ScanTally()))
    return {key for batch in found for key in batch["keysText"].to_pylist()}


def prepare_bad_records(target: Target, options: ReadOptions) -> None:
    """Check on the driver that bad records can be sent, and create their topic if it is missing."""
    topic = options.payload.bad_topic
    if not topic:
        return
    if options.subscription.covers(topic):
        raise conflict(
            f"Option 'badRecordsTopic' is {topic!r}, which this query reads.",
            "Bad records would be read again and again: name another topic.",
        )
    if options.view != MESSAGES:
        raise conflict(
            f"Option 'badRecordsTopic' is given with view={options.view}.",
            "It applies only to messages of topics: remove it.",
        )
    for source in target.open_source().by_broker().values():
        # Opened for writing even if the topic exists: if a broker holds the store, the query fails
        # now.
        sink = source.target.of_store(None).open_sink()
        try:
            sink.prepare(topic)
        finally:
            sink.close(clean=False)


def key_of(record: BadRecord) -> str:
    """Return the key of the message that holds this record."""
    return f"{record.topic}/{record.queue_id}/{record.queue_offset}"


def _batch(records: list[BadRecord]) -> pa.RecordBatch:
    properties = [
        [
            ("originTopic", record.topic),
            ("originQueueId", str(record.queue_id)),
            ("originQueueOffset", str(record.queue_offset)),
            ("reason", _printable(record.reason)),
        ]
        for record in records
    ]
    return pa.record_batch(
        {
            "body": pa.array([record.body for record in records], pa.binary()),
            "keys": pa.array([key_of(record) for record in records], pa.string()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )


def _printable(reason: str) -> str:
    """Return the reason without characters that message properties cannot contain."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in reason)
    return shown[:_REASON_CHARACTERS]
