"""A DataFrame's schema as a projection of the store's scan: unused columns are not read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyrocket.errors import SchemaError
from pyspark.sql.types import StructField, StructType

from pyspark_pyrocket.arrow_types import arrow_schema
from pyspark_pyrocket.columns.kafka import KAFKA_COLUMNS
from pyspark_pyrocket.columns.messages import (
    COLUMNS,
    PAYLOADS,
    Convert,
    Variant,
    unknown_column,
    wrong_type,
)
from pyspark_pyrocket.columns.values import ValueColumns, value_columns
from pyspark_pyrocket.json.decode import Decoder, OnBad
from pyspark_pyrocket.options.payload import Payload

_AS_IS = Payload()


@dataclass(frozen=True)
class Projection:
    """Converts batches with the columns `scan` to batches of exactly `schema`.

    Output column i is made by `converts[i]`, if any, from the columns with the indexes
    `sources[i]`. The indexes count the columns of `scan` first, then those that `decoder` adds.
    """

    scan: tuple[str, ...]
    schema: pa.Schema
    sources: tuple[tuple[int, ...], ...]
    converts: tuple[Convert | None, ...]
    decoder: Decoder | None = None

    @classmethod
    def of(cls, schema: StructType, payload: Payload = _AS_IS) -> "Projection":
        """Match every field by name and type, or raise SchemaError."""
        _check_names(schema)
        values = value_columns(schema, payload)
        variants = {
            field.name: _variant(field, payload)
            for field in schema
            if field.name not in values.places
        }
        scanned = [name for variant in variants.values() for name in variant.scanned]
        if values.decoder is not None:
            scanned += values.decoder.scanned
        scan = tuple(dict.fromkeys(scanned))
        return cls(
            scan=scan,
            schema=arrow_schema(schema),
            sources=tuple(_sources(name, scan, variants, values) for name in schema.names),
            converts=tuple(
                variants[name].convert if name in variants else None for name in schema.names
            ),
            decoder=values.decoder,
        )

    def apply(self, batch: pa.RecordBatch, on_bad: OnBad | None = None) -> pa.RecordBatch:
        """Return the batch that Spark expects; it shares the buffers of `batch`.

        `on_bad` is called with the messages whose bodies cannot be decoded.
        """
        if self.decoder is not None:
            batch = self.decoder.widen(batch, on_bad)
        columns = [
            self._column(field, [batch.column(source) for source in sources], convert)
            for field, sources, convert in zip(
                self.schema, self.sources, self.converts, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def apply_all(
        self, batches: Iterator[pa.RecordBatch], on_bad: OnBad | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Apply the projection to each batch that has rows."""
        return (self.apply(batch, on_bad) for batch in batches if batch.num_rows)

    @staticmethod
    def _column(field: pa.Field, sources: list[pa.Array], convert: Convert | None) -> pa.Array:
        column = sources[0] if convert is None else convert(*sources, field.type)
        if column.null_count and not field.nullable:
            raise SchemaError(
                f"Column {field.name!r} is NOT NULL in the schema, but {column.null_count} of "
                f"{len(column)} messages have no value for it.",
                remedy="Drop NOT NULL from this column.",
                code="COLUMN_NULL",
            )
        return column


def _sources(
    name: str, scan: tuple[str, ...], variants: Mapping[str, Variant], values: ValueColumns
) -> tuple[int, ...]:
    if name in variants:
        return tuple(map(scan.index, variants[name].scanned))
    return (len(scan) + values.places[name],)


def _check_names(schema: StructType) -> None:
    names = [name.lower() for name in schema.fieldNames()]
    twice = [
        name
        for at, name in enumerate(schema.fieldNames())
        if names.count(name.lower()) > 1 and names.index(name.lower()) == at
    ]
    if twice or not names:
        happened = (
            f"The schema names {', '.join(twice)} twice." if twice else "The schema is empty."
        )
        raise SchemaError(happened, remedy="Name at least one column, and each only once.")


def _variant(field: StructField, payload: Payload) -> Variant:
    value_format = payload.value_format
    columns = KAFKA_COLUMNS if payload.kafka_columns else COLUMNS
    name = {known.lower(): known for known in COLUMNS}.get(field.name.lower())
    if name is None:
        remedy = (
            f"The columns are: {', '.join(COLUMNS)}. To read the fields of JSON bodies, set "
            "valueFormat=json and name them in 'valueSchema'."
        )
        raise unknown_column(f"There is no column {field.name!r}.", field.name, COLUMNS, remedy)
    # `simpleString` omits nullability: a column may be declared NOT NULL.
    wanted = field.dataType.simpleString()
    variants = {variant.spark_type.simpleString(): variant for variant in columns[name]}
    if name in PAYLOADS and value_format in variants:
        variants = {value_format: variants[value_format]}
    if wanted not in variants:
        reason = f" with valueFormat={value_format}" if name in PAYLOADS and value_format else ""
        raise wrong_type(field.name, wanted + reason, f"Its type is {' or '.join(variants)}.")
    return variants[wanted]
