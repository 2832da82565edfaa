"""The checksum of a whole record: its bytes, and the damage that it detects."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from pyrocket.formats.record import HEADER_BYTES, encode_record
from pyrocket.formats.record_batch import EncodedBatch, with_crc_room
from pyrocket.formats.record_crc import CRC_BYTES, check_crcs, crc_tails, without_crc
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields

FILE_BYTES = 1 << 20
TOPIC = "TopicTest"
BODY = b"a body"


def encoded(*blocks, body=BODY, topic=TOPIC):
    """Return a batch of records with these properties, not yet placed."""
    records = [
        encode_record(
            topic=topic,
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            body=body,
            properties=block,
            born_timestamp=1,
            store_timestamp=0,
        )
        for block in blocks
    ]
    bounds = np.cumsum([0, *map(len, records)])
    zeros = np.zeros(len(records), np.int64)
    data = pa.py_buffer(bytearray(b"".join(records)))
    return EncodedBatch(topic, data, bounds, zeros.astype(np.int32), zeros)


def placed(*blocks, file_bytes=FILE_BYTES, **more):
    """Return the records as they are stored in the log."""
    batch = with_crc_room(encoded(*blocks, **more), file_bytes)
    rows = np.arange(len(batch))
    batch.place(batch.bounds[:-1] + 1000, rows + 5, 1_700_000_000_000)
    return [batch.stored(row) for row in rows]


def fields(*records):
    bounds = np.cumsum([0, *map(len, records)])
    data = pa.py_buffer(b"".join(records))
    return RecordFields(data, 1000, bounds[:-1], np.diff(bounds))


def check(run):
    run.check_structure()
    check_crcs(run)


def test_the_property_has_rocketmqs_bytes():
    assert crc_tails(np.array([907060870])).tobytes() == b"__CRC32#\x010780607090\x02"


def test_a_missing_separator_is_added_before_the_checksum():
    records = placed(b"A\x01b", b"", b"A\x01b\x02")
    names = [decode_properties(decode_record(record).properties) for record in records]
    assert [[*each][:-1] for each in names] == [["A"], [], ["A"]]
    assert all([*each][-1] == "__CRC32#" for each in names)
    check_crcs(fields(*records))


@given(
    blocks=st.lists(
        st.dictionaries(st.text("ab", min_size=1), st.text("cd", min_size=1)), min_size=1
    ),
    body=st.binary(max_size=50),
)
def test_checksums_of_a_batch_are_valid_for_columns_and_for_single_records(blocks, body):
    records = placed(*map(encode_properties, blocks), body=body)
    check_crcs(fields(*records))
    for record in records:
        assert decode_record(record).body == body


@given(st.data())
def test_every_flipped_bit_is_detected(data):
    records = placed(b"A\x01b\x02", b"")
    at = data.draw(st.integers(HEADER_BYTES, len(records[0]) - 1), "byte")
    changed = bytearray(records[0])
    changed[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    with pytest.raises(StoreDamagedError):
        decode_record(bytes(changed))
    with pytest.raises(StoreDamagedError):
        check(fields(bytes(changed), records[1]))


@pytest.mark.parametrize("at", [12, 19, 27, 35, 47, 63, 75, 83])
def test_a_flipped_bit_of_the_header_is_detected(at):
    changed = bytearray(placed(b"A\x01b\x02")[0])
    changed[at] ^= 1
    with pytest.raises(StoreDamagedError, match=r"whole record|checksum|IPv6|fields take"):
        decode_record(bytes(changed))
    with pytest.raises(StoreDamagedError):
        check_crcs(fields(bytes(changed)))


def test_records_without_a_checksum_are_not_checked():
    plain = encoded(b"A\x01b\x02", b"1234567\x010123456789\x02").stored
    assert decode_record(plain(0)).properties == b"A\x01b\x02"
    assert decode_record(plain(1)).properties == b"1234567\x010123456789\x02"
    check_crcs(fields(plain(0), *placed(b"C\x01d\x02"), plain(1)))


@pytest.mark.parametrize("name", [b"A__CRC32#", b"A\x01b__CRC32#"])
def test_a_property_whose_name_ends_like_that_of_the_checksum_is_ignored(name):
    plain = encoded(name + b"\x010123456789\x02").stored(0)
    assert name in decode_record(plain).properties
    check_crcs(fields(plain, *placed(b"C\x01d\x02")))


def test_a_checksum_that_a_broker_copied_from_another_record_is_ignored():
    """A broker without checksums moves a message to another queue with all its properties."""
    original = decode_record(placed(b"A\x01b\x02")[0])
    hosts = [((10, 0, 0, 1), 10911), ((127, 0, 0, 1), 10912)]
    passed_on = [
        encode_record(
            topic="another",
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            body=BODY,
            properties=original.properties,
            born_timestamp=1,
            store_timestamp=2,
            store_host=(bytes(address), port),
        )
        for address, port in hosts
    ]
    check_crcs(fields(*passed_on))
    for record in passed_on:
        assert decode_record(record).properties == original.properties


def test_a_record_that_would_be_too_long_gets_no_checksum():
    longest = b"A\x01" + b"b" * (MAX_PROPERTIES_BYTES - CRC_BYTES - 3) + b"\x02"
    fitting, not_fitting = placed(longest, longest[:-1] + b"b\x02")
    assert b"__CRC32#" in fitting
    assert b"__CRC32#" not in not_fitting
    size = len(encoded(b"A\x01b\x02").stored(0))
    blank = 8
    assert b"__CRC32#" in placed(b"A\x01b\x02", file_bytes=size + CRC_BYTES + blank)[0]
    assert b"__CRC32#" not in placed(b"A\x01b\x02", file_bytes=size + CRC_BYTES + blank - 1)[0]


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"__CRC32#\x010780607090\x02", b""),
        (b"A\x01b\x02__CRC32#\x010780607090\x02", b"A\x01b\x02"),
        (b"A\x01b\x02__CRC32#\x010780607090\x02C\x01d\x02", b"A\x01b\x02C\x01d\x02"),
        (b"A\x01b\x02__CRC32#\x010780607090", b"A\x01b\x02"),
        (b"A\x01b\x02" + b"__CRC32#\x010780607090\x02" * 2, b"A\x01b\x02"),
        (b"A__CRC32#\x010780607090\x02", b"A__CRC32#\x010780607090\x02"),
    ],
)
def test_copies_do_not_have_the_checksum_of_the_original(block, left):
    blocks = pa.array([b"X\x01y\x02", block], pa.binary())
    assert without_crc(blocks).to_pylist() == [b"X\x01y\x02", left]
