"""The text of a SQL expression as words, numbers, texts and signs.

Keywords are the same in small and capital letters, names of properties are not. Source: the token
part of RocketMQ's `SelectorParser.jj`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyrocket.errors import InvalidInputError

_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
KEYWORDS = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *_SEARCHES]
)

_TOKEN = re.compile(
    r"""
    (?P<space>   [ \t\n\r\f]+ | --[^\n\r]* | /\*.*?\*/ )
  | (?P<decimal> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
               | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<whole>   0 | [1-9][0-9]*[lL]? )
  | (?P<text>    '(?:''|[^'])*' )
  | (?P<word>    [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<sign>    <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL,
)

_HINTS = {
    '"': "Texts stand in single quotes.",
    "'": "A text lacks its closing quote; a quote inside a text is written twice.",
    "!": "Write <> for not equal, and NOT (...) for the opposite.",
    "`": "Names of properties stand without quotes.",
}


@dataclass(frozen=True)
class Token:
    """A piece of the text; `at` counts characters from 0. `kind` is "end" behind the last one."""

    kind: str
    text: str
    at: int


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens and the end. Raises InvalidInputError (SQL_INVALID)."""
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise sql_error(sql, at, f"{sql[at]!r} cannot stand here", _HINTS.get(sql[at], ""))
        kind, text = str(found.lastgroup), found[0]
        if kind == "word" and text.upper() in KEYWORDS:
            kind, text = "keyword", text.upper()
        if kind != "space":
            yield Token(kind, text, at)
        at = found.end()
    yield Token("end", "the end", len(sql))


def sql_error(sql: str, at: int, reason: str, hint: str = "") -> InvalidInputError:
    """Return the error of an expression that is wrong at this character, counted from 0."""
    return InvalidInputError(
        f"the SQL filter {sql!r} is wrong at character {at + 1}: {reason}.",
        remedy=hint or "It is a condition on properties, as in: region = 'EU' AND price > 10.",
        code="SQL_INVALID",
    )
