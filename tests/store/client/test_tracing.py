"""The message trace of producers and consumers, in RocketMQ's format."""

import pytest
from pyrocket import Message, MessageQueue, Store, StoreConfig
from pyrocket.client.producer import Producer
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.client.tracing import Tracer
from pyrocket.errors import InvalidInputError, PyrocketError, TopicNameError, TopicNotFoundError
from pyrocket.formats.system_topics import TRACE_TOPIC
from pyrocket.formats.trace import EndTransaction, Pub, SubAfter, SubBefore, decode
from pyrocket.values.transactions import LocalTransactionState
from support.broker import served
from support.name_server import wait_until


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    config = StoreConfig(delay_levels="1s 1s 1s 1s")
    with Store.open(folder, create=True, config=config) as store:
        store.topics.create("orders", read_queues=1, write_queues=1)
        store.topics.create(TRACE_TOPIC, read_queues=1, write_queues=1)
    return folder


def traced(path, kind):
    """Return the records of one kind in the trace topic, in the order of their times."""
    with Store.open(path, read_only=True) as store:
        found = store.read(TRACE_TOPIC, 0, 0, max_messages=1000)
    records = [one for message in found for one in decode(message.body.decode())]
    assert all(
        one.message_id in {*message.keys}
        for message in found
        for one in decode(message.body.decode())
    )
    return [one for one in records if isinstance(one, kind)]


def test_sends_are_traced(path, at):
    with Producer("shop", **at, trace_topic=TRACE_TOPIC) as producer:
        sent = [
            producer.send(Message(topic="orders", body=b"12345", tags="new", keys=["o-1", "o-2"])),
            producer.send(Message(topic="orders", body=b"", delay_level=1)),
        ]
        with pytest.raises(PyrocketError):
            producer.send(
                Message(topic="orders", body=b""), queue=MessageQueue("orders", "broker-a", 9)
            )
    stored, delayed, failed = traced(path, Pub)
    assert stored == Pub(
        timestamp=stored.timestamp,
        region="DefaultRegion",
        group="shop",
        topic="orders",
        message_id=sent[0].msg_id,
        tags="new",
        keys="o-1 o-2",
        store_host="",
        body_length=5,
        cost_ms=stored.cost_ms,
        message_type=0,
        offset_message_id=sent[0].offset_msg_id,
        success=True,
    )
    assert 0 <= stored.cost_ms < 10_000
    assert (delayed.message_type, delayed.success) == (3, True)
    assert (failed.offset_message_id, failed.success) == ("", False)


def test_transactions_are_traced(path, at):
    class Bank:
        def execute(self, message, argument):
            return argument

        def check(self, message):
            return LocalTransactionState.COMMIT

    with Producer("bank", **at, listener=Bank(), trace_topic=TRACE_TOPIC) as producer:
        message = Message(topic="orders", body=b"paid", keys=["o-1"])
        result = producer.send_in_transaction(message, LocalTransactionState.ROLLBACK)
    (half,) = traced(path, Pub)
    assert (half.message_id, half.message_type, half.success) == (result.transaction_id, 1, True)
    (end,) = traced(path, EndTransaction)
    assert (end.transaction_id, end.state, end.from_check) == (
        result.transaction_id,
        "ROLLBACK_MESSAGE",
        False,
    )
    assert (end.group, end.topic, end.keys, end.message_type) == ("bank", "orders", "o-1", 2)


def test_consumption_is_traced(path, at):
    results = [ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER, ValueError("no"), None]

    def listen(messages):
        result = results.pop(0) if results else ConsumeResult.SUCCESS
        if isinstance(result, Exception):
            raise result
        return result

    with Producer(**at) as producer:
        sent = [producer.send(Message(topic="orders", body=b"")).msg_id for _ in range(4)]
    settings = {"consume_from": "first", "thread_max": 1, "trace_topic": TRACE_TOPIC}
    with PushConsumer(
        "g", **at, subscriptions={"orders": "*"}, listener=listen, **settings
    ) as consumer:
        wait_until(lambda: consumer.stats.consumed == 4)
    before, after = traced(path, SubBefore), traced(path, SubAfter)
    assert [one.message_id for one in before[:4]] == sent
    assert {one.group for one in before} == {"g"}
    assert sorted(one.retry_times for one in before) == [0] * 4 + [1] * 3
    assert [one.request_id for one in before] == [one.request_id for one in after]
    assert len({one.request_id for one in before}) == 7
    assert [(one.success, one.context_code) for one in after] == [
        (True, 0),
        (False, 4),
        (False, 2),
        (False, 3),
    ] + [(True, 0)] * 3


def test_messages_of_the_trace_topic_are_not_traced(path, at):
    with Producer(**at, trace_topic="orders") as producer:
        producer.send(Message(topic="orders", body=b"not a trace"))
    with Store.open(path, read_only=True) as store:
        assert [one.body for one in store.read("orders", 0, 0)] == [b"not a trace"]


def test_records_without_room_are_dropped_and_the_client_goes_on(path, monkeypatch, caplog):
    monkeypatch.setattr("pyrocket.client.tracing.MAX_PENDING", 3)
    with Producer(path=path, trace_topic=TRACE_TOPIC) as producer:
        monkeypatch.setattr(Tracer, "_send_all", Tracer.start)
        for _ in range(5):
            producer.send_batch([Message(topic="orders", body=b"")] * 2)
        tracer = producer._tracer
        assert tracer.dropped == 7
        monkeypatch.undo()
    assert len(traced(path, Pub)) == 3
    assert caplog.text.count("message traces of DEFAULT_PRODUCER were dropped") == 1


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_a_missing_trace_topic_is_an_error_at_the_start(path, client):
    config = StoreConfig(auto_create_topics=False)
    with served(Store.open(path, config=config), auto_create_topics=False) as address:
        given = {"endpoint": address, "trace_topic": "traces"}
        if client == "producer":
            one = Producer(**given)
        else:
            one = PushConsumer("g", **given, subscriptions={"orders": "*"}, listener=print)
        with pytest.raises(TopicNotFoundError, match="traces"):
            one.start()


@pytest.mark.parametrize("topic", ["not legal!", "SCHEDULE_TOPIC_XXXX"])
def test_an_illegal_trace_topic_is_refused(topic):
    with pytest.raises(TopicNameError):
        Producer(path="s", trace_topic=topic)
    with pytest.raises((TopicNameError, InvalidInputError)):
        PushConsumer(
            "g", path="s", subscriptions={"orders": "*"}, listener=print, trace_topic=topic
        )
