"""All options of a write."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.creation import CreationOptions, check_creates, retention_of
from pyspark_pyrocket.options.delivery import AT_LEAST_ONCE, DeliveryOptions, transaction_of
from pyspark_pyrocket.options.endpoint import NO_ENDPOINT, Endpoint
from pyspark_pyrocket.options.option import SINK, OptionReader
from pyspark_pyrocket.options.payload import EncodingOptions, json_encoding
from pyspark_pyrocket.options.table import TABLE, given_options
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.topics import TOPIC


def check_cluster(given: OptionReader) -> None:
    """Raise OptionError for what a cluster of RocketMQ cannot do."""
    if given.text("delivery").lower() != AT_LEAST_ONCE:
        raise OptionError(
            "A cluster of RocketMQ cannot store the rows of a write together and once: its commits"
            " of transactions are neither fenced nor idempotent, and take effect one by one and out"
            " of order.",
            remedy="Set delivery=at-least-once. A repeated row has the same msgId, by which its"
            " readers can drop it: see CLUSTER.md.",
            code="OPTION_UNSUPPORTED",
        )
    for option in TABLE:
        if option.name in given and "namesrv" not in option.targets:
            raise OptionError(
                f"Option {option.name!r} is not supported by a cluster of RocketMQ.",
                remedy="Remove it: topics, retention and flushes are settings of the cluster.",
                code="OPTION_UNSUPPORTED",
            )


@dataclass(frozen=True, kw_only=True)
class WriteOptions(CreationOptions, DeliveryOptions, EncodingOptions):
    """The options of a write: those of its base classes, the store and the topic.

    path: the store's directory, absolute; empty with an endpoint.
    topic: the topic of every row; empty if the column `topic` names each row's topic.
    """

    path: str = ""
    endpoint: Endpoint = NO_ENDPOINT
    topic: str = TOPIC.field()

    @classmethod
    def parse(cls, request: Request, *, streaming: bool = False) -> "WriteOptions":
        path, given = given_options(request, SINK)
        if "namesrv" in given:
            check_cluster(given)
        check_creates(given)
        values = given.read_fields(cls)
        encodes_json, value_column = json_encoding(given)
        options = cls(
            **values,
            path=path,
            endpoint=Endpoint(**given.read_fields(Endpoint)),
            retention=retention_of(given),
            transaction=transaction_of(given, values["delivery"], streaming=streaming),
            encodes_json=encodes_json,
            value_column=value_column,
        )
        options.check(given)
        return options
