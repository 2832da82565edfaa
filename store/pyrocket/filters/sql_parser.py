"""Parses a SQL expression into a tree, with RocketMQ's rules and precedence.

    condition   and (OR and)*
    and         equality (AND equality)*
    equality    comparison ((= | <>) comparison | IS [NOT] NULL)*
    comparison  unary ((< | <= | > | >=) unary | [NOT] BETWEEN unary AND unary
                | [NOT] IN (text, …) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text)*
    unary       (+ | - | NOT) unary | value | ( condition )

NOT binds more tightly than a comparison: `NOT a = 'x'` compares `NOT a` with 'x'. Source:
`SelectorParser.jj` of 5.x, whose grammar includes that of 4.9, and `ComparisonExpression`. At the
first unexpected token RocketMQ ignores the rest of the expression; this parser raises an error.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from pyrocket.errors import InvalidInputError
from pyrocket.filters.sql_numbers import compare_numbers
from pyrocket.filters.sql_tree import (
    CONDITIONS,
    And,
    Cast,
    Compare,
    Equal,
    How,
    In,
    Node,
    Not,
    Nothing,
    Number,
    Or,
    Order,
    Property,
    Search,
    Text,
    Truth,
    is_constant,
)

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
    '"': "Write string literals in single quotes.",
    "'": "The string literal is not closed. Write a single quote inside it twice.",
    "!": "Write <> for not equal, and NOT (...) for the opposite.",
    "`": "Write names of properties without quotes.",
}


@dataclass(frozen=True)
class Token:
    """A token; `at` is the index of its first character. The last token has the kind "end"."""

    kind: str
    text: str
    at: int


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens, then the end token. Raises InvalidInputError (SQL_INVALID)."""
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        if match is None:
            raise sql_error(sql, at, f"{sql[at]!r} is not allowed here", _HINTS.get(sql[at], ""))
        kind, text = str(match.lastgroup), match[0]
        if kind == "word" and text.upper() in KEYWORDS:
            kind, text = "keyword", text.upper()
        if kind != "space":
            yield Token(kind, text, at)
        at = match.end()
    yield Token("end", "the end", len(sql))


def sql_error(sql: str, at: int, reason: str, hint: str = "") -> InvalidInputError:
    """Return the error for an expression that is invalid at the character with index `at`."""
    return InvalidInputError(
        f"the SQL filter {sql!r} is invalid at character {at + 1}: {reason}.",
        remedy=hint or "Write a condition on properties, such as: region = 'EU' AND price > 10.",
        code="SQL_INVALID",
    )


_DEEPEST = 48
_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERS = ("<", "<=", ">", ">=")
_NEGATABLE = (*_SEARCHES, "BETWEEN", "IN")


def parse_sql(sql: str) -> Node:
    """Parse a condition. Raises InvalidInputError (SQL_INVALID) with the position of the error."""
    return _Parser(sql).whole()


class _Parser:
    """A recursive-descent parser with one method per rule; `_depth` bounds the tree's height."""

    def __init__(self, sql: str) -> None:
        self._sql, self._tokens, self._at, self._depth = sql, list(tokens(sql)), 0, 0
        self._tests = 0

    def whole(self) -> Node:
        node = self._condition()
        token = self._next
        if token.kind == "end":
            return self._as_condition(node, self._tokens[0])
        hint = ""
        if token.text.upper() in ("LIKE", "REGEXP", "RLIKE"):
            hint = "RocketMQ has CONTAINS, STARTSWITH and ENDSWITH instead."
        raise self._error(
            token, f"the end of the expression was expected, not {_shown(token)}", hint
        )

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _takes(self, *texts: str) -> Token | None:
        """Consume the next token if it is one of these keywords or signs."""
        token = self._next
        return self._take() if token.kind in ("keyword", "sign") and token.text in texts else None

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._error(self._next, f"{text} was expected, not {_shown(self._next)}")

    def _error(self, token: Token, reason: str, hint: str = "") -> InvalidInputError:
        return sql_error(self._sql, token.at, reason, hint)

    def _deeper(self, rule: Callable[[], Node]) -> Node:
        """Parse a rule that may be recursive."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(self._next, f"it is nested more than {_DEEPEST} levels deep")
        node = rule()
        self._depth -= 1
        return node

    def _test_of_test(self, token: Token) -> None:
        """Count levels of `a = b = c …`, which `_deeper` does not count."""
        self._tests += 1
        if self._tests > _DEEPEST:
            raise self._error(token, f"it has more than {_DEEPEST} comparisons")

    def _as_condition(self, node: Node, token: Token) -> Node:
        if isinstance(node, CONDITIONS):
            return node
        if isinstance(node, Property):
            return Cast(node)
        raise self._error(token, "a condition was expected, not a value")

    def _condition(self) -> Node:
        return self._chain("OR", lambda: self._chain("AND", self._equality, And), Or)

    def _chain(
        self, word: str, rule: Callable[[], Node], join: Callable[[tuple[Node, ...]], Node]
    ) -> Node:
        first = self._next
        parts = [rule()]
        while self._takes(word):
            parts[-1] = self._as_condition(parts[-1], first)
            first = self._next
            parts.append(rule())
        if len(parts) == 1:
            return parts[0]
        parts[-1] = self._as_condition(parts[-1], first)
        return join(tuple(parts))

    def _equality(self) -> Node:
        left = self._comparison()
        while sign := self._takes("=", "<>", "IS"):
            if isinstance(left, Equal | Not):
                self._test_of_test(sign)
            left = self._equal_to(left, sign)
        return left

    def _equal_to(self, left: Node, sign: Token) -> Node:
        if sign.text == "IS":
            negated = self._takes("NOT")
            self._expect("NULL")
            equal = Equal(left, Truth(None))
            return Not(equal) if negated else equal
        right = self._comparison()
        for side in (left, right):
            if side == Truth(None):
                raise self._error(sign, "NULL cannot be compared", "Write IS NULL or IS NOT NULL.")
        if isinstance(left, Truth) and is_constant(right) and not isinstance(right, Truth):
            raise self._error(sign, "a Boolean constant cannot be compared with this")
        equal = Equal(left, right)
        return Not(equal) if sign.text == "<>" else equal

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            if sign := self._takes(*_ORDERS):
                left = self._compare(cast("Order", sign.text), left, self._unary(), sign)
            elif self._negatable():
                negated = self._takes("NOT") is not None
                if isinstance(left, Search):
                    self._test_of_test(self._next)
                left = self._negatable_test(left, self._take(), negated=negated)
            else:
                return left

    def _negatable(self) -> bool:
        """Whether the next tokens are a test that allows NOT before it."""
        if self._next.kind != "keyword":
            return False
        if self._next.text == "NOT":
            # The token after NOT decides; at least the end token follows it.
            after = self._tokens[self._at + 1]
            return after.kind == "keyword" and after.text in _NEGATABLE
        return self._next.text in _NEGATABLE

    def _negatable_test(self, left: Node, word: Token, *, negated: bool) -> Node:
        if word.text == "BETWEEN":
            return self._between(left, word, negated=negated)
        if word.text == "IN":
            return self._in(left, word, negated=negated)
        return Search(cast("How", word.text), left, self._text(), negated)

    def _compare(self, order: Order, left: Node, right: Node, sign: Token) -> Node:
        for side in (left, right):
            constant = is_constant(side) and not isinstance(side, Number)
            if constant or isinstance(side, CONDITIONS):
                raise self._error(sign, "only numbers and properties can be ordered")
        return Compare(order, left, right)

    def _between(self, left: Node, word: Token, *, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            less = self._compare("<", left, low, word)
            return Or((less, self._compare(">", left, high, word)))
        both = self._compare(">=", left, low, word), self._compare("<=", left, high, word)
        if isinstance(low, Number) and isinstance(high, Number):
            wrong = compare_numbers(low, high) > 0
            if wrong and is_constant(low) and is_constant(high):
                raise self._error(word, f"no number is between {low.value} and {high.value}")
        return And(both)

    def _in(self, left: Node, word: Token, *, negated: bool) -> Node:
        if not isinstance(left, Property):
            raise self._error(word, "only a property can be IN a list")
        self._expect("(")
        texts = [self._text()]
        while self._takes(","):
            texts.append(self._text())
        self._expect(")")
        return In(left, frozenset(texts), negated)

    def _unary(self) -> Node:
        if sign := self._takes("+", "-"):
            node = self._deeper(self._unary)
            return node if sign.text == "+" else _minus(node)
        if sign := self._takes("NOT"):
            return Not(self._as_condition(self._deeper(self._unary), sign))
        if self._takes("("):
            node = self._deeper(self._condition)
            self._expect(")")
            return node
        return self._value()

    def _value(self) -> Node:
        token = self._take()
        if token.kind == "text":
            return Text(_unquoted(token))
        if token.kind == "word":
            return Property(token.text)
        if token.kind == "whole":
            return self._whole_number(token)
        if token.kind == "decimal":
            return self._decimal(token)
        if token.kind == "keyword" and token.text in _TRUTHS:
            return Truth(_TRUTHS[token.text])
        raise self._error(token, f"a value was expected, not {_shown(token)}")

    def _text(self) -> str:
        token = self._take()
        if token.kind != "text":
            raise self._error(token, f"a string in single quotes was expected, not {_shown(token)}")
        return _unquoted(token)

    def _whole_number(self, token: Token) -> Node:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(_LONG_MAX)) or int(digits) > _LONG_MAX:
            raise self._error(token, "the number is greater than 2^63 - 1")
        value = int(digits)
        return Number(value, "int" if value <= _INT_MAX else "long")

    def _decimal(self, token: Token) -> Node:
        value = float(token.text)
        if math.isinf(value):
            raise self._error(token, "the number is too large for a double")
        if not value:
            raise self._error(
                token,
                "RocketMQ rejects zero with a decimal point",
                "Write a number slightly greater than zero, such as 1E-9. With 0, property values"
                " are parsed as integers.",
            )
        return Number(value, "double")


def _minus(node: Node) -> Node:
    if isinstance(node, Number):
        return replace(node, value=-node.value, signed=True)
    if isinstance(node, Nothing):
        return node
    return Nothing(node if isinstance(node, CONDITIONS) else None)


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _shown(token: Token) -> str:
    if token.kind == "end":
        return token.text
    return f"the keyword {token.text}" if token.text in KEYWORDS else repr(token.text)
