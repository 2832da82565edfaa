"""Which columns a DataFrame has, and how bodies are decoded and encoded."""

from dataclasses import dataclass, field

from pyrocket import check_topic_name
from pyrocket.errors import OptionError
from pyspark.sql.types import StructType

from pyspark_pyrocket.options.ddl import parse_ddl
from pyspark_pyrocket.options.option import (
    ALL,
    READS,
    SINK,
    TEXT,
    Kind,
    Option,
    OptionReader,
    boolean,
    choice,
    conflict,
    invalid,
    made_of,
)

BINARY, STRING, JSON = "binary", "string", "json"
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
CORRUPT_RECORD = "_corrupt_record"
FAIL, EMPTY, DROP = "fail", "empty", "drop"
TEXT_KEY, BASE64 = "text", "base64"


def _parse_column(option: str, text: str) -> str:
    if not text:
        raise invalid(option, text, "Write the name of a column.")
    return text


def _parse_topic(option: str, text: str) -> str:
    check_topic_name(text)
    return text


def _modes(*modes: str) -> Kind[str]:
    return choice(*(mode.lower() for mode in modes)).then(str.upper)


_SCHEMA_MODE = Option(
    "schemaMode",
    ALL,
    choice("rocketmq", "kafka").then("kafka".__eq__),
    "`kafka` makes the columns and types of Spark's Kafka source the default. Writes accept both "
    "kinds of columns in both modes.",
)
_VALUE_FORMAT = Option(
    "valueFormat",
    ALL,
    choice("", BINARY, STRING, JSON),
    "Reads: `string` decodes bodies as UTF-8; `json` turns their fields into columns, in place of "
    "the body. Writes: `json` encodes all columns except those of a write (`topic`, `tags`, "
    "`keys`, ...) as the body.",
    default="`binary`",
)
_VALUE_SCHEMA = Option(
    "valueSchema",
    READS,
    TEXT,
    "With `valueFormat=json`: the fields to read, as DDL (`id BIGINT, at TIMESTAMP`) or as "
    "`schema.json()` returns them. Without it, a batch infers the fields and logs their DDL. It "
    "examines the first 1000 messages that it reads, over all queues. If none of their bodies "
    "is a JSON object, it examines the oldest messages of the topics instead. With `tags` or "
    "`sql`, at most 64 MiB of the log are searched; `keys` and `msgId` are ignored.",
    default="none (stream), inferred (batch)",
)
_VALUE_COLUMN = Option(
    "valueColumn",
    ALL,
    Kind("text", _parse_column, ""),
    "With `valueFormat=json`: the name of one struct column for all fields, so that no field can "
    "clash with a column of a message.",
)
_MODE = Option(
    "mode",
    READS,
    _modes(FAILFAST, DROPMALFORMED, PERMISSIVE),
    "How to handle a body that does not match `valueFormat`. `PERMISSIVE`: values that cannot be "
    "decoded are null. `DROPMALFORMED`: the row is dropped. `FAILFAST`: the query fails with an "
    "error that names topic, queue and offset.",
    default="`PERMISSIVE` (json), `FAILFAST` (string)",
)
_MODES_OF_JSON = _modes(PERMISSIVE, DROPMALFORMED, FAILFAST)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Which columns a read has, and how it decodes bodies.

    kafka_columns, include_headers: which columns a DataFrame has by default.
    value_format: BINARY, STRING or JSON, or "" if none is given.
    value_schema: the fields of a JSON body, without the column of corrupt records; None if none is
    given.
    value_column: the struct column that holds the fields, or "" if each field is a column.
    mode: PERMISSIVE, DROPMALFORMED or FAILFAST.
    corrupt_column: the name of the column of corrupt records.
    shows_corrupt: whether the option `valueSchema` has this column.
    bad_topic: the topic for messages whose bodies cannot be decoded, or "".
    """

    kafka_columns: bool = _SCHEMA_MODE.field()
    include_headers: bool = Option(
        "includeHeaders",
        READS,
        boolean(default=False),
        "With `schemaMode=kafka`: adds the column `headers`.",
    ).field()
    value_format: str = _VALUE_FORMAT.field()
    value_schema: StructType | None = field(default=None, metadata=made_of(_VALUE_SCHEMA))
    value_column: str = _VALUE_COLUMN.field()
    mode: str = field(default=FAILFAST, metadata=made_of(_MODE))
    corrupt_column: str = Option(
        "columnNameOfCorruptRecord",
        READS,
        Kind("text", _parse_column, CORRUPT_RECORD),
        "With `mode=PERMISSIVE`: the string column for bodies that do not match, if "
        "`valueSchema` or the DataFrame's schema contains it; null in other rows.",
        default="`_corrupt_record`",
    ).field()
    shows_corrupt: bool = False
    bad_topic: str = Option(
        "badRecordsTopic",
        READS,
        Kind("text", _parse_topic, ""),
        "The topic to which messages with invalid bodies are sent, with properties that name "
        "their origin and the reason. The topic is created if it does not exist.",
    ).field()

    @classmethod
    def parse(cls, given: OptionReader) -> "Payload":
        value_format = given.read(_VALUE_FORMAT)
        _check_belongs(given, value_format)
        mode = given.read(_MODE, _MODES_OF_JSON if value_format == JSON else None)
        for option in ("columnNameOfCorruptRecord", "badRecordsTopic"):
            if option in given and mode == FAILFAST:
                raise _needs(option, "a mode other than FAILFAST, which fails at a bad row")
        values = given.read_fields(cls)
        if values["include_headers"] and not values["kafka_columns"]:
            raise conflict(
                "Option 'includeHeaders' is for schemaMode=kafka.",
                "The column 'properties' holds what Kafka calls headers.",
            )
        schema, shows_corrupt = _schema(given, values["corrupt_column"])
        return cls(**values, value_schema=schema, mode=mode, shows_corrupt=shows_corrupt)


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """How a write encodes the bodies and keys of messages.

    encodes_json: whether all columns except those of a write (`topic`, `tags`, `keys`, ...) are
    encoded as the body.
    value_column: the struct column that is encoded instead of those columns, or an empty string.
    null_body: what happens to rows without a body, FAIL, EMPTY or DROP.
    key_encoding: how the column `key` is stored, TEXT_KEY or BASE64.
    """

    encodes_json: bool = False
    value_column: str = ""
    null_body: str = Option(
        "nullBody",
        (SINK,),
        choice(FAIL, EMPTY, DROP),
        "How to write a row without a body, such as a tombstone from Kafka. `fail`: the write "
        "fails. `empty`: a body of 0 bytes with the property `pyrocketNull=body`, which "
        "`schemaMode=kafka` reads as null again. `drop`: the row is dropped, and the number of "
        "dropped rows is logged.",
    ).field()
    key_encoding: str = Option(
        "keyEncoding",
        (SINK,),
        choice(TEXT_KEY, BASE64),
        "How the column `key` is stored. `text`: unchanged, so the key has to be UTF-8 without "
        "spaces, and an empty key means no key. `base64`: any bytes, encoded and marked by the "
        "property `pyrocketKey=base64`. `schemaMode=kafka` decodes marked keys; other reads return "
        "the base64, and the option `keys` has to be given in base64.",
    ).field()


def json_encoding(given: OptionReader) -> tuple[bool, str]:
    """Return whether a write encodes columns as JSON, and the struct column to encode, or ""."""
    given.read(_SCHEMA_MODE)  # Writes accept the columns of both modes: only check the value.
    encodes_json = given.read(_VALUE_FORMAT, choice("", JSON)) == JSON
    if _VALUE_COLUMN.name in given and not encodes_json:
        raise _needs(_VALUE_COLUMN.name, "valueFormat=json")
    return encodes_json, given.read(_VALUE_COLUMN)


def _check_belongs(given: OptionReader, value_format: str) -> None:
    for option in ("valueSchema", "valueColumn"):
        if option in given and value_format != JSON:
            raise _needs(option, "valueFormat=json")
    for option in ("mode", "columnNameOfCorruptRecord", "badRecordsTopic"):
        if option in given and value_format not in (STRING, JSON):
            raise _needs(option, "valueFormat=string or valueFormat=json")


def _schema(given: OptionReader, corrupt: str) -> tuple[StructType | None, bool]:
    """Return the fields to read, and whether they include the column of corrupt records."""
    if "valueSchema" not in given:
        return None, False
    schema = parse_ddl("valueSchema", given.text("valueSchema"))
    named = [field for field in schema if field.name == corrupt]
    if named and named[0].dataType.simpleString() != "string":
        raise given.wrong("valueSchema", f"{corrupt!r} contains bodies unchanged: make it STRING.")
    return StructType([field for field in schema if field.name != corrupt]), bool(named)


def _needs(option: str, condition: str) -> OptionError:
    return conflict(
        f"Option {option!r} is given, but it needs {condition}.", f"Set that, or remove {option!r}."
    )
