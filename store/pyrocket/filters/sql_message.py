"""Evaluates a SQL expression for the properties of one message.

`sql_columns` does the same for many messages at once. Source: `ComparisonExpression`,
`UnaryExpression`, `LogicExpression`, `ExpressionMessageFilter`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pyrocket.filters import sql_tree as tree
from pyrocket.filters.sql_numbers import compare_numbers, read_number

Properties: TypeAlias = Mapping[str, str]
_Verdict: TypeAlias = Literal["T", "F", "N", "E"]
_Value: TypeAlias = bool | str | tree.Number | None


class _WrongError(Exception):
    """RocketMQ's evaluation would throw an exception."""


def matches(condition: tree.Node, properties: Properties) -> bool:
    """Whether the condition is true, that is, not false, unknown or wrong."""
    return verdict(condition, properties) == "T"


def verdict(condition: tree.Node, properties: Properties) -> _Verdict:
    """Return whether the condition is true, false, unknown (N for null) or wrong (E)."""
    try:
        value = _value(condition, properties)
    except _WrongError:
        return "E"
    if value is None:
        return "N"
    return "T" if value else "F"


def _value(node: tree.Node, properties: Properties) -> _Value:
    match node:
        case tree.Property(name):
            return properties.get(name)
        case tree.Number():
            return node
        case tree.Text(value) | tree.Truth(value):
            return value
        case tree.Nothing(of):
            if of is not None:
                _value(of, properties)
            return None
    return _condition(node, properties)


def _condition(node: tree.Node, properties: Properties) -> bool | None:
    match node:
        case tree.Compare():
            return _compare(node, properties)
        case tree.Equal(left, right):
            return _equal(_value(left, properties), _value(right, properties))
        case tree.And(parts):
            return _decide(parts, properties, stop=False)
        case tree.Or(parts):
            return _decide(parts, properties, stop=True)
        case tree.Not(of):
            value = _value(of, properties)
            return None if value is None else not value
    return _text_test(node, properties)


def _text_test(node: tree.Node, properties: Properties) -> bool | None:
    match node:
        case tree.Cast(tree.Property(name)):
            return None if properties.get(name) is None else False
        case tree.In(tree.Property(name), texts, negated):
            text = properties.get(name)
            return None if text is None else (text in texts) != negated
        case tree.Search():
            return _search(node, properties)
    raise AssertionError(node)


def _decide(parts: tuple[tree.Node, ...], properties: Properties, *, stop: bool) -> bool | None:
    """Return `stop` if a part has this value; later parts are then not evaluated."""
    unknown = False
    for part in parts:
        value = _value(part, properties)
        if value is stop:
            return stop
        unknown |= value is None
    return None if unknown else not stop


def _search(node: tree.Search, properties: Properties) -> bool:
    if not node.text:
        return False
    text = _value(node.left, properties)
    if not isinstance(text, str):
        return False
    if node.how == "CONTAINS":
        return (node.text in text) != node.negated
    if node.how == "STARTSWITH":
        return text.startswith(node.text) != node.negated
    return text.endswith(node.text) != node.negated


def _compare(node: tree.Compare, properties: Properties) -> bool | None:
    left = _value(node.left, properties)
    if left is None:
        return None
    right = _value(node.right, properties)
    if right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = _number(left, "double"), _number(right, "double")
    sign = _sign(left, right)
    if node.order in ("<", "<="):
        sign = -sign
    return sign > 0 if node.order in ("<", ">") else sign >= 0


def _sign(left: _Value, right: _Value) -> int:
    """Compare two numbers, one of which may be a string."""
    if isinstance(left, str) and isinstance(right, tree.Number):
        left = _number(left, right.kind)
    elif isinstance(right, str) and isinstance(left, tree.Number):
        right = _number(right, left.kind)
    assert isinstance(left, tree.Number)
    assert isinstance(right, tree.Number)
    return compare_numbers(left, right)


def _equal(left: _Value, right: _Value) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is type(right) and not isinstance(left, tree.Number):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        return _equal_truth(left, right)
    return _sign(left, right) == 0


def _equal_truth(left: _Value, right: _Value) -> bool:
    if isinstance(left, str):
        return (left.lower() == "true") == right
    if isinstance(right, str):
        raise _WrongError  # RocketMQ fails to cast the truth value to a string.
    return False


def _number(text: str, kind: tree.ValueKind) -> tree.Number:
    value = read_number(text, kind)
    if value is None:
        raise _WrongError
    return tree.Number(value, kind)
