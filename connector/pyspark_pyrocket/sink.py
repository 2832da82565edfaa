"""What a sink settles on the driver, before any task runs: options, columns, store and topic."""

from dataclasses import dataclass

from pyrocket import Store, check_topic_name
from pyrocket.errors import InvalidInputError, OptionError, StoreNotFoundError
from pyspark.sql.types import StructType

from pyspark_pyrocket.options import WriteOptions
from pyspark_pyrocket.sink_columns import SinkColumns, plan_columns
from pyspark_pyrocket.stores import forget, shared_store
from pyspark_pyrocket.target import Request


@dataclass(frozen=True)
class Sink:
    """All that a task needs to know; `store` is the uuid of the store that the driver means."""

    options: WriteOptions
    columns: SinkColumns
    store: str


def prepare_sink(request: Request, schema: StructType, overwrite: bool) -> Sink:
    """Check everything and make sure that the store and the topic exist.

    Cheap when they do: Spark asks twice for each micro-batch.
    """
    options = WriteOptions.parse(request)
    if overwrite:
        raise OptionError(
            "mode('overwrite') and outputMode('complete') would replace what the topic holds.",
            remedy="A log is not truncated; delete the topic. Append otherwise: "
            "mode('append') or outputMode('append').",
            code="OPTION_OVERWRITE",
        )
    columns = plan_columns(schema, options.topic)
    store = _open_or_create(options)
    if options.topic:
        _ensure_topic(store, options)
    return Sink(options, columns, store.uuid)


def _open_or_create(options: WriteOptions) -> Store:
    """Return the store; one that only Java has written gets its uuid here."""
    try:
        store = shared_store(options.path)
    except StoreNotFoundError as error:
        if not options.create_if_missing or error.code != StoreNotFoundError.default_code:
            raise
        Store.open(options.path, create=True).close()
        return shared_store(options.path)
    if store.uuid:
        return store
    Store.open(options.path).close()
    forget(options.path)
    return shared_store(options.path)


def _ensure_topic(store: Store, options: WriteOptions) -> None:
    check_topic_name(options.topic)
    topics = store.topics()
    if options.topic not in topics:
        if not options.create_if_missing:
            store.topic(options.topic)  # Raises, naming the nearest topic.
        with Store.open(options.path) as writable:
            writable.create_topic(options.topic)
        return
    if not topics[options.topic].writable:
        raise InvalidInputError(
            f"Topic {options.topic!r} does not permit writing (perm {topics[options.topic].perm}).",
            remedy="Give it write permission: perm 2 or 6.",
            code="TOPIC_NOT_WRITABLE",
        )
