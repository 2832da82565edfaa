"""All that a write asks for."""

from dataclasses import dataclass

from pyrocket import StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.creation import (
    RetentionOptions,
    creates,
    directory_mode,
    retention_of,
)
from pyspark_pyrocket.options.delivery import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    FLUSH_ASYNC,
    FLUSH_SYNC,
    FLUSH_TASK,
    Transaction,
    on_batch_gap,
    on_replay_difference,
    timer_max_delay_ms,
    transaction_of,
)
from pyspark_pyrocket.options.option import SINK
from pyspark_pyrocket.options.payload import (
    FAIL,
    TEXT,
    encodes_json,
    is_kafka_mode,
    key_encoding,
    null_body,
    value_column,
)
from pyspark_pyrocket.options.table import given_options
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.topics import one_topic


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """What a write asks for.

    path: the store's directory, absolute.
    topic: where every row goes, or an empty string where a column says it.
    create_if_missing: whether the store and its topics are made when they are needed.
    directory_mode: permissions of a store that is made then; None: as the umask says.
    retention: how long such a store keeps messages; None: all are kept.
    delivery: EXACTLY_ONCE or AT_LEAST_ONCE.
    transaction: what makes a batch write the same one again; None where the user gave nothing.
    on_replay_difference: FAIL, DROP or PUBLISH a repetition with other rows.
    on_batch_gap: FAIL or ACCEPT where earlier micro-batches are missing in the store.
    flush: when rows are durable, FLUSH_TASK, FLUSH_SYNC or FLUSH_ASYNC; at-least-once only.
    timer_max_delay_ms: how far ahead due times may lie.
    encodes_json: whether bodies are made of the columns that are not a message's own.
    value_column: then: the struct column that is the body instead, or an empty string.
    null_body: what becomes of rows without a body, FAIL, EMPTY or DROP.
    key_encoding: how the column `key` is stored, TEXT or BASE64.
    """

    path: str
    topic: str = ""
    create_if_missing: bool = True
    directory_mode: int | None = None
    retention: RetentionOptions | None = None
    delivery: str = EXACTLY_ONCE
    transaction: Transaction | None = None
    on_replay_difference: str = FAIL
    on_batch_gap: str = FAIL
    flush: str = FLUSH_TASK
    timer_max_delay_ms: int = StoreConfig().timer_max_delay_ms
    encodes_json: bool = False
    value_column: str = ""
    null_body: str = FAIL
    key_encoding: str = TEXT

    @classmethod
    def parse(cls, request: Request, *, streaming: bool = False) -> "WriteOptions":
        """Read and check the options of a batch or streaming write."""
        path, given = given_options(request, SINK)
        is_kafka_mode(given)
        delivery = given.one_of("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE))
        flush = given.one_of("flush", (FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC))
        if delivery == EXACTLY_ONCE and flush != FLUSH_TASK:
            raise OptionError(
                f"Option 'flush' says {flush}, and a write that is exactly-once is always durable "
                "when it appears.",
                remedy="Remove 'flush', or set 'delivery' to at-least-once.",
                code="OPTION_CONFLICT",
            )
        return cls(
            path=path,
            topic=one_topic(given) if "topic" in given else "",
            create_if_missing=creates(given),
            directory_mode=directory_mode(given),
            retention=retention_of(given),
            delivery=delivery,
            transaction=transaction_of(given, delivery, streaming=streaming),
            on_replay_difference=on_replay_difference(given, delivery),
            on_batch_gap=on_batch_gap(given),
            flush=flush,
            timer_max_delay_ms=timer_max_delay_ms(given),
            encodes_json=encodes_json(given),
            value_column=value_column(given),
            null_body=null_body(given),
            key_encoding=key_encoding(given),
        )
