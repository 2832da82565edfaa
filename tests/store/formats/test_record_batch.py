"""Arrow columns are encoded to exactly the bytes of single records."""

import numpy as np
import pyarrow as pa
import pytest
from golden.values import DEFLATED, HASHES, RECORD_FIELDS, UNIQ_KEY
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import MessageError
from pyrocket.formats.compression import COMPRESSED_FLAGS, deflate
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import encode_batch
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.send_columns import check_send_batch
from support.strategies import raw_record, sent_batch, sent_rows

BORN, STORED = 1600000000000, 1600000000123
SIZES = st.integers(0, 3)


def encode(batch, *, topic="TopicTest", queue_ids=None, ids=None, first=1000, **limits):
    """Encode and place a batch; return (batches, records as bytes)."""
    columns = check_send_batch(batch)
    count = len(columns)
    queue_ids = np.zeros(count, np.int32) if queue_ids is None else np.array(queue_ids, np.int32)
    ids = pa.array(ids or [f"ID{row}" for row in range(count)], pa.string())
    batches = list(encode_batch(columns, topic, queue_ids, ids, BORN, **limits))
    records, row = [], 0
    for one in batches:
        rows = np.arange(row, row + len(one))
        one.place(rows * 7 + first, rows + 2**40, STORED)
        data = one.data.to_pybytes()
        records += [data[a:b] for a, b in zip(one.bounds[:-1], one.bounds[1:], strict=True)]
        row += len(one)
    return batches, records


def expected_record(row, number, *, topic="TopicTest", queue_id=0):
    """Return the record of a single append of this row."""
    own = {
        "UNIQ_KEY": f"ID{number}",
        "KEYS": " ".join(row["keys"] or []),
        "TAGS": row["tags"],
        "__SHARDINGKEY": row["shardingKey"],
    }
    properties = {name: value for name, value in own.items() if value} | (row["properties"] or {})
    long = len(row["body"]) >= 4096
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=2**40 + number,
        physical_offset=1000 + number * 7,
        body=deflate(row["body"]) if long else row["body"],
        properties=encode_properties(properties),
        born_timestamp=BORN,
        store_timestamp=STORED,
        flag=row["flag"] or 0,
        sys_flag=COMPRESSED_FLAGS if long else 0,
    )


@given(
    sent_rows(),
    st.sampled_from(["T", "t" * 127]),
    st.lists(st.integers(0, 2**31 - 1), min_size=6, max_size=6),
    SIZES,
    SIZES,
)
def test_a_batch_has_exactly_the_bytes_of_single_records(rows, topic, queues, before, after):
    batch = sent_batch(rows, before=before, after=after)
    batches, records = encode(batch, topic=topic, queue_ids=queues[: len(rows)])
    assert records == [
        expected_record(row, number, topic=topic, queue_id=queues[number])
        for number, row in enumerate(rows)
    ]
    assert [size for one in batches for size in one.sizes] == list(map(len, records))
    assert [queue for one in batches for queue in one.queue_ids] == queues[: len(rows)]
    codes = [code for one in batches for code in one.tags_codes]
    assert codes == [java_hash(row["tags"] or "") for row in rows]


@given(sent_rows(), st.integers(1, 400), SIZES)
def test_records_do_not_depend_on_the_number_of_rows_encoded_together(rows, at_once, before):
    batches, records = encode(sent_batch(rows, before=before), max_bytes=at_once)
    assert records == [expected_record(row, number) for number, row in enumerate(rows)]
    assert all(len(one) for one in batches)


def test_rows_with_empty_bodies_are_encoded_in_batches_of_limited_size():
    batches, records = encode(pa.RecordBatch.from_pydict({"body": [b""] * 100}), max_bytes=1000)
    assert len(records) == 100
    assert max(one.data.size for one in batches) <= 1000


def test_a_record_equals_the_golden_record_except_for_the_order_of_properties():
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"hello"], "tags": ["TagA"], "keys": pa.array([["ORDER1"]])}
    )
    columns = check_send_batch(batch)
    ids = pa.array([UNIQ_KEY])
    (encoded,) = encode_batch(columns, "TopicTest", np.array([1], np.int32), ids, BORN)
    encoded.place(np.array([172]), np.array([7]), STORED)
    properties = f"UNIQ_KEY\x01{UNIQ_KEY}\x02KEYS\x01ORDER1\x02TAGS\x01TagA\x02".encode()
    wanted = RECORD_FIELDS | {
        "topic": b"TopicTest",
        "properties": properties,
        "born_host": RECORD_FIELDS["store_host"],
    }
    assert encoded.data.to_pybytes() == raw_record(**wanted)
    assert encoded.tags_codes.tolist() == [HASHES["TagA"]]


@pytest.mark.parametrize(("length", "compressed"), [(4095, False), (4096, True), (5000, True)])
def test_bodies_from_4096_bytes_on_are_deflated_as_clients_do(length, compressed):
    _, (record,) = encode(pa.RecordBatch.from_pydict({"body": ["a" * length]}))
    found = decode_record(record)
    assert found.sys_flag == (0x301 if compressed else 0)
    assert (found.body == b"a" * length) is not compressed
    assert found.to_message().body == b"a" * length
    if length == 5000:
        assert found.body.hex() == DEFLATED


def with_properties_of(length, before=1):
    """Return a batch whose last row has a properties block of this length, after short rows."""
    value = "v" * (length - len("UNIQ_KEY\x01ID0\x02a\x01\x02"))
    rows = [[("a", "1")]] * before + [[("a", value)]]
    maps = pa.array(rows, pa.map_(pa.string(), pa.string()))
    return pa.RecordBatch.from_pydict({"body": [b""] * len(rows), "properties": maps})


def test_32767_bytes_of_properties_are_accepted_but_not_one_more():
    _, records = encode(with_properties_of(32767))
    assert len(decode_record(records[1]).properties) == 32767
    with pytest.raises(MessageError, match="row 1 has 32768 bytes of properties") as caught:
        encode(with_properties_of(32768))
    assert caught.value.code == "PROPERTIES_SIZE_EXCEEDED"
    # Including keys and tags.
    batch = with_properties_of(32767, before=0).append_column("tags", pa.array(["t"]))
    with pytest.raises(MessageError, match="row 0 has 32774 bytes"):
        encode(batch)


def test_placing_changes_only_offsets_and_store_time():
    columns = check_send_batch(pa.RecordBatch.from_pydict({"body": [b"a", b"bb"]}))
    queues, ids = np.zeros(2, np.int32), pa.array(["1", "2"])
    (batch,) = encode_batch(columns, "T", queues, ids, BORN)
    before = batch.data.to_pybytes()
    batch.place(np.array([-1, -1]), np.array([-1, -1]), -1)
    changed = [
        i for i, (a, b) in enumerate(zip(before, batch.data.to_pybytes(), strict=True)) if a != b
    ]
    late = [*range(20, 36), *range(56, 64)]
    assert changed == [start + at for start in batch.bounds[:-1].tolist() for at in late]
