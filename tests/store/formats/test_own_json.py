"""Our own JSON files tell whether they are as they were written."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.own_json import decode_own, encode_own

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_what_is_written_is_read(content):
    assert decode_own(encode_own(content)) == content


def test_keys_that_are_numbers_become_text_and_their_order_does_not_matter():
    assert decode_own(encode_own({10: 1, 9: 2})) == {"10": 1, "9": 2}


def test_the_file_is_json_with_a_checksum_that_others_can_check():
    known = json.loads(encode_own({"timed": 7}))
    assert [*known] == ["crc32", "content"]
    assert known == {"crc32": 1559483150, "content": {"timed": 7}}


def test_files_of_earlier_versions_are_the_content():
    assert decode_own(b'{"timed": 7}') == {"timed": 7}
    assert decode_own(b"[]") == []


@given(st.data())
def test_a_flipped_bit_is_found_or_changes_nothing(data):
    content = {"timed": 1234, "level1": 56, "half": 7}
    file = bytearray(encode_own(content))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ValueError):
        assert decode_own(bytes(file)) == content


def test_what_is_nested_without_end_is_no_file():
    with pytest.raises(ValueError, match="nested"):
        decode_own(b"[" * 100_000)
