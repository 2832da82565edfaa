"""Which columns of a DataFrame are made of bodies, and by which decoder. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyrocket.errors import OptionError
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_pyrocket.columns.messages import PAYLOADS
from pyspark_pyrocket.columns.value_checks import OURS, check_names, check_value, wrong_type
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.options.ddl import to_ddl
from pyspark_pyrocket.options.payload import DROPMALFORMED, FAILFAST, JSON, STRING, Payload


@dataclass(frozen=True)
class ValueColumns:
    """The decoder of a read, and which of its columns each column of the DataFrame is.

    Without a decoder nothing is made of bodies but the body itself.
    """

    decoder: Decoder | None
    places: Mapping[str, int]


def value_columns(schema: StructType, payload: Payload) -> ValueColumns:
    """Find the columns that bodies are decoded for. Raises SchemaError, OptionError."""
    if payload.value_format not in (STRING, JSON):
        return ValueColumns(None, {})
    check_names(payload, payload.value_schema or ())
    corrupt = [field for field in schema if _is_corrupt(field, payload)]
    texts = [field for field in schema if _is_text(field, payload, bool(corrupt))]
    values = _values(schema, payload)
    # How many rows there are must not depend on which columns are asked for.
    strict = bool(corrupt or payload.bad_topic or payload.mode == DROPMALFORMED)
    fields = _fields(values, payload, strict=strict)
    text = bool(texts) or (strict and payload.value_format == STRING)
    if fields is None and not text:
        return ValueColumns(None, {})
    struct = _struct(values, fields, payload)
    decoder = Decoder(
        payload.mode, text, fields, struct, bool(corrupt), nulls=payload.kafka_columns
    )
    made = _made(values, fields, struct)
    places = {field.name: 0 for field in texts}
    places |= {name: int(text) + at for name, at in made.items()}
    count = 0 if fields is None else len(fields) if struct is None else 1
    return ValueColumns(decoder, places | {field.name: int(text) + count for field in corrupt})


def _struct(
    values: list[StructField], fields: StructType | None, payload: Payload
) -> dict[str, int] | None:
    """Return which fields the one struct column holds, if that is asked for."""
    if fields is None or not (payload.value_column and values):
        return None
    return _indices(_inside(values, payload), fields)


def _made(
    values: list[StructField], fields: StructType | None, struct: dict[str, int] | None
) -> dict[str, int]:
    """Return which of the columns made of JSON each column of the DataFrame is."""
    if fields is None or struct is not None:
        return {field.name: 0 for field in values}
    return _indices(values, fields)


def _indices(asked: list[StructField], fields: StructType) -> dict[str, int]:
    """Return where the fields are; a schema may write their names in other letters."""
    places = {name.lower(): at for at, name in enumerate(fields.names)}
    places |= {name: at for at, name in enumerate(fields.names)}
    return {each.name: places.get(each.name, places[each.name.lower()]) for each in asked}


def require_value_schema(payload: Payload, schema: StructType) -> None:
    """Raise OptionError about a stream whose fields could be others when it runs again."""
    if payload.value_format != JSON or payload.value_schema is not None:
        return
    found = StructType(_inside(_values(schema, payload), payload))
    now = f"For the messages that are there now it would be: {to_ddl(found)}" if len(found) else ""
    raise OptionError(
        "A stream with valueFormat=json needs the option 'valueSchema': its columns may not depend "
        f"on which messages there are when it starts. {now}".rstrip(),
        remedy="Give it as DDL, as in valueSchema='id BIGINT, at TIMESTAMP'.",
        code="OPTION_MISSING",
    )


def _is_corrupt(field: StructField, payload: Payload) -> bool:
    if field.name.lower() != payload.corrupt_column.lower():
        return False
    if field.dataType != StringType():
        raise wrong_type(field.name, field.dataType, "string: it holds bodies as they are")
    return True


def _is_text(field: StructField, payload: Payload, corrupt: bool) -> bool:
    """Tell whether this is the body as a string, and bad ones have to be dealt with here.

    Otherwise the store decodes it, and fails the query at the first bad one.
    """
    is_text = OURS.get(field.name.lower()) in PAYLOADS and field.dataType == StringType()
    return is_text and (corrupt or payload.mode != FAILFAST)


def _values(schema: StructType, payload: Payload) -> list[StructField]:
    """Return the fields that are none of ours, checked."""
    if payload.value_format != JSON:
        return []
    not_values = {*OURS, payload.corrupt_column.lower()}
    values = [field for field in schema if field.name.lower() not in not_values]
    for field in values:
        check_value(field, payload)
    return values


def _fields(values: list[StructField], payload: Payload, *, strict: bool) -> StructType | None:
    """Return what is decoded, under the names that bodies use, or None if nothing is."""
    if payload.value_format != JSON or not (values or strict):
        return None
    asked = _inside(values, payload)
    known = payload.value_schema
    if known is None:
        return StructType([StructField(field.name, field.dataType) for field in asked])
    wanted = {field.name.lower() for field in asked}
    return StructType([field for field in known if strict or field.name.lower() in wanted])


def _inside(values: list[StructField], payload: Payload) -> list[StructField]:
    """Return the fields of bodies that the columns hold."""
    if not payload.value_column:
        return values
    structs = [field.dataType for field in values if isinstance(field.dataType, StructType)]
    return [inner for struct in structs for inner in struct]
