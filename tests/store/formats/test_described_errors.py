"""Errors about files are described in plain English, not with Python's messages."""

import pytest
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import MAGIC_V1
from pyrocket.formats.record_decode import decode_record
from pyrocket.tools.verify.verify import verify
from support.stores import filled

PYTHONS = ["unpack_from", "Error(", "object has no", "indices must", "NoneType"]


@pytest.mark.parametrize("size", [90, 85, 45, 5, 3])
def test_the_error_for_a_short_record_contains_its_length(size):
    data = (size.to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big") + bytes(91))[:size]
    with pytest.raises(StoreDamagedError) as caught:
        decode_record(data)
    assert f"it ends after {size} bytes" in str(caught.value) or "fields take" in str(caught.value)
    assert not any(each in str(caught.value) for each in PYTHONS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[]", "it is JSON, but"),
        (b"7", "it is JSON, but"),
        (b'{"topicConfigTable":{"t":{}}}', "'readQueueNums' is missing"),
        (b'{"topicConfigTable":[]}', "it is JSON, but"),
        (b"{", "it is not JSON: "),
        (b"\xff\xff", "byte 0 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("name", ["config/topics.json", "pyrocket/topics.json"])
def test_the_error_for_an_invalid_table_describes_it(path, name, content, expected):
    filled(path).close()
    for suffix in ("", ".bak"):
        (path / f"{name}{suffix}").write_bytes(content)
    found = [each.what for each in verify(path).findings]
    assert not any(python in what for what in found for python in PYTHONS)
    assert name != "config/topics.json" or any(expected in what for what in found)
