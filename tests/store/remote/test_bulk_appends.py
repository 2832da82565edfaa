"""Remote appends write the same messages as local appends."""

import itertools
import os
import threading

import grpc
import pyarrow as pa
import pytest
from pyrocket import Message, MessageFilter, Store, StoreConfig
from pyrocket.broker.append_queue import AppendQueue
from pyrocket.engine.message_encoder import MessageEncoder
from pyrocket.errors import BrokerBusyError, MessageError, SchemaError, TopicNotFoundError
from pyrocket.formats.record import encode_record
from pyrocket.remote import sink as remote_sink
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.sink import RemoteSink
from pyrocket.wire.descriptors import message_class
from support.blocks import block_of
from support.broker import served

COLUMNS = (
    *("topic", "queueId", "queueOffset", "physicalOffset", "body", "tags", "keys"),
    *("properties", "systemProperties", "flag", "sysFlag"),
)
VARYING = {"UNIQ_KEY", "TIMER_DELIVER_MS", "TIMER_OUT_MS"}


@pytest.fixture
def place(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store, served(store) as address:
        client = Client(Connection(address), Timeouts(total=2))
        yield store, RemoteSink(client)
        client.close()


def rows(count=300):
    every = range(count)
    return pa.record_batch(
        {
            "body": pa.array([b"%d " % row * (row * 7) for row in every], pa.binary()),
            "topic": [("orders", "bills")[row % 2] for row in every],
            "tags": ["even" if row % 4 < 2 else None for row in every],
            "keys": [[f"k{row % 10}", "all"] if row % 3 else [] for row in every],
            "properties": pa.array(
                [[("colour", "red")] if row % 5 else [] for row in every],
                pa.map_(pa.string(), pa.string()),
            ),
            "flag": pa.array(every, pa.int32()),
            "delayLevel": pa.array([18 if row % 50 == 7 else 0 for row in every], pa.int32()),
            "shardingKey": [str(row) if row % 7 == 0 else None for row in every],
        }
    )


def record(queue_id=0, body=b"x"):
    return encode_record(
        topic="orders",
        queue_id=queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=b"UNIQ_KEY\x011\x02",
        born_timestamp=0,
        store_timestamp=0,
    )


def log_of(store):
    store.topics.get("orders")
    parts = store.views.plan("commitlog")
    batches = [
        batch for part in parts for batch in store.views.scan(part, COLUMNS, verify_crc=True)
    ]
    found = pa.Table.from_batches(batches).to_pylist()
    for row in found:
        own = dict(row["systemProperties"])
        assert own["UNIQ_KEY"]
        row["systemProperties"] = {name: own[name] for name in own if name not in VARYING}
    return found


def found_by(store, topic, **where):
    select = MessageFilter.parse(**where)
    return sum(
        batch.num_rows
        for queue, has in store.offsets(topic).items()
        for batch in store.scan(topic, queue, has.minimum, has.maximum, ["body"], where=select)
    )


def test_a_remote_append_writes_the_same_messages_as_a_local_append(place, tmp_path):
    store, sink = place
    with Store.open(tmp_path / "other", create=True) as local:
        expected = local.append_batch(rows(), first_queue=0)
        result = sink.append(rows(), first_queue=0)
        assert (result.rows, result.bytes) == (expected.rows, expected.bytes)
        assert log_of(store) == log_of(local)
        for topic in ("orders", "bills"):
            assert store.offsets(topic) == local.offsets(topic)
            assert found_by(store, topic, tags="even") == found_by(local, topic, tags="even") > 0
            for key in ("k0" if topic == "orders" else "k1", "all"):
                keyed = len(store.lookup.query(topic, key))
                assert keyed == len(local.lookup.query(topic, key)) > 0
    assert result.log_end == store.position().published
    assert sink.store_id == store.uuid


def test_the_client_rejects_invalid_rows_and_the_broker_rejects_invalid_records(place):
    store, sink = place
    sink.append(rows())
    end = store.position().published
    with pytest.raises(SchemaError):
        sink.append(pa.record_batch({"bodi": [b"x"]}), topic="orders")
    with pytest.raises(MessageError) as caught:
        sink.client.call("Append", topics={"orders": 4}, records=[block_of(record(queue_id=9))])
    assert caught.value.code == "QUEUE_NOT_FOUND"
    assert store.position().published == end


def test_a_missing_topic_is_created_only_with_auto_create_topics(place):
    store, sink = place
    strict = RemoteSink(sink.client, StoreConfig(auto_create_topics=False))
    batch = pa.record_batch({"body": [b"x"]})
    with pytest.raises(TopicNotFoundError):
        strict.append(batch, topic="new")
    assert "new" not in store.topics.all()
    assert sink.append(batch, topic="new").rows == 1
    assert strict.append(batch, topic="new").rows == 1
    assert sink.prepare("wide", queues=7).write_queues == 7
    assert sink.prepare("wide", queues=3).write_queues == 7
    with pytest.raises(TopicNotFoundError):
        sink.prepare("missing", create=False)


def test_the_route_is_reloaded_after_a_topic_has_changed(place):
    store, sink = place
    batch = pa.record_batch({"body": [b"x"] * 8})
    sink.append(batch, topic="orders")
    store.topics.update("orders", write_queues=1)
    before = store.max_offset("orders", 0)
    assert sink.append(batch, topic="orders").rows == 8
    assert store.max_offset("orders", 0) == before + 8


def test_a_full_append_queue_rejects_at_once_and_the_client_retries(place, monkeypatch):
    _, sink = place
    batch = pa.record_batch({"body": [b"x"]})
    sink.append(batch, topic="orders")
    put, left = AppendQueue.put, [True, True]

    def full(queue, records):
        if left and left.pop():
            raise BrokerBusyError("2000 appends are waiting.")
        return put(queue, records)

    monkeypatch.setattr(AppendQueue, "put", full)
    assert sink.append(batch, topic="orders").rows == 1
    left[:] = [True] * 1000
    with pytest.raises(BrokerBusyError, match="are waiting"):
        sink.client.within(3).call("Append", topics={"orders": 4}, records=[block_of(record())])


def test_the_client_enforces_the_limits_of_the_broker(tmp_path):
    """The client reports the row number and sends nothing. The broker also rejects such records."""
    hour = 3_600_000
    config = StoreConfig(max_message_bytes=1000, timer_max_delay_ms=hour)
    bodies = pa.record_batch({"body": [b"x" * 1000, b"y" * 1001]})
    late = pa.record_batch({"body": [b"x"], "delay": ["61m"]})
    own = StoreConfig(timer_max_delay_ms=24 * hour)
    store = Store.open(tmp_path / "store", create=True, config=config)
    with served(store, request_bytes=1 << 20) as address:
        client = Client(Connection(address), Timeouts(total=20))
        sink = RemoteSink(client, own)
        for batch, code in ((bodies, "BODY_TOO_LARGE"), (late, "TIMER_TOO_FAR")):
            with pytest.raises(MessageError, match=r"row [01] ") as caught:
                sink.append(batch, topic="orders")
            assert caught.value.code == code
        assert "timer_max_delay of a broker" in caught.value.remedy
        unlimited = RemoteSink(client, own)
        unlimited._encoder = MessageEncoder(StoreConfig(), store.now)
        with pytest.raises(MessageError, match="max_message_bytes of the broker"):
            unlimited.append(pa.record_batch({"body": [os.urandom(1001)]}), topic="orders")
        with pytest.raises(MessageError, match="timer_max_delay of the broker"):
            unlimited.append(late, topic="orders")
        many = pa.record_batch({"body": [b"x" * 1000] * 3000})
        assert sink.append(many, topic="orders").rows == 3000
        client.close()


def append_on(sink, messages):
    connection = sink.client.connection
    send = connection.greeted(5).stream_unary("/pyrocket.v1.Broker/Append")
    return send(iter(messages), timeout=20)


HEAD = message_class("pyrocket.v1.AppendRequest")(topics={"orders": 4}).SerializeToString()


def test_a_request_without_its_empty_last_message_appends_nothing(place):
    store, sink = place
    sink.prepare("orders")
    end = store.position().published
    for cut in ((), (HEAD,), (HEAD, block_of(record()), block_of(record()))):
        with pytest.raises(grpc.RpcError) as caught:
            append_on(sink, cut)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert store.position().published == end
    append_on(sink, [HEAD, block_of(record()), block_of(record()), b""])
    assert store.position().published > end


def test_an_error_in_any_block_appends_nothing(place):
    store, sink = place
    sink.prepare("orders")
    end = store.position().published
    for bad in range(3):
        blocks = [block_of(record(queue_id=9 if number == bad else 0)) for number in range(3)]
        with pytest.raises(MessageError):
            sink.client.call("Append", topics={"orders": 4}, records=blocks)
    assert store.position().published == end


def test_an_encoding_error_in_a_row_appends_nothing(place, monkeypatch):
    store, sink = place
    sink.prepare("orders")
    monkeypatch.setattr(remote_sink, "BLOCK_BYTES", 1000)
    good = {"body": b"x" * 500, "keys": ["k"], "topic": "orders"}
    bad = {"body": b"x", "keys": ["k" * 40_000], "topic": "bills"}
    sink.prepare("bills")
    end = store.position().published
    with pytest.raises(MessageError, match="row 9"):
        sink.append(pa.RecordBatch.from_pylist([*[good] * 9, bad]))
    assert store.position().published == end
    assert sink.append(pa.RecordBatch.from_pylist([good] * 9)).rows == 9


def test_a_stalled_sender_is_disconnected_and_too_many_bytes_are_rejected(tmp_path):
    opened = Store.open(tmp_path / "store", create=True)
    opened.topics.create("orders")
    with (
        opened as store,
        served(store, stream_stalled=0.2, connection_bytes=10_000, request_bytes=10_000) as address,
    ):
        sink = RemoteSink(Client(Connection(address), Timeouts(total=3)))
        large = block_of(record(body=b"x" * 6000))
        with pytest.raises(BrokerBusyError):
            sink.client.call("Append", topics={"orders": 4}, records=[large, large])
        stop = threading.Event()
        waiting = itertools.chain([HEAD], iter(lambda: stop.wait(20), True))
        with pytest.raises(grpc.RpcError, match="stopped sending"):
            append_on(sink, waiting)
        stop.set()
        assert sink.append(pa.record_batch({"body": [b"x"]}), topic="orders").rows == 1
        sink.close()


def test_one_message_is_sent_with_all_its_fields(place):
    store, sink = place
    message = Message(topic="orders", body=b"1", tags="t", keys="kl", sharding_key="s", flag=3)
    with pytest.raises(TopicNotFoundError):
        sink.send(message)
    sent = sink.send(message, create=True)
    (stored,) = store.messages("orders")
    assert (sent.topic, sent.queue_id) == ("orders", stored.queue_id)
    assert sent.broker == store.broker_name
    assert (sent.msg_id, sent.queue_offset) == (stored.msg_id, 0)
    assert sent.physical_offset == stored.physical_offset
    assert store.lookup.by_offset_id(sent.offset_msg_id) == stored
    assert sent.queue_id == store.append(message).queue_id
    assert (stored.body, stored.tags, stored.flag) == (b"1", "t", 3)
    assert (*stored.keys,) == ("kl",)
    queue_id = (sent.queue_id + 1) % 4
    assert sink.send(Message(topic="orders", body=b"2", queue_id=queue_id)).queue_id == queue_id
    with pytest.raises(MessageError):
        sink.send(Message(topic="orders", body=b"", queue_id=9))


def test_the_call_of_earlier_releases_to_send_one_message_is_unknown(place):
    channel = place[1].client.connection.channel
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/pyrocket.v1.Broker/Send")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
