"""What a sink settles on the driver, before any task runs: options, columns, store and topic."""

from dataclasses import dataclass

from pyrocket import Store, StoreConfig, check_topic_name
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    StoreNotFoundError,
    StoreNotSharedError,
)
from pyspark.sql.types import StructType

from pyspark_pyrocket.options.payload import BASE64
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions
from pyspark_pyrocket.stores import check_uuid, not_shared
from pyspark_pyrocket.writing.sink_columns import JsonBody, SinkColumns, plan_columns, plan_json


@dataclass(frozen=True)
class Sink:
    """All that a task needs to know.

    store: the uuid of the store that the driver means.
    json_body: what bodies are made of; None where they are a column.
    """

    options: WriteOptions
    columns: SinkColumns
    store: str
    json_body: JsonBody | None = None

    @property
    def body_position(self) -> int | None:
        """Which column of the DataFrame is the body; None where several are made into it."""
        if self.json_body is None:
            return self.columns["body"].position
        return self.json_body.positions[0] if self.json_body.whole else None


def prepare_sink(
    request: Request, schema: StructType, overwrite: bool, *, streaming: bool = False
) -> Sink:
    """Check everything and make sure that the store and the topic exist.

    Takes a millisecond when they do: Spark asks twice for each micro-batch.
    """
    options = WriteOptions.parse(request, streaming=streaming)
    if overwrite:
        raise OptionError(
            "mode('overwrite') and outputMode('complete') would replace what the topic holds.",
            remedy="A log is not truncated; delete the topic. Append otherwise: "
            "mode('append') or outputMode('append').",
            code="OPTION_OVERWRITE",
        )
    columns, json_body = _plan(schema, options)
    if options.topic:
        check_topic_name(options.topic)
    # Opened for writing even if nothing is missing: a store that a broker holds, or that needs
    # recovery after a crash, is dealt with here and not by several tasks at once.
    config = StoreConfig(dir_mode=options.directory_mode)
    store = Store.open(options.path, create=options.create_if_missing, config=config)
    try:
        if options.topic:
            _ensure_topic(store, options)
        return Sink(options, columns, store.uuid, json_body)
    finally:
        store.close(clean=False)


def _plan(schema: StructType, options: WriteOptions) -> tuple[SinkColumns, JsonBody | None]:
    body = None
    if options.encodes_json:
        columns, body = plan_json(schema, options.topic, options.value_column)
    else:
        columns = plan_columns(schema, options.topic)
    if options.key_encoding == BASE64 and "keys" in columns and columns["keys"].source != "key":
        raise OptionError(
            "Option 'keyEncoding' is base64, and there is a column 'keys'.",
            remedy="It is for the column 'key', which holds one key of any bytes: rename the "
            "column, or remove the option.",
            code="OPTION_CONFLICT",
        )
    return columns, body


def _ensure_topic(store: Store, options: WriteOptions) -> None:
    if options.create_if_missing:
        topic = store.create_topic(options.topic)
    else:
        topic = store.topic(options.topic)
    if not topic.writable:
        raise InvalidInputError(
            f"Topic {topic.name!r} does not permit writing (perm {topic.perm}).",
            remedy="Give it write permission: perm 2 or 6.",
            code="TOPIC_NOT_WRITABLE",
        )


def open_for_writing(sink: Sink, flush: str = "manual") -> Store:
    """Open the driver's store for appending; only `prepare_sink` creates one."""
    return _open(sink, read_only=False, flush=flush)


def open_for_staging(sink: Sink) -> Store:
    """Open the driver's store for reading: beside it rows can be staged."""
    return _open(sink, read_only=True, flush="manual")


def _open(sink: Sink, *, read_only: bool, flush: str) -> Store:
    options, path = sink.options, sink.options.path
    config = StoreConfig(
        auto_create_topics=options.create_if_missing,
        flush=flush,
        timer_max_delay_ms=options.timer_max_delay_ms,
    )
    try:
        store = Store.open(path, read_only=read_only, config=config)
    except StoreNotFoundError as error:
        raise not_shared(path, f"there is no store: {error.message}") from error
    try:
        check_uuid(path, sink.store, store.uuid)
    except StoreNotSharedError:
        store.close(clean=False)
        raise
    return store
