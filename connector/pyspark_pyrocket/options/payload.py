"""Which columns a DataFrame has, and how bodies are decoded and encoded."""

from dataclasses import dataclass

from pyrocket import check_topic_name
from pyrocket.errors import OptionError
from pyspark.sql.types import StructType

from pyspark_pyrocket.options.ddl import parse_ddl
from pyspark_pyrocket.options.option import ALL, READS, SINK, Option, OptionReader

BINARY, STRING, JSON = "binary", "string", "json"
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
CORRUPT_RECORD = "_corrupt_record"
FAIL, EMPTY, DROP = "fail", "empty", "drop"
TEXT, BASE64 = "text", "base64"

ROWS = (
    Option(
        "schemaMode",
        "`rocketmq`",
        ALL,
        "`kafka` makes the columns and types of Spark's Kafka source the default. "
        "Writes take either kind of column in both modes.",
    ),
    Option(
        "includeHeaders",
        "`false`",
        READS,
        "With `schemaMode=kafka`: adds the column `headers`.",
    ),
    Option(
        "valueFormat",
        "`binary`",
        ALL,
        "Reads: `string` decodes bodies as UTF-8; `json` makes columns of their fields, which "
        "stand in the place of the body. Writes: `json` makes bodies of all columns that are not "
        "a message's own.",
    ),
    Option(
        "valueSchema",
        "none (stream), inferred (batch)",
        READS,
        "With `valueFormat=json`: the fields to read, as DDL (`id BIGINT, at TIMESTAMP`) or as "
        "`schema.json()` gives them. A batch without it looks at the first 1000 messages of what "
        "it reads, all queues together (with `tags` or `sql`: in 64 MiB of the log at most; as if "
        "`keys` and `msgId` were not given), or of the topics where no body of those is a JSON "
        "object, and logs the DDL to paste here.",
    ),
    Option(
        "valueColumn",
        "none",
        ALL,
        "With `valueFormat=json`: the one column, a struct, that holds all fields, so that none "
        "can have the name of a column of ours.",
    ),
    Option(
        "mode",
        "`PERMISSIVE` (json), `FAILFAST` (string)",
        READS,
        "What becomes of a body that is not what `valueFormat` says. `PERMISSIVE`: what cannot be "
        "decoded is null. `DROPMALFORMED`: its row is left out. `FAILFAST`: the query fails and "
        "names topic, queue and offset.",
    ),
    Option(
        "columnNameOfCorruptRecord",
        "`_corrupt_record`",
        READS,
        "With `mode=PERMISSIVE`: the string column that holds such a body, where `valueSchema` or "
        "the DataFrame's schema names it; null in sound rows.",
    ),
    Option(
        "badRecordsTopic",
        "none",
        READS,
        "The topic to which such messages are sent, with properties that say where each came from "
        "and why. Made if it does not exist.",
    ),
    Option(
        "nullBody",
        "`fail`",
        (SINK,),
        "What becomes of a row without a body, such as a tombstone of Kafka: `fail` fails the "
        "write; `empty` writes a body of 0 bytes with the property `pyrocketNull=body`, which "
        "`schemaMode=kafka` reads as null again; `drop` leaves the row out, and logs how many.",
    ),
    Option(
        "keyEncoding",
        "`text`",
        (SINK,),
        "How the column `key` is stored. `text`: as it is, so it has to be UTF-8 without spaces, "
        "and an empty key is none. `base64`: any bytes, with the property `pyrocketKey=base64`, by "
        "which `schemaMode=kafka` decodes them again; other reads and `keys` see the base64.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What becomes of messages.

    kafka_columns, include_headers: which columns a DataFrame has by default.
    value_format: BINARY, STRING or JSON, or "" where the user did not say.
    value_schema: the fields of a JSON body, without the column of corrupt records; None where the
    user did not say.
    value_column: the struct column that holds the fields, or "" where each is a column.
    mode: PERMISSIVE, DROPMALFORMED or FAILFAST.
    corrupt_column: what the column of corrupt records is called.
    shows_corrupt: whether `value_schema` named it.
    bad_topic: where messages go whose bodies cannot be decoded, or "".
    """

    kafka_columns: bool = False
    include_headers: bool = False
    value_format: str = ""
    value_schema: StructType | None = None
    value_column: str = ""
    mode: str = FAILFAST
    corrupt_column: str = CORRUPT_RECORD
    shows_corrupt: bool = False
    bad_topic: str = ""

    @classmethod
    def parse(cls, given: OptionReader) -> "Payload":
        """Read which columns are wanted."""
        value_format = given.one_of("valueFormat", ("", BINARY, STRING, JSON))
        _check_belongs(given, value_format)
        corrupt = given.text("columnNameOfCorruptRecord", CORRUPT_RECORD)
        if not corrupt:
            raise given.wrong("columnNameOfCorruptRecord", "Write the name of a column.")
        schema, shows_corrupt = _schema(given, corrupt)
        return cls(
            kafka_columns=is_kafka_mode(given),
            include_headers=_headers(given),
            value_format=value_format,
            value_schema=schema,
            value_column=value_column(given),
            mode=_mode(given, value_format),
            corrupt_column=corrupt,
            shows_corrupt=shows_corrupt,
            bad_topic=_bad_topic(given),
        )


def is_kafka_mode(given: OptionReader) -> bool:
    """Tell whether Kafka's columns are the default."""
    return given.one_of("schemaMode", ("rocketmq", "kafka")) == "kafka"


def value_column(given: OptionReader) -> str:
    """Return the struct column that holds the fields of bodies, or an empty string."""
    name = given.text("valueColumn")
    if "valueColumn" in given and not name:
        raise given.wrong("valueColumn", "Write the name of a column.")
    return name


def encodes_json(given: OptionReader) -> bool:
    """Tell whether a write makes bodies of a DataFrame's columns."""
    encodes = given.query == SINK and given.one_of("valueFormat", ("", JSON)) == JSON
    if "valueColumn" in given and not encodes:
        raise _needs("valueColumn", "valueFormat=json")
    return encodes


def null_body(given: OptionReader) -> str:
    """Return what a write does with rows without a body: FAIL, EMPTY or DROP."""
    return given.one_of("nullBody", (FAIL, EMPTY, DROP))


def key_encoding(given: OptionReader) -> str:
    """Return how a write stores the column `key`: TEXT or BASE64."""
    return given.one_of("keyEncoding", (TEXT, BASE64))


def _headers(given: OptionReader) -> bool:
    wanted = given.boolean("includeHeaders", default=False)
    if wanted and not is_kafka_mode(given):
        raise OptionError(
            "Option 'includeHeaders' is for schemaMode=kafka.",
            remedy="The column 'properties' holds what Kafka calls headers.",
            code="OPTION_CONFLICT",
        )
    return wanted


def _check_belongs(given: OptionReader, value_format: str) -> None:
    for option in ("valueSchema", "valueColumn"):
        if option in given and value_format != JSON:
            raise _needs(option, "valueFormat=json")
    for option in ("mode", "columnNameOfCorruptRecord", "badRecordsTopic"):
        if option in given and value_format not in (STRING, JSON):
            raise _needs(option, "valueFormat=string or valueFormat=json")


def _mode(given: OptionReader, value_format: str) -> str:
    modes = [PERMISSIVE, DROPMALFORMED, FAILFAST]
    if value_format != JSON:
        modes.reverse()
    mode = given.one_of("mode", tuple(mode.lower() for mode in modes)).upper()
    for option in ("columnNameOfCorruptRecord", "badRecordsTopic"):
        if option in given and mode == FAILFAST:
            raise _needs(option, "another mode than FAILFAST, which shows no bad row")
    return mode


def _schema(given: OptionReader, corrupt: str) -> tuple[StructType | None, bool]:
    """Return the fields to read, and whether the column of corrupt records is among the given."""
    if "valueSchema" not in given:
        return None, False
    schema = parse_ddl("valueSchema", given.text("valueSchema"))
    named = [field for field in schema if field.name == corrupt]
    if named and named[0].dataType.simpleString() != "string":
        raise given.wrong("valueSchema", f"{corrupt!r} holds bodies as they are: make it STRING.")
    return StructType([field for field in schema if field.name != corrupt]), bool(named)


def _bad_topic(given: OptionReader) -> str:
    topic = given.text("badRecordsTopic")
    if "badRecordsTopic" in given:
        check_topic_name(topic)
    return topic


def _needs(option: str, what: str) -> OptionError:
    return OptionError(
        f"Option {option!r} is given, and it needs {what}.",
        remedy=f"Set that, or remove {option!r}.",
        code="OPTION_CONFLICT",
    )
