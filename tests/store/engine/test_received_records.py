"""Records from a client are rejected unless pyrocket's encoder could have encoded them."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import PyrocketError, Store, StoreConfig
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder
from pyrocket.engine.received_records import ReceivedRecords, RecordCheck
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.store import sender_of
from support.blocks import block_of

NOW = 1_700_000_000_000
TIME = pa.timestamp("ms", "UTC")
ROUTES = {"orders": 4}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("orders")
        yield store


def encoded(config=None, topic="orders", **columns):
    batch = pa.record_batch(columns)
    encoder = MessageEncoder(config or StoreConfig(), lambda: NOW)
    sent = check_send_batch(batch)
    return [*encoder.encode_rows(batch, sent, topic, 0, lambda name: AppendRoute(name, 4))]


def three(**columns):
    (batch,) = encoded(body=[b"one", b"two" * 3000, b"three"], **columns)
    return batch


def record(topic="orders", queue_id=0, properties=None, sys_flag=0, body=b"x", **fields):
    given = {"UNIQ_KEY": "1"} if properties is None else properties
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=encode_properties(given),
        born_timestamp=NOW,
        store_timestamp=0,
        sys_flag=sys_flag,
        **fields,
    )


def delayed(level, queue_id, home="orders", home_queue=0):
    properties = {"UNIQ_KEY": "1", "DELAY": level, "REAL_TOPIC": home, "REAL_QID": str(home_queue)}
    return record("SCHEDULE_TOPIC_XXXX", queue_id, properties)


def timed(due, queue_id=0, home="orders"):
    properties = {"UNIQ_KEY": "1", "TIMER_OUT_MS": due, "REAL_TOPIC": home, "REAL_QID": "0"}
    return record("rmq_sys_wheel_timer", queue_id, properties)


def changed(data, at, raw):
    return data[:at] + raw + data[at + len(raw) :]


def check(store, routes, block):
    return RecordCheck(store.config, store.now).check(routes, block)


def received(store, data, routes=ROUTES):
    return ReceivedRecords(routes, [check(store, routes, block_of(data))])


def code_of(store, data, *, sizes=None, routes=ROUTES):
    return code_of_block(store, block_of(data, sizes), routes)


def code_of_block(store, block, routes=ROUTES):
    end = store.position().published
    with pytest.raises(PyrocketError) as caught:
        check(store, routes, block)
    assert store.position().published == end
    return caught.value.code


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": ["a", None, "b"], "keys": [["k", "l"], [], None]},
        {"delayLevel": pa.array([1, 5, 18], pa.int32())},
        {"deliverTimestamp": pa.array([NOW + ms for ms in (5000, 1000, 9000)]).cast(TIME)},
        {"shardingKey": ["a", "b", "c"]},
    ],
)
def test_the_derived_columns_equal_those_of_the_encoder(store, columns):
    batch = three(**columns)
    (found,) = received(store, batch.data.to_pybytes()).batches
    assert found.topic == batch.topic
    assert found.due == batch.due
    for name in ("bounds", "queue_ids", "sizes", "delays"):
        assert np.array_equal(getattr(found, name), getattr(batch, name)), name
    assert np.array_equal(found.keys.rows, batch.keys.rows)
    assert np.array_equal(found.keys.hashes, batch.keys.hashes)
    if batch.delays is None:
        assert np.array_equal(found.tags_codes, batch.tags_codes)


def test_offsets_and_store_times_of_a_client_are_ignored(store):
    data = bytearray(three().data.to_pybytes())
    struct.pack_into(">qq", data, 20, 77, 88)
    struct.pack_into(">q", data, 56, 99)
    sender_of(store).append_received([received(store, bytes(data))])
    stored = [message for message in store.messages("orders") if message.body == b"one"]
    assert stored[0].queue_offset == 0
    assert stored[0].store_timestamp > NOW


def test_every_changed_byte_of_a_body_is_rejected(store):
    (batch,) = encoded(body=[b"abcdef"])
    data = batch.data.to_pybytes()
    at = data.index(b"abcdef")
    assert {code_of(store, changed(data, at + n, b"?")) for n in range(6)} == {"RECORD_CORRUPT"}


def test_broken_structure_is_rejected(store):
    data = three().data.to_pybytes()
    for bad in (
        b"",
        b"x" * 200,
        data[:-1],
        data + b"\0" * 8,
        changed(data, 0, struct.pack(">i", 90)),
        changed(data, 0, struct.pack(">i", 2**31 - 1)),
        changed(data, 4, b"\0\0\0\0"),
        changed(data, 84, struct.pack(">i", -1)),
        changed(data, 84, struct.pack(">i", 2**31 - 1)),
    ):
        assert code_of(store, bad) == "RECORD_CORRUPT"
        if len(bad) == len(data):
            assert code_of(store, bad, sizes=three().sizes) == "RECORD_CORRUPT"


@pytest.mark.parametrize(
    "change",
    [
        lambda block: b"",
        lambda block: block[:31],
        lambda block: block[:-1],
        lambda block: block + b"\0",
        lambda block: changed(block, 0, b"PRB2"),
        lambda block: changed(block, 4, b"\1"),
        lambda block: changed(block, 12, struct.pack("<I", 2**32 - 1)),
        lambda block: changed(block, 16, struct.pack("<I", 0)),
    ],
)
def test_data_that_is_not_a_block_is_rejected(store, change):
    assert code_of_block(store, change(block_of(three().data.to_pybytes()))) == "RECORD_CORRUPT"


def test_record_sizes_beyond_the_end_of_a_block_are_rejected(store):
    batch = three()
    first, second, third = batch.sizes.tolist()
    for sizes in (
        (first + 1, second - 1, third),
        (first + second, third - 5, 5),
        (-first, second + 2 * first, third),
        (0, first + second, third),
        (90, first + second - 90, third),
    ):
        assert code_of(store, batch.data.to_pybytes(), sizes=sizes) == "RECORD_CORRUPT"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (record(topic="other"), "TOPIC_ILLEGAL"),
        (record(topic="a/b"), "RECORD_CORRUPT"),
        (record() + record(topic="bills"), "RECORD_ILLEGAL"),
        (record(topic="RMQ_SYS_TRANS_HALF_TOPIC"), "TOPIC_ILLEGAL"),
        (record(topic="rmq_sys_pyrocket_sink"), "TOPIC_ILLEGAL"),
        (record(queue_id=4), "QUEUE_NOT_FOUND"),
        (record(queue_id=-1), "QUEUE_NOT_FOUND"),
        (record(sys_flag=4), "RECORD_ILLEGAL"),
        (record(sys_flag=0x40000000), "RECORD_ILLEGAL"),
        (record(properties={}), "RECORD_ILLEGAL"),
        (record(properties={"UNIQ_KEY": "1", "REAL_TOPIC": "bills"}), "RECORD_ILLEGAL"),
        (record(properties={"UNIQ_KEY": "1", "TRAN_MSG": "true"}), "RECORD_ILLEGAL"),
        (record(properties={"UNIQ_KEY": "1", "__CRC32#": "0123456789"}), "RECORD_CORRUPT"),
        (record(store_host=(b"\x01\x02\x03\x04", 1)), "RECORD_ILLEGAL"),
        (record(body=b"x" * (4 * 1024 * 1024 + 1)), "BODY_TOO_LARGE"),
        (delayed("1", 1), "QUEUE_NOT_FOUND"),
        (delayed("19", 18), "RECORD_ILLEGAL"),
        (delayed("0", 0), "RECORD_ILLEGAL"),
        (delayed("x", 0), "RECORD_ILLEGAL"),
        (delayed("1", 0, home="bills"), "TOPIC_ILLEGAL"),
        (delayed("1", 0, home_queue=4), "QUEUE_NOT_FOUND"),
        (timed("x"), "RECORD_ILLEGAL"),
        (timed(str(10**15)), "TIMER_TOO_FAR"),
        (timed(str(NOW), queue_id=1), "QUEUE_NOT_FOUND"),
        (timed(str(NOW), home="bills"), "TOPIC_ILLEGAL"),
    ],
)
def test_illegal_records_are_rejected(store, bad, code):
    assert code_of(store, bad) == code


def test_a_request_for_a_system_topic_is_rejected(store):
    bad = record(topic="rmq_sys_pyrocket_sink")
    assert code_of(store, bad, routes={"rmq_sys_pyrocket_sink": 1}) == "TOPIC_ILLEGAL"


def test_a_store_with_checksums_of_whole_records_adds_them_to_received_records(tmp_path):
    config = StoreConfig(property_crc=True)
    with Store.open(tmp_path / "sealed", create=True, config=config) as store:
        store.topics.create("orders")
        records = received(store, three().data.to_pybytes())
        (result,) = sender_of(store).append_received([records])
        assert result.rows == 3
        assert {message.body for message in store.messages("orders")} >= {b"one", b"three"}


def test_each_request_of_a_group_succeeds_or_fails_independently(store):
    good = three().data.to_pybytes()
    store.topics.create("bills", read_queues=1, write_queues=1)
    gone = received(store, record(topic="gone"), {"gone": 1})
    shrunk = received(store, record(topic="bills", queue_id=1), {"bills": 2})
    first, second, third, last = sender_of(store).append_received(
        [received(store, good), gone, shrunk, received(store, good)]
    )
    assert (first.rows, last.rows) == (3, 3)
    assert second.code == third.code == "TOPIC_CHANGED"
    assert sum(1 for _ in store.messages("orders")) == 6
