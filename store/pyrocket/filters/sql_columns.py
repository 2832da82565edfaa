"""Evaluates a SQL expression for many messages, column by column.

A condition is a column of codes: false, true, unknown or wrong. `sql_message` does the same for one
message and lists the sources of the rules. Wherever RocketMQ would not evaluate the right side of
AND or OR, a wrong right side has no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.filters import sql_tree as tree
from pyrocket.filters.sql_numbers import Keys, column_keys, compare_numbers, number_key
from pyrocket.formats.arrow_buffers import Bools

_FALSE, _TRUE, _UNKNOWN, _WRONG = range(4)

_AND = np.array([[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 2, 3], [3, 3, 3, 3]], np.int8)
_OR = np.array([[0, 1, 2, 3], [1, 1, 1, 1], [2, 1, 2, 3], [3, 3, 3, 3]], np.int8)
_NOT = np.array([1, 0, 2, 3], np.int8)
"""The code of a condition by the codes of its parts, the left part first."""

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class _Operand:
    """One side of a comparison. Each row is null, wrong, or a value; all values have one type."""

    null: Bools
    wrong: Bools
    value: pa.StringArray | tree.Number | Bools | None


def matching(condition: tree.Node, column: Callable[[str], pa.StringArray], count: int) -> Bools:
    """Return a mask of the `count` rows for which the condition is true.

    `column` returns the column of a property.
    """
    return _Rows(column, count).codes(condition) == _TRUE


class _Rows:
    """Evaluates a tree over `count` rows."""

    def __init__(self, column: Callable[[str], pa.StringArray], count: int) -> None:
        self._find, self._count = column, count
        self._columns: dict[str, pa.StringArray] = {}
        self._numbers: list[tuple[pa.StringArray, tree.ValueKind, tuple[Keys, Bools]]] = []

    def _column(self, name: str) -> pa.StringArray:
        if name not in self._columns:
            self._columns[name] = self._find(name)
        return self._columns[name]

    def _fill(self, code: int) -> Codes:
        return np.full(self._count, code, np.int8)

    def codes(self, node: tree.Node) -> Codes:
        """Return the codes of a condition."""
        match node:
            case tree.Truth(value):
                return self._fill(_UNKNOWN if value is None else int(value))
            case tree.Compare(order, left, right):
                return self._compared(order, left, right)
            case tree.Equal(left, right):
                return self._equal(self._operand(left), self._operand(right))
            case tree.Not(of):
                return _NOT[self.codes(of)]
            case tree.And(parts):
                return self._joined(parts, _AND)
            case tree.Or(parts):
                return self._joined(parts, _OR)
        return self._text_test(node)

    def _text_test(self, node: tree.Node) -> Codes:
        match node:
            case tree.Cast(of):
                return np.where(_nulls(self._column(of.name)), _UNKNOWN, _FALSE).astype(np.int8)
            case tree.In(of, texts, negated):
                column = self._column(of.name)
                hits = _bools(pc.is_in(column, pa.array(sorted(texts), pa.string())))
                return np.where(_nulls(column), _UNKNOWN, hits != negated).astype(np.int8)
            case tree.Search():
                return self._searched(node)
        raise AssertionError(node)

    def _joined(self, parts: tuple[tree.Node, ...], table: npt.NDArray[np.int8]) -> Codes:
        codes = self.codes(parts[0])
        for part in parts[1:]:
            codes = table[codes, self.codes(part)]
        return codes

    def _searched(self, node: tree.Search) -> Codes:
        if not node.text:
            return self._fill(_FALSE)
        operand = self._operand(node.left)
        if not isinstance(operand.value, pa.StringArray):
            return np.where(operand.wrong, _WRONG, _FALSE).astype(np.int8)
        hits = _bools(_SEARCHES[node.how](operand.value, node.text))
        return ((hits != node.negated) & ~operand.null).astype(np.int8)

    def _operand(self, node: tree.Node) -> _Operand:
        none = np.zeros(self._count, bool)
        match node:
            case tree.Property(name):
                column = self._column(name)
                return _Operand(_nulls(column), none, column)
            case tree.Text(value):
                return _Operand(none, none, pa.repeat(pa.scalar(value, pa.string()), self._count))
            case tree.Number():
                return _Operand(none, none, node)
            case tree.Nothing(of):
                wrong = none if of is None else self.codes(of) == _WRONG
                return _Operand(~none, wrong, None)
        codes = self.codes(node)
        return _Operand(codes == _UNKNOWN, codes == _WRONG, codes == _TRUE)

    def _compared(self, order: str, left_node: tree.Node, right_node: tree.Node) -> Codes:
        left, right = self._operand(left_node), self._operand(right_node)
        greater, same, bad = self._signs(left, right)
        holds = same & (order in ("<=", ">="))
        holds |= greater if order in (">", ">=") else ~greater & ~same
        codes = np.where(bad, _WRONG, holds).astype(np.int8)
        codes[right.null], codes[right.wrong] = _UNKNOWN, _WRONG
        # RocketMQ does not evaluate the right side if the left side is null.
        codes[left.null], codes[left.wrong] = _UNKNOWN, _WRONG
        return codes

    def _equal(self, left: _Operand, right: _Operand) -> Codes:
        codes = self._equal_values(left, right)
        codes[right.null] = _FALSE
        codes[left.null] = np.where(right.null[left.null], _TRUE, _UNKNOWN)
        codes[left.wrong | right.wrong] = _WRONG
        return codes

    def _equal_values(self, left: _Operand, right: _Operand) -> Codes:
        """Return the codes of rows in which neither side is null or wrong."""
        a, b = left.value, right.value
        if a is None or b is None:
            return self._fill(_FALSE)
        if isinstance(a, pa.StringArray) and isinstance(b, pa.StringArray):
            return _bools(pc.equal(a, b)).astype(np.int8)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return self._equal_truths(a, b)
        _, same, bad = self._signs(left, right)
        return np.where(bad, _WRONG, same).astype(np.int8)

    def _equal_truths(
        self, a: pa.StringArray | tree.Number | Bools, b: tree.Number | Bools
    ) -> Codes:
        if isinstance(a, pa.StringArray):
            return (_bools(pc.equal(pc.ascii_lower(a), "true")) == b).astype(np.int8)
        if isinstance(b, pa.StringArray):
            return self._fill(_WRONG)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return np.equal(a, b).astype(np.int8)
        return self._fill(_FALSE)

    def _signs(self, left: _Operand, right: _Operand) -> tuple[Bools, Bools, Bools]:
        """Return three masks of rows: left is greater, both are equal, one side is not a number."""
        a, b = left.value, right.value
        none = np.zeros(self._count, bool)
        if a is None or b is None:
            return none, none, none
        if isinstance(a, tree.Number) and isinstance(b, tree.Number):
            sign = compare_numbers(a, b)
            return none | (sign > 0), none | (sign == 0), none
        kind: tree.ValueKind = "double"
        if isinstance(a, tree.Number):
            kind = a.kind
        elif isinstance(b, tree.Number):
            kind = b.kind
        (left_keys, left_good), (right_keys, right_good) = self._keys(a, kind), self._keys(b, kind)
        return left_keys > right_keys, left_keys == right_keys, ~(left_good & right_good)

    def _keys(
        self, value: pa.StringArray | tree.Number, kind: tree.ValueKind
    ) -> tuple[Keys, Bools]:
        if isinstance(value, tree.Number):
            return np.full(self._count, number_key(value, kind)), np.ones(self._count, bool)
        for texts, read_as, numbers in self._numbers:
            if texts is value and read_as == kind:
                return numbers
        numbers = column_keys(value, kind)
        self._numbers.append((value, kind, numbers))
        return numbers


def _nulls(column: pa.StringArray) -> Bools:
    return column.is_null().to_numpy(zero_copy_only=False)


def _bools(column: pa.BooleanArray) -> Bools:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)


_SEARCHES: dict[str, Callable[..., pa.BooleanArray]] = {
    "CONTAINS": pc.match_substring,
    "STARTSWITH": pc.starts_with,
    "ENDSWITH": pc.ends_with,
}
