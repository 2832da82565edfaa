"""The checksum of our own JSON files detects changes."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.checked_json import decode_own, encode_own

FILE = Path("cursors.json")
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_encoded_content_is_decoded(content):
    assert decode_own(FILE, encode_own(FILE, content)) == content


def test_a_file_with_reordered_keys_and_other_blanks_has_the_same_checksum():
    written = encode_own(FILE, {"b": {"10": 1, "9": 2}, "a": 1})
    known = json.loads(written)
    known["content"] = dict(reversed(known["content"].items()))
    assert json.dumps(known, indent=1).encode() != written
    assert decode_own(FILE, json.dumps(known, indent=1).encode()) == decode_own(FILE, written)


def test_the_file_is_json_with_a_checksum_that_other_programs_can_verify():
    known = json.loads(encode_own(FILE, {"timed": 7}))
    assert [*known] == ["crc32", "content"]
    content = {"release": "0.1.0", "timed": 7, "version": 1}
    assert known == {"crc32": 1421215926, "content": content}


def test_a_file_without_a_version_is_read_as_a_file_of_the_first_version():
    assert decode_own(FILE, b'{"crc32": 1559483150, "content": {"timed": 7}}') == {"timed": 7}


def test_the_earliest_files_consist_of_the_content_only():
    assert decode_own(FILE, b'{"timed": 7}') == {"timed": 7}
    assert decode_own(FILE, b"[]") == []


@given(st.data())
def test_a_flipped_bit_is_detected_or_has_no_effect(data):
    content = {"timed": 1234, "level1": 56, "half": 7}
    file = bytearray(encode_own(FILE, content))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ValueError):
        assert decode_own(FILE, bytes(file)) == content


def test_deep_nesting_is_an_error():
    with pytest.raises(ValueError, match="nested"):
        decode_own(FILE, b"[" * 100_000)
