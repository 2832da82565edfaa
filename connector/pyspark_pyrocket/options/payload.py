"""Which columns a DataFrame has, and how bodies are decoded."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import ALL, READS, Option

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
        READS,
        "`string` decodes bodies as UTF-8; invalid bytes fail the query and name the offset.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What becomes of messages.

    kafka_columns, include_headers: which columns a DataFrame has by default.
    value_format: "binary", "string", or "" where the user did not say.
    """

    kafka_columns: bool = False
    include_headers: bool = False
    value_format: str = ""

    @classmethod
    def parse(cls, given: Given) -> "Payload":
        """Read which columns are wanted."""
        payload = cls(
            kafka_columns=is_kafka_mode(given),
            include_headers=given.boolean("includeHeaders", default=False),
            value_format=given.one_of("valueFormat", ("", "binary", "string")),
        )
        if payload.include_headers and not payload.kafka_columns:
            raise OptionError(
                "Option 'includeHeaders' is for schemaMode=kafka.",
                remedy="The column 'properties' holds what Kafka calls headers.",
                code="OPTION_CONFLICT",
            )
        return payload


def is_kafka_mode(given: Given) -> bool:
    """Tell whether Kafka's columns are the default."""
    return given.one_of("schemaMode", ("rocketmq", "kafka")) == "kafka"
