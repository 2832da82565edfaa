"""Encoding and decoding one CommitLog record."""

import pytest
from golden.values import CHECKSUMS, RECORD, RECORD_FIELDS, UNIQ_KEY
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import (
    body_crc,
    encode_blank,
    encode_record,
    read_header,
    read_store_timestamp,
)
from pyrocket.formats.record_decode import decode_record, messages_of
from support.strategies import HOSTS, INT32, INT64, body_start, raw_record, slices


@pytest.mark.parametrize(("body", "crc"), CHECKSUMS.items())
def test_the_checksum_loses_its_top_bit(body, crc):
    assert body_crc(body) == crc
    assert decode_record(raw_record(body=body)).crc == crc


def test_an_encoded_record_has_the_bytes_of_rocketmq():
    assert encode_record(**RECORD_FIELDS) == RECORD
    assert len(RECORD) == 168


def test_a_record_of_rocketmq_is_decoded_with_all_fields():
    record = decode_record(RECORD)
    assert {name: getattr(record, name) for name in RECORD_FIELDS} == RECORD_FIELDS
    assert (record.size, record.flag, record.sys_flag) == (168, 0, 0)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (0, 0)
    message = record.to_message()
    assert message.properties == {"TAGS": "TagA", "KEYS": "ORDER1", "UNIQ_KEY": UNIQ_KEY}
    assert (message.msg_id, message.tags, message.keys) == (UNIQ_KEY, "TagA", ("ORDER1",))
    assert (message.born_host, message.store_host) == ("127.0.0.1:54321", "127.0.0.1:10911")


def test_blank_record_has_the_rest_of_the_file_as_its_size():
    assert encode_blank(114).hex() == "00000072cbd43194"
    header = read_header(bytes(3) + encode_blank(114), 3)
    assert header.is_blank
    assert not header.is_message
    assert header.size == 114


WRITTEN = [*RECORD_FIELDS, "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"]

RECORDS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "TopicTest", "t" * 127]),
        "queue_id": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "body": st.binary(max_size=100),
        "properties": st.one_of(
            st.binary(max_size=100), st.just(encode_properties({"a": "b" * 32763}))
        ),
        "born_timestamp": INT64,
        "store_timestamp": INT64,
        "flag": INT32,
        "sys_flag": st.sampled_from([0, 0x1, 0x2, 0x4, 0x8, 0xC, 0x301]),
        "born_host": HOSTS,
        "store_host": HOSTS,
        "reconsume_times": INT32,
        "prepared_transaction_offset": INT64,
    }
)


@given(RECORDS, st.binary(max_size=10))
def test_an_encoded_record_is_decoded(fields, behind):
    data = encode_record(**fields)
    record = decode_record(memoryview(data + behind))
    assert record.size == len(data)
    v6 = 0x10 * (len(fields["born_host"][0]) == 16) | 0x20 * (len(fields["store_host"][0]) == 16)
    for name, value in fields.items():
        expected = value | v6 if name == "sys_flag" else value
        assert getattr(record, name) == expected, name
    header = read_header(data)
    assert header.is_message
    assert header.size == len(data)
    assert read_store_timestamp(data) == fields["store_timestamp"]


@given(RECORDS)
def test_the_bytes_match_the_table_of_fields(fields):
    topic = fields["topic"].encode()
    assert encode_record(**fields) == raw_record(**fields | {"topic": topic})


@given(slices(max_size=1), st.data())
def test_a_truncated_record_is_reported_as_damaged(piece, data):
    (record,) = piece.records
    length = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(StoreDamagedError):
        decode_record(record[:length])


@given(slices(max_size=1), st.data())
def test_a_flipped_bit_in_sizes_magic_or_body_is_detected(piece, data):
    (record,) = piece.records
    start, length = body_start(record), len(decode_record(record).body)
    places = [*range(12), *range(start - 4, start + length)]
    broken = bytearray(record)
    broken[data.draw(st.sampled_from(places))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StoreDamagedError):
        decode_record(bytes(broken))


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(RECORD[:8].__add__)))
def test_arbitrary_bytes_are_reported_as_damage_or_are_a_complete_record(data):
    try:
        record = decode_record(data)
    except StoreDamagedError:
        return
    assert encode_record(**{name: getattr(record, name) for name in WRITTEN}) == data[: record.size]


@pytest.mark.parametrize(
    "data", [b"", RECORD[:7], RECORD[:90], bytes(96), encode_blank(96) + bytes(88), b"\xff" * 96]
)
def test_store_time_is_zero_without_a_message(data):
    assert read_store_timestamp(data) == 0


def test_a_corrupt_record_is_logged_and_left_out(caplog):
    corrupt = RECORD[:-1]
    assert [one.body for one in messages_of([RECORD, corrupt])] == [RECORD_FIELDS["body"]]
    assert "a message is damaged and is not consumed" in caplog.text
