"""The columns that a read makes of bodies when the user gives no schema; looks at messages."""

from collections.abc import Iterable, Iterator

from pyrocket import Store
from pyrocket.errors import SchemaError
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_pyrocket.frame.value_checks import check_names
from pyspark_pyrocket.options.ddl import to_ddl
from pyspark_pyrocket.options.payload import JSON
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.payload.inference import infer_schema
from pyspark_pyrocket.processes import LOG

SAMPLED = 1000
"""Messages that are looked at, the oldest of all queues."""


def value_fields(
    store: Store, topics: Iterable[str], options: ReadOptions
) -> list[StructField] | None:
    """Return the columns that stand where the body would, or None where it stays.

    Raises SchemaError if they cannot be known, or have names that are taken.
    """
    payload = options.payload
    if payload.value_format != JSON:
        return None
    schema = payload.value_schema
    if schema is None:
        schema = _inferred(store, list(topics), options)
    check_names(payload, schema)
    fields = list(schema)
    if payload.value_column:
        fields = [StructField(payload.value_column, StructType(fields))]
    if payload.shows_corrupt:
        fields.append(StructField(payload.corrupt_column, StringType()))
    return fields


def _inferred(store: Store, topics: list[str], options: ReadOptions) -> StructType:
    schema = infer_schema(_first_bodies(store, topics, options))
    if schema is None:
        raise SchemaError(
            f"No body among the first {SAMPLED} messages of {', '.join(topics)} is a JSON object "
            "with fields, so the columns are not known.",
            remedy="Give the option 'valueSchema', as in valueSchema='id BIGINT, at TIMESTAMP'.",
            code="VALUE_SCHEMA_UNKNOWN",
        )
    LOG.warning(
        "valueSchema is not given; the first messages of %s have, to be pasted there: %s",
        ", ".join(topics),
        to_ddl(schema),
    )
    return schema


def _first_bodies(store: Store, topics: list[str], options: ReadOptions) -> Iterator[bytes]:
    """Yield the oldest bodies, as many of each queue that has any."""
    queues = [
        (topic, queue, bounds[queue])
        for topic, bounds in ((topic, store.offsets(topic)) for topic in topics)
        for queue in options.subscription.chosen(topic, bounds)
        if bounds[queue].minimum < bounds[queue].maximum
    ]
    for topic, queue, offsets in queues:
        share = -(-SAMPLED // len(queues))
        end = min(offsets.minimum + share, offsets.maximum)
        for batch in store.scan(topic, queue, offsets.minimum, end, ("body",)):
            yield from batch.column(0).to_pylist()
