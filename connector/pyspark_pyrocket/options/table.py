"""Every option there is: the rows of all modules, in the order of the READMEs.

Parsing, the error for an unknown option and the tables of the READMEs all come from here.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pyrocket.errors import OptionError

from pyspark_pyrocket.options import (
    admission,
    creation,
    delivery,
    lookup,
    loss,
    payload,
    progress,
    selection,
    span,
    splitting,
    subscription,
    target,
    view,
)
from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import READ, SINK, Option
from pyspark_pyrocket.options.target import Request, split_target

TABLE: tuple[Option, ...] = (
    *target.ROWS,
    *subscription.ROWS,
    *span.ROWS,
    *loss.ROWS,
    *admission.ROWS,
    *splitting.ROWS,
    *selection.ROWS,
    *lookup.ROWS,
    *payload.ROWS,
    *view.ROWS,
    *progress.ROWS,
    *creation.ROWS,
    *delivery.ROWS,
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
    "kafka.group.id": "commitToGroup",
    "kafka.auto.offset.reset": "startingOffsets",
    "kafka.max.poll.records": "maxOffsetsPerTrigger",
    "kafka.acks": "flush",
    "kafka.allow.auto.create.topics": "createIfMissing",
    "kafka.enable.idempotence": "delivery",
    "kafka.transactional.id": "txnAppId",
    "topics": "subscribe",
    "tag": "tags",
    "filter.tag": "tags",
    "filter.sql": "sql",
    "sql92": "sql",
    "maxrecordsperbatch": "maxOffsetsPerTrigger",
    "maxbytesperbatch": "maxBytesPerTrigger",
}
"""What users of other connectors type, and the nearest thing here."""


def given_options(request: Request, query: str) -> tuple[str, Given]:
    """Return the store's path and what the user gave; refuse what `query` does not have."""
    path, rest = split_target(request)
    return path, Given(known_options(rest, query), query)


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
    return [option.name for option in TABLE if option.serves(query)]


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name most like `word`, ignoring case, or an empty string."""
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else ""


def _lookup(key: str, query: str) -> Option:
    for option in TABLE:
        if option.name.lower() == key.lower():
            if option.serves(query):
                return option
            raise OptionError(
                f"Option {option.name!r} is for {' and '.join(option.queries)} queries.",
                remedy=option.instead or f"Remove it from this {query} query.",
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
