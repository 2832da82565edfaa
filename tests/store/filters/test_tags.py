"""Tag expressions."""

import numpy as np
import pytest
from pyrocket import MessageFilter
from pyrocket.errors import InvalidInputError
from pyrocket.filters.message_filter import parse_tags


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("", None),
        ("*", None),
        ("A", {"A"}),
        ("A || B", {"A", "B"}),
        ("A||B||A", {"A", "B"}),
        ("  A ||\tB|| ", {"A", "B"}),
        ("A | B", {"A | B"}),
        ("A || *", {"A", "*"}),
        ("Größe||中", {"Größe", "中"}),
    ],
)
def test_expression_is_split_as_in_rocketmq(expression, tags):
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_an_expression_without_a_tag_is_an_error(expression):
    with pytest.raises(InvalidInputError) as caught:
        parse_tags(expression)
    assert caught.value.code == "TAGS_INVALID"


def test_tags_with_equal_hashes_or_equal_prefixes_do_not_match():
    where = MessageFilter.parse(tags="A || AaAa")
    assert where.matches({"TAGS": "A"})
    assert not where.matches({"TAGS": "A B"})
    assert not where.matches({"TAGS": "BBBB"}), "the same hash"
    assert not where.matches({})


def test_entries_with_other_hashes_are_excluded_and_addresses_of_extended_entries_are_not():
    where = MessageFilter.parse(tags="AaAa || A")
    codes = np.array([65, 2031744, 0, -1, -(2**63) + 5])
    assert where.may_match("t", codes).tolist() == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("sql", "codes"),
    [
        ("TAGS = 'A'", [65]),
        ("'A' = TAGS AND x > 5", [65]),
        ("TAGS IN ('A', 'B') AND TAGS = 'B'", [66]),
        ("TAGS = 'A' OR TAGS IN ('B')", [65, 66]),
        ("TAGS = 'A' OR x > 5", None),
        ("TAGS <> 'A'", None),
        ("TAGS NOT IN ('A')", None),
        ("TAGS = x", None),
        ("x = 'A'", None),
    ],
)
def test_hashes_are_used_for_sql_that_only_messages_with_certain_tags_can_match(sql, codes):
    found = MessageFilter.parse(sql=sql).codes
    assert (None if found is None else found.tolist()) == codes
