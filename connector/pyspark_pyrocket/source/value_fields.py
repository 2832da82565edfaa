"""The columns that a read makes of bodies when the user gives no schema; looks at messages."""

from collections.abc import Iterable

from pyrocket import Store
from pyrocket.errors import SchemaError
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_pyrocket.columns.values import check_names
from pyspark_pyrocket.json.infer import infer_schema
from pyspark_pyrocket.options.ddl import to_ddl
from pyspark_pyrocket.options.payload import JSON
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.infer_schema import SAMPLED, bodies_to_read, oldest_bodies
from pyspark_pyrocket.worker import LOG


def value_fields(
    store: Store | None, topics: Iterable[str], options: ReadOptions
) -> list[StructField] | None:
    """Return the columns that stand where the body would, or None where it stays.

    Raises SchemaError if they cannot be known, as without a store, or have names that are taken.
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


def _inferred(store: Store | None, topics: list[str], options: ReadOptions) -> StructType:
    asked = ", ".join(options.subscription.topics) or options.subscription.pattern
    where = ", ".join(topics) or asked or f"view={options.view}"
    looked_at = f"the first messages to read of {where}"
    schema = None if store is None else infer_schema(bodies_to_read(store, options))
    if schema is None and store is not None:
        looked_at = f"none of those to read is a JSON object, but the first of all of {where}"
        schema = infer_schema(oldest_bodies(store, topics, options))
    if schema is None:
        raise SchemaError(
            f"No body among the first {SAMPLED} messages of {where} is a JSON object "
            "with fields, so the columns are not known.",
            remedy="Give the option 'valueSchema', as in valueSchema='id BIGINT, at TIMESTAMP'.",
            code="VALUE_SCHEMA_UNKNOWN",
        )
    LOG.warning(
        "valueSchema is not given; %s have, to be pasted there: %s", looked_at, to_ddl(schema)
    )
    return schema
