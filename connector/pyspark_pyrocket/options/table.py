"""All options, in the order of `connector/OPTIONS.md`, and errors about unknown ones.

Parsing and these errors use this list.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.batching import Admission, Splitting
from pyspark_pyrocket.options.creation import CreationOptions
from pyspark_pyrocket.options.delivery import DeliveryOptions
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.options.foreign import ForeignOption, foreign_option
from pyspark_pyrocket.options.option import READ, SINK, Option, OptionReader, rows_of
from pyspark_pyrocket.options.payload import EncodingOptions, Payload
from pyspark_pyrocket.options.policies import LossPolicy, Progress
from pyspark_pyrocket.options.selection import KeyLookup, Selection, View
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.target import PATH, Request, split_target
from pyspark_pyrocket.options.topics import SubscribedTopics

TABLE: tuple[Option[Any], ...] = (
    PATH,
    *rows_of(Endpoint, SubscribedTopics, Span, LossPolicy, Admission, Splitting, Selection),
    *rows_of(KeyLookup, Payload),
    *rows_of(EncodingOptions, View, Progress, CreationOptions, DeliveryOptions),
)

_ADDED_BY_SPARK = {
    SINK: re.compile("checkpointlocation|queryname"),
    # Added by CREATE TABLE when it requests the schema.
    READ: re.compile(
        r"option\..*|provider|owner|location|comment|collation|external|is_managed_location"
        "|table_type"
    ),
}

_MIN_RATIO, _MIN_RATIO_OF_SAME_BEGINNING = 0.65, 0.5
_BEGINNING = 6
"""Minimum ratio of difflib for a similar name; lower for names with the same beginning."""


def given_options(request: Request, query: str) -> tuple[str, OptionReader]:
    """Return the store's path, empty with an endpoint, and the options.

    Options that `query` does not have are refused.
    """
    path, rest = split_target(request)
    return path, OptionReader(known_options(rest, query), query)


def known_options(given: Mapping[str, str], query: str) -> dict[str, str]:
    """Return the options of `query` by their names in the table; refuse all others."""
    added = _ADDED_BY_SPARK.get(query)
    return {
        _lookup(key, query).name: value
        for key, value in given.items()
        if added is None or not added.fullmatch(key.lower())
    }


def names_for(query: str) -> list[str]:
    return [option.name for option in TABLE if option.serves(query)]


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name most similar to `word`, ignoring case, or "" if none is similar."""
    low = word.lower()
    by_lower = {name.lower(): name for name in names}
    for candidate in get_close_matches(low, by_lower, n=5, cutoff=_MIN_RATIO_OF_SAME_BEGINNING):
        begins_alike = len(low) >= _BEGINNING and candidate.startswith(low[:_BEGINNING])
        if begins_alike or get_close_matches(low, [candidate], cutoff=_MIN_RATIO):
            return by_lower[candidate]
    return ""


def _lookup(key: str, query: str) -> Option[Any]:
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
    names = names_for(query)
    foreign = foreign_option(key)
    if foreign is not None:
        return _foreign_error(foreign, names)
    near = nearest(key, names)
    every = f"Options of a {query} query: {', '.join(names)}."
    return OptionError(
        f"There is no option {key!r}.",
        remedy=f"Did you mean {near!r}?" if near else f"Remove it. {every}",
        code="OPTION_UNKNOWN",
    )


def _foreign_error(option: ForeignOption, names: list[str]) -> OptionError:
    ours = option.ours if option.ours in names else nearest(option.name.split(".")[-1], names)
    nearest_one = f"The nearest option here is {ours!r}." if ours else "Remove it."
    return OptionError(
        f"Option {option.name!r} {option.what}.",
        remedy=option.instead or nearest_one,
        code="OPTION_UNKNOWN",
    )
