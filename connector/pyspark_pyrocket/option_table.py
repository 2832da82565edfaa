"""Every option: its name, default, the queries it is for, and what it means.

Parsing, the error for an unknown option and the table of the README all come from here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pyrocket.errors import OptionError

BATCH, STREAM, SINK = "batch", "stream", "sink"
READ = "read"
"""A read that has not yet said whether it will stream: the options of both are fine."""

READS = (BATCH, STREAM)
ALL = (BATCH, STREAM, SINK)


@dataclass(frozen=True)
class Option:
    """One option; `default` and `meaning` are as the README prints them."""

    name: str
    default: str
    queries: tuple[str, ...]
    meaning: str


TABLE = (
    Option(
        "path",
        "`$PYROCKET_STORE`",
        ALL,
        "The store's directory, as a path or a `file:` URI; a relative one is the driver's.",
    ),
    Option("subscribe", "required", READS, "The topics to read, separated by commas."),
    Option(
        "topic",
        "none",
        ALL,
        "Reads: the same as `subscribe`, for one topic. "
        "Writes: where every row goes; it wins over a `topic` column.",
    ),
    Option(
        "startingOffsets",
        "`latest` (stream), `earliest` (batch)",
        READS,
        '`earliest`, `latest`, or JSON for every queue, `{"t":{"0":23,"1":"earliest"}}`, with or '
        "without a broker level; -2 is earliest, -1 latest. Inclusive. "
        "A stream uses it once: afterwards its checkpoint counts.",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        (BATCH,),
        "`latest` or JSON as above, without `earliest`. Exclusive.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "none",
        (STREAM,),
        "The most messages of one micro-batch, shared out by backlog; "
        "every queue that has any gives at least one.",
    ),
    Option(
        "missingTopic",
        "`fail`",
        READS,
        "`wait` lets some of the topics be created later; at least one must exist.",
    ),
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
    Option(
        "coalesceQueues",
        "`true`",
        READS,
        "Queues with less than 1 MiB to read share a task; `false` gives each its own.",
    ),
    Option(
        "view",
        "`messages`",
        (BATCH,),
        "`scheduled`: the messages of the topics that wait to be delivered, with the column "
        "`dueTimestamp`; `half`: those of transactions that are undecided. As of the moment of "
        "planning; `queueOffset` is where they wait.",
    ),
    Option("verifyCrc", "`false`", READS, "Check the checksum of every body that is read."),
    Option(
        "createIfMissing",
        "`true`",
        (SINK,),
        "Create the store and the topics that do not exist yet.",
    ),
    Option(
        "delivery",
        "`exactly-once`",
        (SINK,),
        "`exactly-once`: all rows of a write or micro-batch appear together, durably, and once. "
        "`at-least-once`: tasks append on their own, and what is tried again stands there twice.",
    ),
    Option(
        "txnAppId",
        "none",
        (SINK,),
        "Batch writes, with `txnVersion`: names who writes, so that a repetition is dropped. "
        "In `foreachBatch`; a stream needs none.",
    ),
    Option(
        "txnVersion",
        "none",
        (SINK,),
        "With `txnAppId`: the number of the write, such as the id of the micro-batch. It has to "
        "grow; the same one again is dropped, a smaller one refused.",
    ),
    Option(
        "flush",
        "`task`",
        (SINK,),
        "With `delivery=at-least-once`: when rows are made durable: once at the end of each task, "
        "after every Arrow batch (`sync`), or soon after, in the background (`async`).",
    ),
)

_ADDED_BY_SPARK = {
    SINK: re.compile("checkpointlocation|queryname"),
    # What CREATE TABLE adds when it asks for the columns.
    READ: re.compile(
        r"option\..*|provider|owner|location|comment|collation|external|is_managed_location"
        "|table_type"
    ),
}

_OUR_NAMES = {
    "kafka.bootstrap.servers": "path",
    "kafka.group.id": "startingOffsets",
    "kafka.auto.offset.reset": "startingOffsets",
    "kafka.max.poll.records": "maxOffsetsPerTrigger",
    "kafka.acks": "flush",
    "kafka.allow.auto.create.topics": "createIfMissing",
    "kafka.enable.idempotence": "delivery",
    "kafka.transactional.id": "txnAppId",
    "topics": "subscribe",
    "maxrecordsperbatch": "maxOffsetsPerTrigger",
}
"""What users of other connectors type, and the nearest thing here."""


def known_options(given: Mapping[str, str], query: str) -> dict[str, str]:
    """Return the options that `query` has, by their names in the table; refuse all others."""
    added = _ADDED_BY_SPARK.get(query)
    return {
        _lookup(key, query).name: value
        for key, value in given.items()
        if added is None or not added.fullmatch(key.lower())
    }


def names_for(query: str) -> list[str]:
    """Return the names of the options that a query of this kind has."""
    return [option.name for option in TABLE if _serves(option, query)]


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name most like `word`, ignoring case, or an empty string."""
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else ""


def _serves(option: Option, query: str) -> bool:
    return query in option.queries or (query == READ and option.queries != (SINK,))


def _lookup(key: str, query: str) -> Option:
    for option in TABLE:
        if option.name.lower() == key.lower():
            if _serves(option, query):
                return option
            raise OptionError(
                f"Option {option.name!r} is for {' and '.join(option.queries)} queries.",
                remedy=f"Remove it from this {query} query.",
                code="OPTION_UNKNOWN",
            )
    raise _unknown(key, query)


def _unknown(key: str, query: str) -> OptionError:
    word = key.lower().removeprefix("kafka.")
    ours = _OUR_NAMES.get(key.lower()) or nearest(word, names_for(query))
    if key.lower().startswith("kafka."):
        happened = f"Option {key!r} configures a Kafka client, and there is none here."
        remedy = f"The option nearest to it is {ours!r}." if ours else "Remove it."
    else:
        happened = f"There is no option {key!r}."
        remedy = f"Did you mean {ours!r}?" if ours else "Remove it."
    every = f" Options of a {query} query: {', '.join(names_for(query))}."
    return OptionError(happened, remedy=remedy + every, code="OPTION_UNKNOWN")
