"""The properties block of one record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.properties import (
    RESERVED_PROPERTIES,
    decode_properties,
    encode_properties,
    find_illegal_property,
)
from support.strategies import MALFORMED_BLOCKS, TEXT


def read_as_java(block):
    """`MessageDecoder.string2messageProperties` of 4.9.8, statement by statement."""
    text, found, index = block.decode("utf-8", "replace"), {}, 0
    while index < len(text):
        new_index = text.find("\x02", index)
        if new_index < 0:
            new_index = len(text)
        if new_index - index >= 3:
            separator = text.find("\x01", index)
            if index < separator < new_index - 1:
                found[text[index:separator]] = text[separator + 1 : new_index]
        index = new_index + 1
    return found


def test_properties_are_written_with_the_last_separator():
    assert encode_properties({"A": "1", "B": "2"}) == bytes.fromhex("4101310242013202")


def test_entries_without_name_or_value_are_ignored_and_values_may_contain_separators():
    block = b"A\x011\x02B\x01\x02CC\x02D\x01x\x01y\x02"
    assert decode_properties(block) == {"A": "1", "D": "x\x01y"}


def test_the_last_value_of_a_repeated_name_is_used():
    assert decode_properties(b"WAIT\x01true\x02WAIT\x01false\x02") == {"WAIT": "false"}


@given(MALFORMED_BLOCKS)
def test_any_bytes_are_decoded_as_in_rocketmq(block):
    assert decode_properties(block) == read_as_java(block)


@given(st.dictionaries(TEXT.filter(bool), TEXT.filter(bool)))
def test_encoded_properties_are_decoded(properties):
    block = encode_properties(properties)
    assert decode_properties(block) == properties
    assert decode_properties(block[:-1]) == properties


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_reserved_names_are_rejected(name):
    assert "reserved" in find_illegal_property({"mine": "1", name: "1"})


@pytest.mark.parametrize(
    "properties",
    [
        {"": "v"},
        {"n": ""},
        {"a\x01": "v"},
        {"a": "v\x01"},
        {"a\x02": "v"},
        {"ok": "1", "a": "\x02"},
    ],
)
def test_properties_that_cannot_be_read_back_are_rejected(properties):
    assert find_illegal_property(properties)


@given(st.dictionaries(TEXT.filter(bool).map(lambda name: f"u{name}"), TEXT.filter(bool)))
def test_properties_that_can_be_read_back_are_legal(properties):
    assert find_illegal_property(properties) is None
