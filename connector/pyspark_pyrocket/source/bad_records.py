"""`badRecordsTopic`: messages whose bodies cannot be decoded, sent by the tasks that meet them.

A task that is tried again, a micro-batch that is replayed and a DataFrame that is read twice meet
the same messages again. Each is sent under a key made of its place, and is looked for by that key
before: so it stands there once, unless two attempts at one task meet it at the same moment.
"""

from dataclasses import dataclass

import pyarrow as pa
from pyrocket import Store, StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.json.decode import BadRecord, OnBad
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import MESSAGES
from pyspark_pyrocket.transport.path import check_uuid, shared_store

_REASON_CHARACTERS = 500


@dataclass(frozen=True)
class BadRecords:
    """Where a read sends its bad records: a topic of the store at `path`."""

    path: str
    store: str
    topic: str

    def send(self, records: list[BadRecord]) -> None:
        """Append durably those records that are not there yet."""
        store = shared_store(self.path)
        missing = [
            each
            for each in records
            if not store.lookup.query(self.topic, key_of(each), max_messages=1)
        ]
        if not missing:
            return
        writable = Store.open(self.path, config=StoreConfig(flush="manual"))
        try:
            check_uuid(self.path, self.store, writable.uuid)
            writable.append_batch(_batch(missing), topic=self.topic)
            writable.flush()
        finally:
            writable.close(clean=False)


def sender(path: str, store: str, topic: str) -> OnBad | None:
    """Return what a task does with its bad records, if anything."""
    return BadRecords(path, store, topic).send if topic else None


def prepare_bad_records(options: ReadOptions) -> None:
    """Check on the driver that bad records can be sent, and make their topic if it is missing."""
    topic = options.payload.bad_topic
    if not topic:
        return
    if options.subscription.covers(topic):
        raise OptionError(
            f"Option 'badRecordsTopic' is {topic!r}, which this query reads.",
            remedy="Bad records would come back for ever: name another topic.",
            code="OPTION_CONFLICT",
        )
    if options.view != MESSAGES:
        raise OptionError(
            f"Option 'badRecordsTopic' is given with view={options.view}.",
            remedy="Only what topics show is sent there: remove it.",
            code="OPTION_CONFLICT",
        )
    # Opened for writing even if the topic exists: a store that a broker holds is named here.
    store = Store.open(options.path)
    try:
        if topic not in store.topics.all():
            store.topics.create(topic)
    finally:
        store.close(clean=False)


def key_of(record: BadRecord) -> str:
    """Return the key of the message that holds this record."""
    return f"{record.topic}/{record.queue_id}/{record.queue_offset}"


def _batch(records: list[BadRecord]) -> pa.RecordBatch:
    properties = [
        [
            ("originTopic", each.topic),
            ("originQueueId", str(each.queue_id)),
            ("originQueueOffset", str(each.queue_offset)),
            ("reason", _printable(each.reason)),
        ]
        for each in records
    ]
    return pa.record_batch(
        {
            "body": pa.array([each.body for each in records], pa.binary()),
            "keys": pa.array([key_of(each) for each in records], pa.string()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )


def _printable(reason: str) -> str:
    """Return the reason without what the properties of a message cannot hold."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in reason)
    return shown[:_REASON_CHARACTERS]
