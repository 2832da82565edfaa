"""The Arrow columns of a slice equal the results of decoding one record at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden.values import LOOPBACK_V6, RECORD, RECORD_FIELDS, UNIQ_KEY
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import SchemaError, StoreDamagedError
from pyrocket.formats.compression import deflate
from pyrocket.formats.properties import RESERVED_PROPERTIES
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_columns import SCAN_COLUMNS
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.values.message import MessageQueue
from support.slices import decode_run
from support.strategies import body_start, raw_record, slices

CHECKED = {"topic", "queueId", "queueOffset", "physicalOffset", "storeSize"}
"""Fields that are known from the ConsumeQueue entry, so that their changes are always detected."""


def decode(piece, columns=tuple(SCAN_COLUMNS), *, data=None, **options):
    buffer = pa.py_buffer(piece.data if data is None else data)
    fields = RecordFields(buffer, piece.base, np.array(piece.starts), np.array(piece.sizes))
    run = MessageQueue(piece.topic, "broker-b", piece.queue_id), piece.first_offset
    return decode_run(fields, *run, columns, **options)


def decode_one(record, topic, queue_id, offset, base, columns=tuple(SCAN_COLUMNS), **options):
    fields = RecordFields(pa.py_buffer(record), base, np.array([0]), np.array([len(record)]))
    batch = decode_run(
        fields, MessageQueue(topic, "broker-a", queue_id), offset, columns, **options
    )
    return rows_of(batch)[0]


def rows_of(batch):
    """Return plain rows, with times in microseconds because of Python's limited datetime."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_time = pa.types.is_timestamp(column.type)
        columns[name] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return [
        {name: _plain(name, values[at]) for name, values in columns.items()}
        for at in range(len(batch))
    ]


def _plain(name, value):
    if not name.lower().endswith("properties"):
        return value
    assert len(dict(value)) == len(value), value
    return dict(value)


def expected_row(data, broker_name="broker-b"):
    """Return the expected row from the decoder of single records."""
    message = decode_record(data).to_message()
    own = {n: v for n, v in message.properties.items() if n in RESERVED_PROPERTIES}
    keys = message.properties.get("KEYS")
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "tags": message.tags,
        "keys": [key for key in (keys or "").split(" ") if key],
        "keysText": keys,
        "keyEncoding": message.properties.get("pyrocketKey"),
        "body": message.body,
        "bodyText": message.body.decode("utf-8", "replace"),
        "nullBody": not message.body and message.properties.get("pyrocketNull") == "body",
        "properties": {n: v for n, v in message.properties.items() if n not in own},
        "systemProperties": own,
        "bornTimestamp": message.born_timestamp * 1000,
        "storeTimestamp": message.store_timestamp * 1000,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def is_text(row):
    return row["bodyText"].encode() == row["body"]


@given(slices())
def test_the_columns_of_a_slice_equal_the_fields_of_single_records(piece):
    expected = [expected_row(record) for record in piece.records]
    columns = set(SCAN_COLUMNS)
    if not all(map(is_text, expected)):
        columns.remove("bodyText")
    batch = decode(piece, sorted(columns), verify_crc=True)
    batch.validate(full=True)
    assert rows_of(batch) == [{n: row[n] for n in sorted(columns)} for row in expected]


def test_the_golden_record_is_read_with_all_columns():
    row = decode_one(RECORD, "TopicTest", 1, 7, 172, verify_crc=True)
    assert row == expected_row(RECORD, "broker-a")
    assert row["systemProperties"] == {"TAGS": "TagA", "KEYS": "ORDER1", "UNIQ_KEY": UNIQ_KEY}
    assert (row["bodyText"], row["msgId"]) == ("hello", UNIQ_KEY)
    assert (row["bornHost"], row["storeHost"]) == ("127.0.0.1:54321", "127.0.0.1:10911")


def test_an_ipv6_host_shifts_the_fields_after_it():
    record = encode_record(**RECORD_FIELDS | {"born_host": (LOOPBACK_V6, 54321)})
    row = decode_one(record, "TopicTest", 1, 7, 172)
    assert row == expected_row(record, "broker-a")
    assert (row["bornHost"], row["sysFlag"]) == ("[0:0:0:0:0:0:0:1]:54321", 0x10)


@pytest.mark.parametrize(
    ("host", "offset", "expected"),
    [
        (bytes((127, 0, 0, 1)), 0, "7F00000100002A9F0000000000000000"),
        (bytes((192, 168, 1, 5)), 4096, "C0A8010500002A9F0000000000001000"),
        (LOOPBACK_V6, 2**30, "0000000000000000000000000000000100002A9F0000000040000000"),
    ],
)
def test_without_a_unique_id_the_offset_id_is_the_message_id(host, offset, expected):
    record = raw_record(store_host=(host, 10911), physical_offset=offset)
    assert decode_one(record, "T", 0, 0, offset, ["msgId"]) == {"msgId": expected}


def test_the_error_for_text_that_is_not_utf8_has_its_offset():
    records = [raw_record(body=body, queue_offset=40 + i) for i, body in enumerate([b"a", b"\xff"])]
    records[1] = raw_record(body=b"\xff", queue_offset=41, physical_offset=len(records[0]))
    starts, sizes = np.array([0, len(records[0])]), np.array([len(one) for one in records])
    fields = RecordFields(pa.py_buffer(b"".join(records)), 0, starts, sizes)
    run = MessageQueue("T", "b", 0), 40
    with pytest.raises(SchemaError, match="'T' queue 0 offset 41 is not UTF-8") as error:
        decode_run(fields, *run, ["bodyText"])
    assert error.value.code == "BODY_NOT_UTF8"
    assert decode_run(fields, *run, ["body"])["body"].to_pylist() == [b"a", b"\xff"]


def test_keys_are_split_only_at_spaces_and_empty_keys_are_dropped():
    record = raw_record(properties=b"KEYS\x01  a\tb  c\xc2\xa0d \x02")
    assert decode_one(record, "T", 0, 0, 0, ["keys"]) == {"keys": ["a\tb", "c\xa0d"]}


ALL_BUT_TEXT = tuple(name for name in SCAN_COLUMNS if name != "bodyText")


def check_damaged(piece, data, **options):
    """Check that damage is reported, or leaves the fields in `CHECKED` unchanged."""
    try:
        batch = decode(piece, ALL_BUT_TEXT, data=data, **options)
    except StoreDamagedError:
        return
    batch.validate(full=True)
    rows = rows_of(batch)
    for row, record in zip(rows, piece.records, strict=True):
        expected = expected_row(record)
        assert {n: row[n] for n in CHECKED} == {n: expected[n] for n in CHECKED}


@given(slices(), st.data())
def test_flipped_bits_are_reported_or_do_not_change_fields_known_from_the_queue_entry(piece, data):
    broken = bytearray(piece.data)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check_damaged(piece, bytes(broken), verify_crc=data.draw(st.booleans()))


@given(slices(), st.data())
def test_a_changed_body_is_detected_by_its_checksum(piece, data):
    which = data.draw(st.integers(0, len(piece.records) - 1))
    start, record = piece.starts[which], piece.records[which]
    body_at, body = body_start(record), decode_record(record).body
    # A change of the body, or of the checksum itself.
    places = [start + 8, start + 11, *range(start + body_at, start + body_at + len(body))]
    broken = bytearray(piece.data)
    broken[data.draw(st.sampled_from(places))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StoreDamagedError, match=f"offset {piece.base + start}: checksum mismatch"):
        decode(piece, ["queueOffset"], data=bytes(broken), verify_crc=True)


def test_only_requested_columns_are_built():
    record = raw_record(body=b"no zlib stream", sys_flag=1)
    assert decode_one(record, "T", 0, 0, 0, ["queueOffset", "flag"]) == {
        "queueOffset": 0,
        "flag": 0,
    }
    with pytest.raises(StoreDamagedError, match="inflate"):
        decode_one(record, "T", 0, 0, 0, ["body"])


def test_the_error_for_a_body_that_does_not_inflate_has_its_log_offset():
    good = raw_record(body=deflate(b"a"), sys_flag=0x301)
    bad = raw_record(body=b"x", sys_flag=0x201, queue_offset=1, physical_offset=len(good))
    starts, sizes = np.array([0, len(good)]), np.array([len(good), len(bad)])
    fields = RecordFields(pa.py_buffer(good + bad), 0, starts, sizes)
    with pytest.raises(StoreDamagedError, match=f"at log offset {len(good)}: its compressed body"):
        decode_run(fields, MessageQueue("T", "b", 0), 0, ["body"])


def test_columns_do_not_change_if_the_decoded_buffer_is_overwritten():
    data = bytearray(RECORD)
    fields = RecordFields(pa.py_buffer(data), 172, np.array([0]), np.array([len(data)]))
    batch = decode_run(fields, MessageQueue("TopicTest", "b", 1), 7, ["body", "tags", "msgId"])
    data[:] = bytes(len(data))
    assert batch.to_pylist() == [{"body": b"hello", "tags": "TagA", "msgId": UNIQ_KEY}]
    assert pc.binary_length(batch["body"]).to_pylist() == [5]


def test_the_error_for_a_compressed_body_without_the_flag_has_its_log_offset():
    plain = [b"\x78 as it is", b"", b"plain"]
    sound = [{"body": body, "sys_flag": 0x300} for body in plain]
    lost = {"body": deflate(b"hello " * 50), "sys_flag": 0x300}
    for rows in (sound, [*sound, lost]):
        records = []
        for number, row in enumerate(rows):
            at = sum(map(len, records))
            records.append(raw_record(**row, queue_offset=number, physical_offset=at))
        sizes = np.array([len(record) for record in records])
        starts = np.cumsum(sizes) - sizes
        fields = RecordFields(pa.py_buffer(b"".join(records)), 0, starts, sizes)
        run = MessageQueue("T", "b", 0), 0
        if rows is sound:
            assert decode_run(fields, *run, ["body"])["body"].to_pylist() == plain
            continue
        with pytest.raises(StoreDamagedError, match=f"log offset {starts[-1]}: its sysFlag"):
            decode_run(fields, *run, ["body"])
        assert decode_run(fields, *run, ["queueOffset"]).num_rows == len(rows)
