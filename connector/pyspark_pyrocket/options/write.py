"""All options of a write."""

from dataclasses import dataclass

from pyspark_pyrocket.options.creation import CreationOptions, check_creates, retention_of
from pyspark_pyrocket.options.delivery import DeliveryOptions, transaction_of
from pyspark_pyrocket.options.endpoint import NO_ENDPOINT, Endpoint
from pyspark_pyrocket.options.option import SINK
from pyspark_pyrocket.options.payload import EncodingOptions, json_encoding
from pyspark_pyrocket.options.table import given_options
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.topics import TOPIC


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
