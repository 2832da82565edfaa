"""RocketMQ's SQL: matching properties, and invalid expressions."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyrocket import MessageFilter
from pyrocket.errors import InvalidInputError
from pyrocket.filters import sql_columns, sql_message
from pyrocket.filters.sql_parser import parse_sql
from pyrocket.formats.hashes import tags_hashes
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.property_columns import PropertyColumns
from support.shares import TIMES
from support.sqls import EXPRESSIONS, PROPERTIES

OF_JAVA = json.loads((Path(__file__).parents[2] / "golden/sql92.json").read_text("utf-8"))
"""Random expressions, properties, and the results of RocketMQ's evaluator."""

GOLDEN = {"a": "10", "b": "abc", "n": "-3"}


def in_columns(sql, rows):
    """Return the result for each row, evaluated by columns."""
    blocks = pa.array([encode_properties(row) for row in rows], pa.binary())
    found = sql_columns.matching(parse_sql(sql), PropertyColumns(blocks).column, len(rows))
    return found.tolist()


def is_true(sql, properties):
    """Return the result for one message; check that both evaluators agree."""
    alone = sql_message.matches(parse_sql(sql), properties)
    assert in_columns(sql, [properties]) == [alone]
    return alone


@pytest.mark.parametrize(
    "sql",
    [
        "a > 5",
        "a = 10",
        "a = '10'",
        "a BETWEEN 5 AND 10",
        "c IS NULL",
        "n > -5",
        "a is not null AND b in ('abc', 'd')",
        "NOT (b = 'z')",
        "b contains 'b' and b STARTSWITH 'ab' And b endsWith 'bc'",
        "a = 10.0 AND a = 10L AND +10 = a AND - -10 = a",
        "c = d",
        "b = 'abc' OR b > 5",
        "TRUE",
        "a <> c",
        "a > n",
        "5 < 5.5",
        "NULL IS NULL",
        "b NOT CONTAINS 'z' /* a comment */ -- and another",
        "(a = 10) = TRUE",
        "-b IS NULL",
        "- (a = 10) IS NULL",
        "a NOT BETWEEN 11 AND 12",
    ],
)
def test_conditions_that_are_true(sql):
    assert is_true(sql, GOLDEN)


@pytest.mark.parametrize(
    "sql",
    [
        "c <> 1",
        "c NOT IN ('x')",
        "NOT (c = 1)",
        "c = 'x'",
        "c NOT CONTAINS 'x'",
        "b CONTAINS ''",
        "b NOT CONTAINS ''",
        "FALSE",
        "NULL",
        "a",
        "NOT c",
        "a = TRUE",
        "(a = 10) = 10",
        "5 CONTAINS '5'",
        "a NOT IN ('10')",
        "c = 1 AND c = 2",
    ],
)
def test_conditions_that_are_false_or_unknown(sql):
    assert not is_true(sql, GOLDEN)


@pytest.mark.parametrize(
    "sql", ["b > 5", "b = 5", "b > a", "a > b", "a = 3 OR b = 5", "NOT b = 'z'", "TRUE = b"]
)
def test_a_comparison_that_fails_in_rocketmq_never_matches_even_if_negated(sql):
    assert not is_true(sql, GOLDEN)
    assert not is_true(f"NOT ({sql})", GOLDEN)
    assert not is_true(f"{sql} OR b = 'abc'", GOLDEN), "the failing part is evaluated first"
    assert is_true(f"b = 'abc' OR ({sql})", GOLDEN), "the failing part is not evaluated"


@pytest.mark.parametrize(
    ("text", "sql", "expected"),
    [
        ("3000000000", "a > 5", False),  # Not an int.
        ("3000000000", "a > 2147483648", True),
        ("9223372036854775808", "a > 2147483648", False),  # Not a long.
        ("0.5", "a > 0", False),
        ("0.5", "a > 1E-9", True),
        (" 0.5 ", "a > 1E-9", True),
        (" 5", "a = 5", False),
        ("+5", "a = 5", True),
        ("\u0665", "a = 5", True),  # Java accepts the digits of all scripts,
        ("\U0001d7d3", "a = 5", False),  # but only those in the first 65536 code points.
        ("5_0", "a = 50", False),
        ("NaN", "a > 1e300", True),
        ("nan", "a > 1e300", False),
        ("0x1p3", "a = 8.", True),
        ("8d", "a = 8.", True),
        ("1e400", "a > 1e300", True),
        ("0x1p99999", "a > 1e300", True),
        ("9007199254740993", "a = 9007199254740992.0", True),
        ("9007199254740993", "a = 9007199254740992", False),
        ("true", "a = TRUE", True),
        ("TRUE", "a = TRUE", True),
        ("yes", "a = FALSE", True),
        ("it's", "a = 'it''s'", True),
    ],
)
def test_numbers_and_truth_values_are_parsed_as_in_java(text, sql, expected):
    assert is_true(sql, {"a": text}) is expected


def test_the_result_of_an_expression_equals_rocketmqs_result():
    for sql, properties, answer in OF_JAVA:
        if answer == "R":
            with pytest.raises(InvalidInputError):
                parse_sql(sql)
        else:
            assert sql_message.verdict(parse_sql(sql), properties) == answer, (sql, properties)
            assert in_columns(sql, [properties]) == [answer == "T"], (sql, properties)
    assert {answer for *_, answer in OF_JAVA} == set("TFNER")


def test_negative_zero_is_less_than_zero():
    assert is_true("a < b", {"a": "-0.0", "b": "0.0"})


@pytest.mark.parametrize(
    ("sql", "at", "reason"),
    [
        ("", 1, "a value was expected"),
        ("a >", 4, "not the end"),
        ("b > 'abb'", 3, "order"),
        ("a != 5", 3, "'!'"),
        ('a = "x"', 5, "single quotes"),
        ("a = 'x", 5, "not closed"),
        ("a LIKE 'x'", 3, "CONTAINS"),
        ("a > 5 b", 7, "the end of the expression"),
        ("a and between 2 and 10", 7, "keyword BETWEEN"),
        ("a BETWEEN 10 AND 0", 3, "between 10 and 0"),
        ("a BETWEEN 'a' AND 'b'", 3, "order"),
        ("a IN (5)", 7, "a string in single quotes"),
        ("5 IN ('5')", 3, "only a property"),
        ("a = NULL", 3, "IS NULL"),
        ("a IS 5", 6, "NULL was expected"),
        ("TRUE = 5", 6, "Boolean"),
        ("a > 5 > 3", 7, "order"),
        ("a > 100000000000000000000000", 5, "2^63"),
        ("a > 1e400", 5, "double"),
        ("a > 0.0", 5, "zero"),
        ("5", 1, "a condition was expected"),
        ("a = 1 AND 'x'", 11, "a condition was expected"),
        ("(a = 1", 7, ") was expected"),
        ("a CONTAINS b", 12, "a string in single quotes"),
        ("a ? b", 3, "'?'"),
        ("(" * 100 + "a" + ")" * 100, 50, "nested"),
        ("- " * 100 + "a = 1", 99, "nested"),
        ("a" + " = 1" * 100, 199, "more than 48"),
    ],
)
def test_the_error_for_invalid_sql_has_the_position(sql, at, reason):
    with pytest.raises(InvalidInputError) as caught:
        parse_sql(sql)
    assert caught.value.code == "SQL_INVALID"
    assert f"at character {at}:" in caught.value.message
    assert reason in str(caught.value)
    assert caught.value.remedy


PIECES = [
    "a",
    "'x'",
    "5",
    "2.5",
    "(",
    ")",
    "-",
    "NOT",
    "AND",
    "OR",
    "=",
    "<",
    "IS",
    "NULL",
    "IN",
    ",",
]
PIECES += ["BETWEEN", "CONTAINS", "TRUE", "'", "--", "/*", "*/", "1e", "\n"]


@given(
    st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
)
def test_any_text_is_rejected_or_has_the_same_result_in_both_evaluators(sql):
    try:
        condition = parse_sql(sql)
    except InvalidInputError:
        return
    assert in_columns(sql, [GOLDEN]) == [sql_message.matches(condition, GOLDEN)]


def test_a_long_list_of_conditions_does_not_exceed_the_nesting_limit():
    sql = " OR ".join(f"a = '{number}'" for number in range(1500))
    assert is_true(sql, {"a": "1499"})
    assert not is_true(sql, {"a": "1500"})


@settings(max_examples=60 * TIMES, suppress_health_check=[HealthCheck.filter_too_much])
@given(EXPRESSIONS, st.lists(PROPERTIES, max_size=6))
def test_evaluation_by_columns_and_by_single_messages_has_the_same_results(sql, rows):
    try:
        condition = parse_sql(sql)
    except InvalidInputError:
        assume(False)
    assert in_columns(sql, rows) == [sql_message.matches(condition, row) for row in rows]


@given(EXPRESSIONS, st.lists(PROPERTIES, max_size=6))
@settings(max_examples=30 * TIMES)
def test_messages_excluded_by_tags_codes_do_not_match(sql, rows):
    try:
        where = MessageFilter.parse(sql=sql)
    except InvalidInputError:
        assume(False)
    blocks = PropertyColumns(pa.array([encode_properties(row) for row in rows], pa.binary()))
    possible = where.may_match("t", tags_hashes(blocks)).tolist()
    for row, may_match in zip(rows, possible, strict=True):
        assert may_match or not where.matches(row)


def test_a_filter_can_be_sent_to_other_processes():
    where = MessageFilter.parse(tags="A || B", sql="a > 5 AND b IN ('x')")
    assert pickle.loads(pickle.dumps(where)) == where
