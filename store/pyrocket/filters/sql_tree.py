"""The tree of a SQL expression, whose nodes can be sent to other processes.

A node is either a value (a property, a literal) or a condition. A condition is true, false,
unknown, or wrong. A condition is wrong if RocketMQ's evaluation throws an exception; the rest of
the expression is then not evaluated. Source: RocketMQ's `filter.expression`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

ValueKind: TypeAlias = Literal["int", "long", "double"]
"""Java's type of a number. A string that is compared with the number is parsed as this type."""

Order: TypeAlias = Literal["<", "<=", ">", ">="]


How: TypeAlias = Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property: a string, or null."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number. A number with a minus (`signed`) is not a constant in RocketMQ."""

    value: int | float
    kind: ValueKind
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The negative of an operand that is not a number: null, unless the operand is wrong."""

    of: "Node | None" = None


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two numbers; strings are parsed as numbers."""

    order: Order
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Equal:
    """Two values are equal. `IS NULL` is represented as `Equal` with NULL on the right."""

    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Cast:
    """A property in place of a condition: a property is a string, and therefore never true."""

    of: Property


@dataclass(frozen=True, slots=True)
class In:
    """A property is one of the strings or, if `negated`, none of them."""

    of: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """A string contains, begins with or ends with another string or, if `negated`, does not."""

    how: How
    left: "Node"
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class And:
    """All conditions are true; evaluated from left to right up to the first false condition."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """A condition is true; evaluated from left to right up to the first true condition."""

    parts: "tuple[Node, ...]"


Condition: TypeAlias = Truth | Compare | Equal | Cast | In | Search | Not | And | Or
Value: TypeAlias = Property | Text | Number | Nothing
Node: TypeAlias = Condition | Value

CONDITIONS = (Truth, Compare, Equal, Cast, In, Search, Not, And, Or)
CONSTANTS = (Text, Truth)
"""Numbers without a minus are constants, too: see `Number`."""


def is_constant(node: Node) -> bool:
    """Whether RocketMQ checks this operand when parsing rather than when evaluating."""
    return isinstance(node, CONSTANTS) or (isinstance(node, Number) and not node.signed)


def texts_wanted(node: Node, name: str) -> frozenset[str] | None:
    """Return the values that the property may have if the condition is true; None for any value."""
    if isinstance(node, Equal) and Property(name) in (node.left, node.right):
        other = node.right if node.left == Property(name) else node.left
        return frozenset([other.value]) if isinstance(other, Text) else None
    if isinstance(node, In) and node.of.name == name and not node.negated:
        return node.texts
    if not isinstance(node, And | Or):
        return None
    every = [texts_wanted(part, name) for part in node.parts]
    known = [texts for texts in every if texts is not None]
    if isinstance(node, And):
        return frozenset.intersection(*known) if known else None
    return frozenset.union(*known) if len(known) == len(every) else None
