"""The columns of a DataFrame that are decoded from bodies: their checks and decoder. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyrocket.errors import OptionError, SchemaError
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.columns.messages import COLUMNS, PAYLOADS, unknown_column, wrong_type
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.options.ddl import to_ddl
from pyspark_pyrocket.options.option import conflict
from pyspark_pyrocket.options.payload import DROPMALFORMED, FAILFAST, JSON, STRING, Payload

MESSAGE_COLUMNS = {name.lower(): name for name in COLUMNS}
"""The columns of messages, by their names in lower case."""


def check_names(payload: Payload, fields: Iterable[StructField]) -> None:
    """Raise unless each column that bodies are decoded into has a unique name.

    Raises OptionError (OPTION_CONFLICT), SchemaError (VALUE_COLUMN_TAKEN).
    """
    for option, name in (
        ("valueColumn", payload.value_column),
        ("columnNameOfCorruptRecord", payload.corrupt_column),
    ):
        if name.lower() in MESSAGE_COLUMNS:
            raise conflict(
                f"Option {option!r} is {name!r}, which is the name of a column of messages.",
                "Choose another name.",
            )
    if payload.value_column.lower() == payload.corrupt_column.lower():
        raise conflict(
            f"Option 'valueColumn' is {payload.value_column!r}, which holds corrupt records.",
            "Choose another name.",
        )
    if payload.value_column:
        return
    taken = {**MESSAGE_COLUMNS, payload.corrupt_column.lower(): payload.corrupt_column}
    for field in fields:
        if field.name.lower() in taken:
            raise _taken(field.name, taken[field.name.lower()])
        taken[field.name.lower()] = field.name


def _taken(name: str, column: str) -> SchemaError:
    return SchemaError(
        f"The field {name!r} of the bodies has the name of the column {column!r}.",
        remedy="Set the option 'valueColumn' to a name, such as payload: that column is then a "
        f"struct with all fields, and this one is payload.{name}.",
        code="VALUE_COLUMN_TAKEN",
    )


def _check_struct(field: StructField, payload: Payload) -> None:
    if field.name.lower() != payload.value_column.lower():
        raise _unknown(field.name, [*COLUMNS, payload.value_column])
    if not isinstance(field.dataType, StructType):
        raise _not(field, "a struct of fields of the bodies")
    for inner in field.dataType:
        _check_known(inner, payload.value_schema)


def _check_known(field: StructField, known: StructType | None) -> None:
    if known is None:
        return
    types = {column.name.lower(): column.dataType.simpleString() for column in known}
    if field.name.lower() not in types:
        raise _unknown(field.name, [*COLUMNS, *known.names])
    if field.dataType.simpleString() != types[field.name.lower()]:
        raise _not(field, f"{types[field.name.lower()]}, as in valueSchema")


def _check_type(field: StructField) -> None:
    try:
        arrow_type(field.dataType)
    except KeyError:
        raise _not(field, "a type that JSON can represent") from None
    if not _can_fill(field.dataType):
        raise SchemaError(
            f"Column {field.name!r} is {field.dataType.simpleString()}, with NOT NULL inside or "
            "with map keys that are not strings, which JSON bodies cannot guarantee.",
            remedy="Remove NOT NULL from the column's type, and use STRING for the keys of maps.",
            code="COLUMN_TYPE",
        )


def _can_fill(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(field.nullable and _can_fill(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _can_fill(kind.elementType)
    if isinstance(kind, MapType):
        is_text = isinstance(kind.keyType, StringType)
        return is_text and kind.valueContainsNull and _can_fill(kind.valueType)
    return True


def _unknown(name: str, names: list[str]) -> SchemaError:
    names_text = ", ".join(names)
    remedy = f"The columns are: {names_text}. Fields of the bodies have to be in 'valueSchema'."
    return unknown_column(f"There is no column {name!r}.", name, names, remedy)


def _not(field: StructField, right: str) -> SchemaError:
    return wrong_type(field.name, field.dataType.simpleString(), f"It has to be {right}.")


@dataclass(frozen=True)
class ValueColumns:
    """The decoder of a read; `places` maps a DataFrame column to its index among decoded columns.

    decoder: None if no column is decoded from bodies.
    """

    decoder: Decoder | None
    places: Mapping[str, int]


def value_columns(schema: StructType, payload: Payload) -> ValueColumns:
    """Plan the columns that are decoded from bodies. Raises SchemaError, OptionError."""
    if payload.value_format not in (STRING, JSON):
        return ValueColumns(None, {})
    check_names(payload, payload.value_schema or ())
    corrupt = [field for field in schema if _is_corrupt(field, payload)]
    texts = [field for field in schema if _is_text(field, payload, bool(corrupt))]
    values = _values(schema, payload)
    # The number of rows must not depend on which columns are selected.
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
    """Return the indexes of the fields in the struct column; None if there is no such column."""
    if fields is None or not (payload.value_column and values):
        return None
    return _indices(_inside(values, payload), fields)


def _made(
    values: list[StructField], fields: StructType | None, struct: dict[str, int] | None
) -> dict[str, int]:
    """Return the index of the decoded column for each column of the DataFrame."""
    if fields is None or struct is not None:
        return {field.name: 0 for field in values}
    return _indices(values, fields)


def _indices(asked: list[StructField], fields: StructType) -> dict[str, int]:
    """Return the indexes of the fields by name; exact matches take precedence."""
    places = {name.lower(): at for at, name in enumerate(fields.names)}
    places |= {name: at for at, name in enumerate(fields.names)}
    return {field.name: places.get(field.name, places[field.name.lower()]) for field in asked}


def require_value_schema(payload: Payload, schema: StructType) -> None:
    """Raise OptionError if valueSchema is missing: it could be inferred differently later."""
    if payload.value_format != JSON or payload.value_schema is not None:
        return
    inferred = StructType(_inside(_values(schema, payload), payload))
    now = f"For the existing messages it would be: {to_ddl(inferred)}" if len(inferred) else ""
    raise OptionError(
        "A stream with valueFormat=json needs the option 'valueSchema': its columns must not depend"
        f" on the messages that exist when the query starts. {now}".rstrip(),
        remedy="Set it to DDL, as in valueSchema='id BIGINT, at TIMESTAMP'.",
        code="OPTION_MISSING",
    )


def _is_corrupt(field: StructField, payload: Payload) -> bool:
    if field.name.lower() != payload.corrupt_column.lower():
        return False
    if field.dataType != StringType():
        raise _not(field, "string, because it contains bodies unchanged")
    return True


def _is_text(field: StructField, payload: Payload, corrupt: bool) -> bool:
    """Return whether this column is the body as a string, and the query handles invalid bodies.

    Otherwise the store decodes the body, and the query fails at the first invalid one.
    """
    is_text = MESSAGE_COLUMNS.get(field.name.lower()) in PAYLOADS and field.dataType == StringType()
    return is_text and (corrupt or payload.mode != FAILFAST)


def _values(schema: StructType, payload: Payload) -> list[StructField]:
    if payload.value_format != JSON:
        return []
    not_values = {*MESSAGE_COLUMNS, payload.corrupt_column.lower()}
    values = [field for field in schema if field.name.lower() not in not_values]
    for field in values:
        if payload.value_column:
            _check_struct(field, payload)
        else:
            _check_known(field, payload.value_schema)
        _check_type(field)
    return values


def _fields(values: list[StructField], payload: Payload, *, strict: bool) -> StructType | None:
    """Return the fields to decode, with their names in the bodies; None if there are none."""
    if payload.value_format != JSON or not (values or strict):
        return None
    asked = _inside(values, payload)
    known = payload.value_schema
    if known is None:
        return StructType([StructField(field.name, field.dataType) for field in asked])
    wanted = {field.name.lower() for field in asked}
    return StructType([field for field in known if strict or field.name.lower() in wanted])


def _inside(values: list[StructField], payload: Payload) -> list[StructField]:
    """Return the fields of bodies that the columns contain."""
    if not payload.value_column:
        return values
    structs = [field.dataType for field in values if isinstance(field.dataType, StructType)]
    return [inner for struct in structs for inner in struct]
