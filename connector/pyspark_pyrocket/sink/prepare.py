"""Prepares a sink on the driver, before any task runs: options, columns, store and topic."""

import socket
from dataclasses import dataclass, replace

import pyarrow as pa
from pyrocket import StoreConfig, check_topic_name
from pyrocket.errors import InvalidInputError, OptionError, SinkError, StoreNotFoundError
from pyspark.sql.types import StructType

from pyspark_pyrocket.options.delivery import ACCEPT, AT_LEAST_ONCE
from pyspark_pyrocket.options.option import conflict
from pyspark_pyrocket.options.payload import BASE64
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions
from pyspark_pyrocket.sink.columns import JsonBody, SinkColumns, plan_columns, plan_json
from pyspark_pyrocket.sink.sink_checkpoint import SinkCheckpoint
from pyspark_pyrocket.transport.interface import BrokerTarget, Capability, MessageSink, require
from pyspark_pyrocket.transport.targets import target_of
from pyspark_pyrocket.worker import LOG, log_to_stderr


@dataclass(frozen=True)
class SinkPlan:
    """Everything that the tasks of a write need.

    target: the store that the driver opened. Its id is empty if the store of a stream is missing
        and the batch number is unknown; the first batch then creates the store (`settle_store`).
    json_body: the columns that are encoded as a JSON body; None if the body is a column.
    checkpoint: the checkpoint of a stream, if known.
    host: the driver's host name, for a stream; empty for a batch write.
    """

    options: WriteOptions
    columns: SinkColumns
    target: BrokerTarget
    json_body: JsonBody | None = None
    checkpoint: SinkCheckpoint | None = None
    host: str = ""

    @property
    def store(self) -> str:
        """The uuid of the store; empty if there is none yet."""
        return self.target.store_id or ""

    def with_store(self, store: str) -> "SinkPlan":
        """Return the sink with the uuid of the store that was found or created."""
        return replace(self, target=self.target.of_store(store).waiting())

    @property
    def body_position(self) -> int | None:
        """The index of the DataFrame's body column; None if several columns are encoded as JSON."""
        if self.json_body is None:
            return self.columns["body"].position
        return self.json_body.positions[0] if self.json_body.whole else None

    def log_left_out(self, rows: int, batch: str = "") -> None:
        """Log on the driver how many rows a write left out, if any."""
        if rows:
            log_to_stderr()
            LOG.warning(
                "%srows without a body that were not written to %s: %d (nullBody=drop)",
                *(batch, self.options.topic or "the topics of their rows", rows),
            )


def prepare_sink(
    request: Request, schema: StructType, overwrite: bool, *, streaming: bool = False
) -> SinkPlan:
    """Check options and columns, and make sure that the store and the topic exist.

    Takes a millisecond if they exist; Spark calls this twice for each micro-batch.
    """
    options = WriteOptions.parse(request, streaming=streaming)
    if overwrite:
        raise OptionError(
            "mode('overwrite') and outputMode('complete') would replace the messages of the topic.",
            remedy="A log cannot be overwritten: use mode('append') or outputMode('append'). To "
            "start with an empty topic, delete the topic first with Store.topics.delete().",
            code="OPTION_OVERWRITE",
        )
    columns, json_body = _plan(schema, options)
    if options.topic:
        check_topic_name(options.topic)
    checkpoint = SinkCheckpoint.of(request) if streaming else None
    waits = streaming and (checkpoint is None or checkpoint.batch > 0)
    earlier = checkpoint.broker() if checkpoint else ""
    target = target_of(options, waits=waits).of_broker(options.broker_name, earlier)
    if waits:
        target = target.waiting()
    sink = SinkPlan(options, columns, target, json_body, checkpoint)
    if options.delivery != AT_LEAST_ONCE:
        require(sink.target, {Capability.EXACTLY_ONCE: "delivery"})
    if not streaming:
        return sink.with_store(_begin(sink, create=options.create_if_missing))
    sink = replace(sink, host=socket.gethostname())
    try:
        recorded = checkpoint.store() if checkpoint else ""
        return sink.with_store(_begin(sink, create=False, recorded=recorded))
    except StoreNotFoundError:
        return _without_store(sink)


def _begin(sink: SinkPlan, *, create: bool, recorded: str = "") -> str:
    """Make sure that the store and the topic exist; return the store's uuid.

    `recorded` is the store that a stream wrote to last, if known. Raises StoreNotFoundError if the
    store is missing and `create` is false; SinkError (SINK_STORE_CHANGED); OptionError
    (RETENTION_DIFFERS).
    """
    options = sink.options
    retention = options.retention
    # Opened for writing even if nothing is missing: if a broker holds the store, or it needs
    # recovery after a crash, the driver handles that here instead of several tasks at once.
    config = StoreConfig(
        dir_mode=options.directory_mode,
        retention=retention.retention if retention and create else None,
    )
    opened = sink.target.of_store(None).open_sink(create=create, config=config)
    try:
        if options.on_batch_gap != ACCEPT:
            _check_store(sink, recorded, opened.store_id)
        # Changing the retention during a running stream must not fail the stream.
        if retention is not None and recorded != opened.store_id:
            retention.check(sink.target.describe(), opened.retention)
        if options.topic:
            _ensure_topic(opened, options)
        timed = sink.columns.keys() & {"delay", "deliverTimestamp"}
        if options.endpoint.name_servers and timed:  # RocketMQ 4 has none; tasks find this later.
            none = {name: pa.array([], sink.columns[name].arrow) for name in timed}
            opened.append(pa.record_batch({"body": pa.array([], pa.binary())} | none))
        return opened.store_id
    finally:
        opened.close(clean=False)


def _without_store(sink: SinkPlan) -> SinkPlan:
    """Create the store of a stream if this is known to be its first batch.

    Raises SinkError (SINK_STORE_CHANGED) if it is known to be a later batch.
    """
    checkpoint, options = sink.checkpoint, sink.options
    if checkpoint is None and options.create_if_missing:
        return sink
    if checkpoint is not None:
        known = checkpoint.store()
        if known or checkpoint.batch > 0:
            raise store_changed(sink, known, "there is no store")
    return sink.with_store(_begin(sink, create=options.create_if_missing))


def _check_store(sink: SinkPlan, known: str, found: str) -> None:
    if known and known != found:
        raise store_changed(sink, known, f"there is the store {found}")


def settle_store(sink: SinkPlan, batch: int) -> SinkPlan:
    """Return the sink with its store, which the first batch of a stream creates if missing.

    Raises SinkError (SINK_STORE_CHANGED) for a later batch, StoreNotSharedError on another machine.
    """
    if sink.store:
        return sink
    if batch > 0:
        raise store_changed(sink, "", "there is no store")
    if sink.host != socket.gethostname():
        raise sink.target.not_shared("there is no store")
    return sink.with_store(_begin(sink, create=True))


def store_changed(sink: SinkPlan, known: str, found: str) -> SinkError:
    """Return the error of a query whose store is missing at its path or was replaced."""
    wrote = f"the store {known}" if known else "a store"
    return SinkError(
        f"the query wrote to {wrote}, but now {found} at {sink.target.describe()}. Nothing was"
        " created or written.",
        remedy="Mount the disk, or restore the store. To continue in another store, which has to "
        "exist (`Store.open(path, create=True)` creates one), set the option onBatchGap=accept; to "
        "publish everything again, give the query a new checkpoint location.",
        code="SINK_STORE_CHANGED",
    )


def _plan(schema: StructType, options: WriteOptions) -> tuple[SinkColumns, JsonBody | None]:
    body = None
    if options.encodes_json:
        columns, body = plan_json(schema, options.topic, options.value_column)
    else:
        columns = plan_columns(schema, options.topic)
    if options.key_encoding == BASE64 and "keys" in columns and columns["keys"].source != "key":
        raise conflict(
            "Option 'keyEncoding' is base64, but there is a column 'keys'.",
            "It applies to the column 'key', which holds one key of any bytes: rename the "
            "column, or remove the option.",
        )
    return columns, body


def _ensure_topic(sink: MessageSink, options: WriteOptions) -> None:
    topic = sink.prepare(options.topic, create=options.create_if_missing)
    if not topic.writable:
        raise InvalidInputError(
            f"Topic {topic.name!r} does not permit writing (perm {topic.perm}).",
            remedy="Give it write permission: perm 2 or 6.",
            code="TOPIC_NOT_WRITABLE",
        )


def open_sink(sink: SinkPlan, *, staging: bool = False, flush: str = "manual") -> MessageSink:
    """Open the driver's store; a missing store is an error. Staging takes no write lock."""
    options = sink.options
    config = StoreConfig(
        auto_create_topics=options.create_if_missing,
        flush=flush,
        timer_max_delay_ms=options.timer_max_delay_ms,
    )
    if sink.host != socket.gethostname():
        return sink.target.open_sink(config=config, staging=staging)
    # This machine has the driver's mounts: a missing or different store means that it changed.
    try:
        opened = sink.target.of_store(None).open_sink(config=config, staging=staging)
    except StoreNotFoundError as error:
        raise store_changed(sink, sink.store, "there is no store") from error
    try:
        _check_store(sink, sink.store, opened.store_id)
    except SinkError:
        opened.close(clean=False)
        raise
    return opened
