"""Spark's strings → ReadOptions and WriteOptions: the only place that reads them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.offsets import EARLIEST, LATEST, OffsetChoice
from pyspark_pyrocket.option_table import BATCH, READ, SINK, STREAM, known_options
from pyspark_pyrocket.target import TABLE_TRAP, Request, split_target

MESSAGES, SCHEDULED, HALF = "messages", "scheduled", "half"
FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC = "task", "sync", "async"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"

_FROM_EARLIEST = OffsetChoice("startingOffsets", EARLIEST)
_TO_LATEST = OffsetChoice("endingOffsets", LATEST)
_MOST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a read asks for.

    path: the store's directory, absolute.
    topics: at least one, in the order given.
    starting, ending: the offsets of a batch, or those a stream begins with.
    max_rows: messages per micro-batch, or None for no limit.
    wait_for_topics: whether topics may be missing, as long as one exists.
    kafka_columns, include_headers: which columns a DataFrame has by default.
    value_format: "binary", "string", or "" where the user did not say.
    coalesce_queues: whether small queues share a task.
    view: MESSAGES, or what waits in the store, SCHEDULED or HALF.
    verify_crc: whether bodies are checked against their checksums.
    """

    path: str
    topics: tuple[str, ...]
    starting: OffsetChoice = _FROM_EARLIEST
    ending: OffsetChoice = _TO_LATEST
    max_rows: int | None = None
    wait_for_topics: bool = False
    kafka_columns: bool = False
    include_headers: bool = False
    value_format: str = ""
    coalesce_queues: bool = True
    view: str = MESSAGES
    verify_crc: bool = False

    @classmethod
    def parse(cls, request: Request, query: str = READ) -> "ReadOptions":
        """Read and check the options of a batch, a stream or, for its schema, either."""
        path, rest = split_target(request)
        given = known_options(rest, query)
        kafka_columns = _one_of(given, "schemaMode", ("rocketmq", "kafka")) == "kafka"
        include_headers = _boolean(given, "includeHeaders", False)
        if include_headers and not kafka_columns:
            raise OptionError(
                "Option 'includeHeaders' is for schemaMode=kafka.",
                remedy="The column 'properties' holds what Kafka calls headers.",
                code="OPTION_CONFLICT",
            )
        return cls(
            path=path,
            topics=_topics(given),
            starting=_starting(given, query),
            ending=_ending(given),
            max_rows=_positive(given, "maxOffsetsPerTrigger"),
            wait_for_topics=_one_of(given, "missingTopic", ("fail", "wait")) == "wait",
            kafka_columns=kafka_columns,
            include_headers=include_headers,
            value_format=_one_of(given, "valueFormat", ("", "binary", "string")),
            coalesce_queues=_boolean(given, "coalesceQueues", True),
            view=_view(given),
            verify_crc=_boolean(given, "verifyCrc", False),
        )


@dataclass(frozen=True)
class Transaction:
    """Who writes, by the user's word, and the number of the write: repetitions are dropped."""

    app_id: str
    version: int


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """What a write asks for.

    path: the store's directory, absolute.
    topic: where every row goes, or an empty string where a column says it.
    create_if_missing: whether the store and its topics are made when they are needed.
    delivery: EXACTLY_ONCE or AT_LEAST_ONCE.
    transaction: what makes a batch write the same one again; None where the user gave nothing.
    flush: when rows are durable, FLUSH_TASK, FLUSH_SYNC or FLUSH_ASYNC; at-least-once only.
    """

    path: str
    topic: str = ""
    create_if_missing: bool = True
    delivery: str = EXACTLY_ONCE
    transaction: Transaction | None = None
    flush: str = FLUSH_TASK

    @classmethod
    def parse(cls, request: Request, *, streaming: bool = False) -> "WriteOptions":
        """Read and check the options of a batch or streaming write."""
        path, rest = split_target(request)
        given = known_options(rest, SINK)
        _one_of(given, "schemaMode", ("rocketmq", "kafka"))
        delivery = _one_of(given, "delivery", (EXACTLY_ONCE, AT_LEAST_ONCE))
        flush = _one_of(given, "flush", (FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC))
        if delivery == EXACTLY_ONCE and flush != FLUSH_TASK:
            raise OptionError(
                f"Option 'flush' says {flush}, and a write that is exactly-once is always durable "
                "when it appears.",
                remedy="Remove 'flush', or set 'delivery' to at-least-once.",
                code="OPTION_CONFLICT",
            )
        return cls(
            path=path,
            topic=_topic(given, "topic") if "topic" in given else "",
            create_if_missing=_boolean(given, "createIfMissing", True),
            delivery=delivery,
            transaction=_transaction(given, delivery, streaming),
            flush=flush,
        )


def _transaction(given: Mapping[str, str], delivery: str, streaming: bool) -> Transaction | None:
    named = [option for option in ("txnAppId", "txnVersion") if option in given]
    if not named:
        return None
    if streaming:
        raise OptionError(
            f"Option {named[0]!r} is for batch writes.",
            remedy="Remove it: a stream is known by its checkpoint. In foreachBatch it belongs to "
            "the write of the DataFrame.",
            code="OPTION_CONFLICT",
        )
    if len(named) == 1:
        raise OptionError(
            f"Option {named[0]!r} is given alone.",
            remedy="A repetition is known by both: give 'txnAppId' and 'txnVersion', or neither.",
            code="OPTION_MISSING",
        )
    if delivery != EXACTLY_ONCE:
        raise OptionError(
            f"Option 'txnAppId' is given with delivery={delivery}, which drops no repetition.",
            remedy="Remove 'delivery', or 'txnAppId' and 'txnVersion'.",
            code="OPTION_CONFLICT",
        )
    app_id = given["txnAppId"].strip()
    if not app_id:
        raise OptionError(
            "Option 'txnAppId' is empty.", remedy="Name what writes; keep the name for good."
        )
    return Transaction(app_id, _whole(given, "txnVersion", least=0))


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    if "subscribe" in given and "topic" in given:
        raise OptionError(
            "Both 'subscribe' and 'topic' are given.",
            remedy="They mean the same: keep one.",
            code="OPTION_CONFLICT",
        )
    if "topic" in given:
        return (_topic(given, "topic"),)
    if "subscribe" not in given:
        raise OptionError(
            "No topic is named.",
            remedy=f"Set the option 'subscribe' (or 'topic', for one). {TABLE_TRAP}",
            code="OPTION_MISSING",
        )
    names = [name.strip() for name in given["subscribe"].split(",")]
    if not all(names):
        raise OptionError(f"Option 'subscribe' has an empty name: {given['subscribe']!r}.")
    return tuple(dict.fromkeys(names))


def _topic(given: Mapping[str, str], option: str) -> str:
    name = given[option].strip()
    if not name or "," in name:
        raise OptionError(
            f"Option {option!r} is {given[option]!r}.",
            remedy="It names one topic; reads take several with 'subscribe'.",
        )
    return name


def _view(given: Mapping[str, str]) -> str:
    view = _one_of(given, "view", (MESSAGES, SCHEDULED, HALF))
    for option in ("startingOffsets", "endingOffsets"):
        if view != MESSAGES and option in given:
            raise OptionError(
                f"Option {option!r} is given with view={view}, which shows all that waits now.",
                remedy=f"Remove {option!r}.",
                code="OPTION_CONFLICT",
            )
    return view


def _starting(given: Mapping[str, str], query: str) -> OffsetChoice:
    default = "latest" if query == STREAM else "earliest"
    choice = OffsetChoice.parse("startingOffsets", given.get("startingOffsets", default))
    if query == BATCH and choice.uses(LATEST):
        raise OptionError(
            "Option 'startingOffsets' says latest, and a batch that starts there is empty.",
            remedy="Use earliest or offsets; a stream can start at latest.",
        )
    return choice


def _ending(given: Mapping[str, str]) -> OffsetChoice:
    choice = OffsetChoice.parse("endingOffsets", given.get("endingOffsets", "latest"))
    if choice.uses(EARLIEST):
        raise OptionError(
            "Option 'endingOffsets' says earliest, and a batch that ends there is empty.",
            remedy="Use latest or offsets.",
        )
    return choice


def _one_of(given: Mapping[str, str], option: str, allowed: tuple[str, ...]) -> str:
    value = given.get(option, allowed[0]).strip().lower()
    if value not in allowed or (option in given and not value):
        raise OptionError(
            f"Option {option!r} is {given[option]!r}.",
            remedy=f"Use {' or '.join(filter(None, allowed))}.",
        )
    return value


def _boolean(given: Mapping[str, str], option: str, default: bool) -> bool:
    return _one_of(given, option, ("true", "false") if default else ("false", "true")) == "true"


def _positive(given: Mapping[str, str], option: str) -> int | None:
    return _whole(given, option, least=1) if option in given else None


def _whole(given: Mapping[str, str], option: str, least: int) -> int:
    text = given[option].strip()
    if not (text.isascii() and text.isdigit() and least <= int(text) <= _MOST):
        raise OptionError(
            f"Option {option!r} is {given[option]!r}.",
            remedy=f"Write a whole number from {least}.",
        )
    return int(text)
