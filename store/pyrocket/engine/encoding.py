"""Encodes a batch of rows as records: split by topic, routed and encoded."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.engine.message_encoder import MessageEncoder, TopicRoute, name_row
from pyrocket.errors import MessageError, TopicNameError, TopicNotFoundError
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import SendColumns
from pyrocket.metadata.topics import check_topic_name


def encode_rows(
    outgoing: MessageEncoder,
    batch: pa.RecordBatch,
    columns: SendColumns,
    topic: str | None,
    first_queue: int,
    route_to: Callable[[str], TopicRoute],
) -> list[EncodedBatch]:
    """Return the rows of a checked batch as records; `topic` overrides the column.

    Raises MessageError naming the row, and the errors of `route_to`.
    """
    encoded: list[EncodedBatch] = []
    for name, rows in _by_topic(batch, topic):
        route = route_to(name)
        part = columns if rows is None else columns.take(rows)
        try:
            encoded += outgoing.encode_columns(part, route, first_queue)
        except MessageError as error:
            raise name_row(error, rows) from None
    return encoded


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.Array | None]]:
    """Return each topic and its rows; None means all rows."""
    if topic is not None:
        return [(topic, None)]
    if "topic" not in batch.schema.names:
        raise TopicNotFoundError(
            "no topic is named.",
            remedy="Name one for the batch, or give it a `topic` column.",
            code="TOPIC_MISSING",
        )
    column = batch.column("topic")
    missing = pc.index(column.is_null(), True).as_py()
    if missing >= 0:
        raise MessageError(
            f"row {missing} has a null topic.",
            remedy="Name a topic in each row, or one for all rows.",
            code="TOPIC_MISSING",
        )
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for code, name in enumerate(names):
        _check_name_of_row(name, encoded.indices, code)
    if len(names) == 1:
        return [(names[0], None)]
    return [
        (name, pc.indices_nonzero(pc.equal(encoded.indices, code)))
        for code, name in enumerate(names)
    ]


def _check_name_of_row(name: str, codes: pa.Int32Array, code: int) -> None:
    """Raise TopicNameError naming the first row with an illegal topic."""
    try:
        check_topic_name(name)
    except TopicNameError as error:
        row = pc.index(codes, code).as_py()
        raise TopicNameError(f"row {row}: {error.message}", remedy=error.remedy) from None
