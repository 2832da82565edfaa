"""The calls of consumers in RocketMQ's protocol: assignments, receives, acks, dead letters."""

import threading
import time
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.broker.pop.handles import Handles
from pyrocket.broker.pop.pop import Pop
from pyrocket.remote.admin import RemoteAdmin
from pyrocket.remote.client import Client, Connection
from pyrocket.server.messaging.interface import number
from pyrocket.values.admin import Backoff
from support.broker import served
from support.pops import append_compressed
from support.rocketmq_stub import ENDPOINTS, Stub, code_of, queue, resource

OK = number("Code", "OK")
GROUP = resource("g")


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    store.topics.create("t")
    store.topics.create("unreadable", perm=2)
    with served(store) as address:
        yield store, address


@pytest.fixture
def store(serving):
    return serving[0]


@pytest.fixture
def stub(serving):
    found = Stub(serving[1])
    yield found
    found.close()


def receive(stub, topic, group="g", wait_s=0, **fields):
    """Receive; return the code and the messages. The last reply must be the delivery time."""
    if not fields.get("auto_renew"):
        fields.setdefault("invisible_duration", {"seconds": 60})
    head, *messages, tail = stub.call(
        "ReceiveMessage",
        group=resource(group),
        message_queue=queue(topic),
        long_polling_timeout={"seconds": int(wait_s), "nanos": int(wait_s % 1 * 1e9)},
        **{"batch_size": 32, **fields},
    )
    assert tail.WhichOneof("content") == "delivery_timestamp"
    return code_of(head), [one.message for one in messages]


def handle(message):
    return message.system_properties.receipt_handle


def ack(stub, topic, *handles, group="g"):
    entries = [{"message_id": "x", "receipt_handle": one} for one in handles]
    return stub.call("AckMessage", group=resource(group), topic=resource(topic), entries=entries)


def change(stub, topic, handle, seconds=0, group="g"):
    return stub.call(
        "ChangeInvisibleDuration",
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        invisible_duration={"seconds": seconds},
    )


@contextmanager
def parked(*arguments, **more):
    """Receive in a thread; yield a function that returns the result and the elapsed seconds."""
    found, began = [], time.monotonic()

    def run():
        found.append((*receive(*arguments, **more), time.monotonic() - began))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)

    def result():
        thread.join(20)
        return found[0]

    yield result
    thread.join(20)


def test_a_message_is_received_and_acked(store, stub):
    sent = stub.send(b"body", topic="acked", tag="a", keys=["k"], properties={"p": "v"})
    code, (message,) = receive(stub, "acked")
    assert code == "OK"
    system = message.system_properties
    assert (message.topic.name, message.body) == ("acked", b"body")
    assert dict(message.user_properties) == {"p": "v"}
    assert system.message_id == sent.entries[0].message_id
    assert (system.tag, [*system.keys], system.delivery_attempt) == ("a", ["k"], 1)
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert system.body_encoding == number("Encoding", "IDENTITY")
    reply = ack(stub, "acked", handle(message))
    assert reply.status.code == reply.entries[0].status.code == OK
    assert code_of(ack(stub, "acked", handle(message))) == "INVALID_RECEIPT_HANDLE"
    assert receive(stub, "acked") == ("MESSAGE_NOT_FOUND", [])


def test_an_ack_reports_its_invalid_handles(stub):
    stub.send(b"1", topic="mixed")
    _, (message,) = receive(stub, "mixed")
    reply = ack(stub, "mixed", "wrong")
    assert code_of(reply) == code_of(reply.entries[0]) == "INVALID_RECEIPT_HANDLE"
    assert code_of(ack(stub, "mixed", handle(message), group="other")) == "INVALID_RECEIPT_HANDLE"
    reply = ack(stub, "mixed", handle(message), "wrong")
    assert code_of(reply) == "MULTIPLE_RESULTS"
    assert [code_of(one) for one in reply.entries] == ["OK", "INVALID_RECEIPT_HANDLE"]


def test_a_poll_is_answered_when_a_message_arrives(store, stub):
    store.topics.create("polled")
    with parked(stub, "polled", wait_s=10) as result:
        stub.send(b"1", topic="polled")
        code, (message,), seconds = result()
    assert (code, message.body) == ("OK", b"1")
    assert seconds < 5


def test_a_poll_ends_after_its_timeout(store, stub):
    store.topics.create("silent")
    began = time.monotonic()
    assert receive(stub, "silent", wait_s=0.5) == ("MESSAGE_NOT_FOUND", [])
    assert 0.5 <= time.monotonic() - began < 5


def test_a_poll_ends_when_its_client_disconnects(store, stub):
    store.topics.create("left")
    with parked(stub, "left", wait_s=15) as result:
        assert stub.code("NotifyClientTermination", group=GROUP) == "OK"
        code, _, seconds = result()
    assert code == "MESSAGE_NOT_FOUND"
    assert seconds < 5


def test_a_cancelled_poll_receives_no_message(store, stub):
    store.topics.create("cancelled")
    calls = [
        stub.channel.unary_stream("/apache.rocketmq.v2.MessagingService/ReceiveMessage")(
            b"", metadata=stub.metadata, timeout=10
        )
        for _ in range(3)
    ]
    for call in calls:
        call.cancel()
    with parked(stub, "cancelled", wait_s=10) as result:
        stub.send(b"1", topic="cancelled")
        assert result()[0] == "OK"


def test_a_nacked_message_is_received_again_with_its_next_attempt(store, stub):
    stub.send(b"1", topic="nacked")
    _, (message,) = receive(stub, "nacked")
    with parked(stub, "nacked", wait_s=10) as result:
        reply = change(stub, "nacked", handle(message))
        _, (again,), seconds = result()
    assert reply.status.code == OK
    assert reply.receipt_handle != handle(message)
    assert again.system_properties.delivery_attempt == 2
    assert seconds < 5
    assert code_of(ack(stub, "nacked", handle(message))) == "INVALID_RECEIPT_HANDLE"
    assert code_of(ack(stub, "nacked", handle(again))) == "OK"


@pytest.mark.parametrize(("seconds", "code"), [(-1, "ILLEGAL_INVISIBLE_TIME"),
                                               (43_201, "ILLEGAL_INVISIBLE_TIME")])  # fmt: skip
def test_the_reply_to_a_rejected_change_has_the_old_handle(stub, seconds, code):
    stub.send(b"1", topic="changed")
    _, messages = receive(stub, "changed")
    reply = change(stub, "changed", handle(messages[-1]), seconds)
    assert code_of(reply) == code
    assert reply.receipt_handle == handle(messages[-1])
    reply = change(stub, "changed", "wrong")
    assert (code_of(reply), reply.receipt_handle) == ("INVALID_RECEIPT_HANDLE", "wrong")
    reply = change(stub, "changed", "wrong", group="a b")
    assert (code_of(reply), reply.receipt_handle) == ("ILLEGAL_CONSUMER_GROUP", "wrong")


def test_the_reply_to_a_change_that_cannot_be_stored_has_the_old_handle(store, stub, monkeypatch):
    from pyrocket.errors import BrokerBusyError

    stub.send(b"1", topic="busy")
    _, (message,) = receive(stub, "busy")

    def refuse(*_):
        raise BrokerBusyError("full.")

    monkeypatch.setattr(Handles, "_find", refuse)
    reply = change(stub, "busy", handle(message), seconds=1)
    assert code_of(reply) == "TOO_MANY_REQUESTS"
    assert reply.receipt_handle == handle(message)


def forward(stub, topic, handle):
    return stub.code(
        "ForwardMessageToDeadLetterQueue",
        group=resource("fifo"),
        topic=resource(topic),
        receipt_handle=handle,
        message_id="x",
    )


def test_a_dead_letter_is_received_from_its_topic(store, stub):
    sent = stub.send(b"dead", topic="forwarded")
    store.groups.create("fifo")
    store.groups.update("fifo", fifo=True)
    _, (message,) = receive(stub, "forwarded", "fifo")
    assert forward(stub, "forwarded", "wrong") == "INVALID_RECEIPT_HANDLE"
    assert forward(stub, "forwarded", handle(message)) == "OK"
    assert forward(stub, "forwarded", handle(message)) == "OK"
    _, (letter,) = receive(stub, "%DLQ%fifo", group="undertaker")
    origin = letter.system_properties.dead_letter_queue
    assert letter.body == b"dead"
    assert (origin.topic, origin.message_id) == ("forwarded", sent.entries[0].message_id)


def test_a_fifo_group_waits_for_the_ack_of_the_previous_message(store, stub):
    store.groups.create("fifo")
    store.groups.update("fifo", fifo=True)
    for body in (b"1", b"2"):
        stub.send(body, topic="ordered", message_group="one")
    _, (first,) = receive(stub, "ordered", "fifo", batch_size=1, attempt_id="x")
    assert receive(stub, "ordered", "fifo", batch_size=1, attempt_id="y")[1] == []
    _, (again,) = receive(stub, "ordered", "fifo", batch_size=1, attempt_id="x")
    assert (first.body, again.body) == (b"1", b"1")
    with parked(stub, "ordered", "fifo", wait_s=10, batch_size=1, attempt_id="z") as result:
        assert code_of(ack(stub, "ordered", handle(first), group="fifo")) == "OK"
        code, (second,), seconds = result()
    assert (code, second.body) == ("OK", b"2")
    assert seconds < 5


def assigned(stub, topic, group):
    return stub.call(
        "QueryAssignment", topic=resource(topic), group=resource(group), endpoints=ENDPOINTS
    )


def test_a_push_consumer_polls_all_queues_of_a_topic_as_one(store, stub):
    store.groups.create("fifo")
    store.groups.update("fifo", fifo=True)
    for group in ("g", "fifo"):
        (one,) = assigned(stub, "t", group).assignments
        assert one.message_queue.id == -1
        assert one.message_queue.broker.endpoints.addresses[0].port == 8081


REFUSED = {
    "assignment of a missing topic": (
        "TOPIC_NOT_FOUND",
        "QueryAssignment",
        {"topic": resource("missing"), "group": GROUP, "endpoints": ENDPOINTS},
    ),
    "assignment of an unreadable topic": (
        "FORBIDDEN",
        "QueryAssignment",
        {"topic": resource("unreadable"), "group": GROUP, "endpoints": ENDPOINTS},
    ),
    "assignment without endpoints": (
        "ILLEGAL_ACCESS_POINT",
        "QueryAssignment",
        {"topic": resource("t"), "group": GROUP},
    ),
    "ack of nothing": ("BAD_REQUEST", "AckMessage", {"topic": resource("t"), "group": GROUP}),
    "short invisible time": (
        "ILLEGAL_INVISIBLE_TIME",
        "ReceiveMessage",
        {"group": GROUP, "message_queue": queue(), "invisible_duration": {"seconds": 9}},
    ),
    "receive of a missing topic": (
        "TOPIC_NOT_FOUND",
        "ReceiveMessage",
        {"group": GROUP, "message_queue": queue("missing"), "auto_renew": True},
    ),
    "receive of an unreadable topic": (
        "FORBIDDEN",
        "ReceiveMessage",
        {"group": GROUP, "message_queue": queue("unreadable"), "auto_renew": True},
    ),
    "receive for an illegal group": (
        "ILLEGAL_CONSUMER_GROUP",
        "ReceiveMessage",
        {"group": resource("g g"), "message_queue": queue(), "auto_renew": True},
    ),
    "receive with a malformed filter": (
        "ILLEGAL_FILTER_EXPRESSION",
        "ReceiveMessage",
        {
            "group": GROUP,
            "message_queue": queue(),
            "auto_renew": True,
            "filter_expression": {"type": 2, "expression": "a ="},
        },
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_is_rejected_with_its_code(stub, case):
    code, call, fields = REFUSED[case]
    assert stub.code(call, **fields) == code


def test_rejected_calls_create_neither_topics_nor_groups(store, stub):
    receive(stub, "t")
    before = {*store.topics.all()}, {*store.groups.all()}
    stub.code("ReceiveMessage", group=resource("new1"), message_queue=queue("missing"))
    receive(stub, "unreadable", group="new2", auto_renew=True)
    for group in ("g", "new3"):
        forward = {"group": resource(group), "topic": resource("t"), "receipt_handle": "garbage"}
        assert stub.code("ForwardMessageToDeadLetterQueue", **forward) == "INVALID_RECEIPT_HANDLE"
        assert code_of(ack(stub, "t", "garbage", group=group)) == "INVALID_RECEIPT_HANDLE"
        assert code_of(change(stub, "t", "garbage", group=group)) == "INVALID_RECEIPT_HANDLE"
    assert ({*store.topics.all()}, {*store.groups.all()}) == before


def test_a_deadline_before_the_end_of_the_poll_is_rejected(stub):
    from pyrocket.server.messaging.interface import new

    request = new(
        "ReceiveMessageRequest",
        group=GROUP,
        message_queue=queue(),
        auto_renew=True,
        long_polling_timeout={"seconds": 20},
    )
    path = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
    call = stub.channel.unary_stream(path)(
        request.SerializeToString(), metadata=stub.metadata, timeout=0.8
    )
    first = type(new("ReceiveMessageResponse")).FromString(next(call))
    assert code_of(first) == "ILLEGAL_POLLING_TIME"
    call.cancel()


def test_a_group_is_not_created_without_auto_create_groups(tmp_path):
    store = Store.open(tmp_path, create=True)
    store.topics.create("t")
    with served(store, auto_create_groups=False) as address:
        stub = Stub(address)
        assert receive(stub, "t")[0] == "CONSUMER_GROUP_NOT_FOUND"
        store.groups.create("g")
        assert receive(stub, "t")[0] == "MESSAGE_NOT_FOUND"
        stub.close()


@pytest.mark.parametrize(
    ("language", "strategy"), [("PYTHON", "customized_backoff"), ("NODE_JS", "exponential_backoff")]
)
def test_the_settings_of_a_consumer_are_completed(store, stub, language, strategy):
    store.groups.create("fifo")
    store.groups.update("fifo", fifo=True, retry_max_times=3)
    settings = {
        "client_type": 2,
        "user_agent": {"language": number("Language", language)},
        "subscription": {"group": resource("fifo"), "subscriptions": [{"topic": resource("t")}]},
    }
    with stub.telemetry(**settings) as commands:
        reply = next(commands).settings
    assert reply.subscription.fifo
    assert reply.subscription.receive_batch_size == 32
    assert reply.subscription.long_polling_timeout.seconds == 20
    assert reply.backoff_policy.max_attempts == 4
    assert reply.backoff_policy.WhichOneof("strategy") == strategy


def test_messages_of_a_stopped_push_consumer_are_received_again_soon(store, stub, serving):
    stub.send(b"1", topic="released")
    assert len(receive(stub, "released", auto_renew=True)[1]) == 1
    assert stub.code("NotifyClientTermination", group=GROUP) == "OK"
    other = Stub(serving[1], "other@1@0@z")
    _, (again,) = receive(other, "released", wait_s=10)
    assert again.system_properties.delivery_attempt == 2
    other.close()


def test_a_nack_of_a_nodejs_client_in_milliseconds_uses_the_delay_of_the_group(store, stub):
    store.groups.create("doubling")
    store.groups.update("doubling", backoff=Backoff(initial_ms=1_500, max_ms=60_000))
    settings = {
        "user_agent": {"language": number("Language", "NODE_JS")},
        "subscription": {
            "group": resource("doubling"),
            "subscriptions": [{"topic": resource("t")}],
        },
    }
    stub.send(b"1", topic="hasty")
    with stub.telemetry(**settings) as commands:
        next(commands)
        _, (message,) = receive(stub, "hasty", "doubling", auto_renew=True)
        began = time.monotonic()
        assert code_of(change(stub, "hasty", handle(message), group="doubling")) == "OK"
        _, (again,) = receive(stub, "hasty", "doubling", wait_s=8)
        assert (again.body, time.monotonic() - began > 1.4) == (b"1", True)


def test_a_pull_waits_for_a_message_in_its_queue(store, stub):
    store.topics.create("awaited", read_queues=1, write_queues=1)
    timer = threading.Timer(0.5, lambda: stub.send(b"1", topic="awaited"))
    timer.start()
    head, message, tail = stub.call(
        "PullMessage", message_queue=queue("awaited"), batch_size=1,
        long_polling_timeout={"seconds": 10},
    )  # fmt: skip
    assert (code_of(head), message.message.body, tail.next_offset) == ("OK", b"1", 1)
    timer.join()


@pytest.mark.parametrize("by", ["UpdateOffset", "ResetGroup"])
@pytest.mark.parametrize("sent", [1, 2], ids=["all acked", "the first in flight"])
def test_a_reset_takes_effect_before_the_acks_are_saved(store, stub, serving, by, sent):
    topic = f"reset-{by}-{sent}"
    store.topics.create(topic, read_queues=1, write_queues=1)
    store.groups.commit("g", topic, {0: 0})
    bodies = [b"%d" % count for count in range(sent)]
    for body in bodies:
        stub.send(body, topic=topic)
    _, messages = receive(stub, topic)
    assert code_of(ack(stub, topic, handle(messages[-1]))) == "OK"
    if by == "UpdateOffset":
        assert stub.code(by, group=GROUP, message_queue=queue(topic), offset=0) == "OK"
    else:
        with closing(Client(Connection(serving[1]))) as client:
            RemoteAdmin(client).groups.reset("g", topic, "earliest")
    _, again = receive(stub, topic, wait_s=5)
    attempts = [(one.body, one.system_properties.delivery_attempt) for one in again]
    assert attempts == [(body, 1) for body in bodies]


def test_a_pull_skips_a_body_that_does_not_inflate(store, stub):
    store.topics.create("torn", read_queues=1, write_queues=1)
    append_compressed(store, b"no zlib", topic="torn")
    stub.send(b"good", topic="torn")
    _, message, tail = stub.call("PullMessage", message_queue=queue("torn"), batch_size=32)
    assert (message.message.body, tail.next_offset) == (b"good", 2)


def test_one_poll_examines_messages_until_its_filter_matches(store, stub):
    store.topics.create("far", read_queues=1, write_queues=1)
    rows = pa.RecordBatch.from_pydict({"body": [b"x"] * 25_000, "tags": ["no"] * 25_000})
    for _ in range(2):
        store.append_batch(rows, topic="far")
    stub.send(b"wanted", topic="far", tag="yes")
    began = time.monotonic()
    wanted = {"type": 1, "expression": "yes"}
    _, (message,) = receive(stub, "far", wait_s=15, filter_expression=wanted)
    _, pulled, _ = stub.call(
        "PullMessage", message_queue=queue("far"), batch_size=1, filter_expression=wanted,
        long_polling_timeout={"seconds": 15},
    )  # fmt: skip
    assert (message.body, pulled.message.body) == (b"wanted", b"wanted")
    assert time.monotonic() - began < 14


@pytest.mark.parametrize("call", ["ReceiveMessage", "PullMessage"])
def test_a_reply_exceeds_4_mib_of_bodies_by_at_most_one_message(store, stub, call):
    topic = f"large-{call}"
    store.topics.create(topic, read_queues=1, write_queues=1)
    for _ in range(4):
        stub.send(bytes(1536 << 10), topic=topic)
    if call == "ReceiveMessage":
        counts = [len(receive(stub, topic)[1]) for _ in range(2)]
    else:
        first = stub.call(call, message_queue=queue(topic), batch_size=32)
        offset = first[-1].next_offset
        second = stub.call(call, message_queue=queue(topic), batch_size=32, offset=offset)
        counts = [len(first) - 2, len(second) - 2]
    assert counts == [3, 1]


@pytest.mark.parametrize("call", ["receive", "ack"])
def test_sends_and_routes_do_not_wait_for_receives_and_acks(stub, serving, monkeypatch, call):
    stub.send(b"1", topic="busy")
    _, (message,) = receive(stub, "busy")
    scanned, waiting = threading.Event(), threading.Semaphore(0)
    place = {"receive": (Pop, "receive"), "ack": (Handles, "_change")}[call]
    real = getattr(*place)

    def slow(*arguments, **more):
        waiting.release()
        scanned.wait(30)
        return real(*arguments, **more)

    monkeypatch.setattr(*place, slow)
    work = {
        "receive": lambda: receive(Stub(serving[1], "r@1"), "busy"),
        "ack": lambda: ack(Stub(serving[1], "a@1"), "busy", handle(message)),
    }
    threads = [threading.Thread(target=work[call]) for _ in range(12)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        assert waiting.acquire(timeout=10)
    began = time.monotonic()
    assert code_of(stub.send(b"2", topic="busy")) == "OK"
    assert stub.code("QueryRoute", topic=resource("busy"), endpoints=ENDPOINTS) == "OK"
    if call == "receive":
        assert stub.code("Heartbeat") == "OK"
        assert code_of(ack(stub, "busy", handle(message))) == "OK"
    assert time.monotonic() - began < 5
    scanned.set()
    for thread in threads:
        thread.join(20)
