"""Thousands of calls of one connection are answered, and polls do not hold up other calls."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyrocket import Store
from pyrocket.broker.pop.pop import Pop
from pyrocket.server.messaging.interface import PACKAGE, SERVICE, new
from pyrocket.wire.descriptors import message_class
from support.broker import served
from support.name_server import wait_until
from support.rocketmq_stub import Stub, code_of, message, queue, resource

RECEIVED = message_class(f"{PACKAGE}.ReceiveMessageResponse")


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    store.groups.create("g")
    return store


@pytest.fixture
def receives(monkeypatch):
    """Counts the receives of the broker."""
    found, receive = [], Pop.receive

    def counted(pop, *arguments, **options):
        found.append(1)
        return receive(pop, *arguments, **options)

    monkeypatch.setattr(Pop, "receive", counted)
    return found


class Poller:
    """Receives with many polls of one connection."""

    def __init__(self, stub, polls):
        self._stub = stub
        self.polls = [self.poll() for _ in range(polls)]

    def poll(self, wait_s=20, batch_size=1):
        request = new(
            "ReceiveMessageRequest",
            group=resource("g"),
            message_queue=queue("t"),
            batch_size=batch_size,
            invisible_duration={"seconds": 60},
            long_polling_timeout={"seconds": wait_s},
        )
        call = self._stub.channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        return call(request.SerializeToString(), metadata=self._stub.metadata, timeout=30)


def bodies(poll):
    """Return the bodies in the replies of a poll."""
    replies = [RECEIVED.FromString(one) for one in poll]
    return [one.message.body for one in replies if one.HasField("message")]


def test_thousands_of_sends_in_flight_on_one_connection_are_stored(store):
    with served(store) as address:
        stub = Stub(address)
        send = stub.channel.unary_unary(f"/{SERVICE}/SendMessage")
        requests = [
            new("SendMessageRequest", messages=[message(b"%d" % number)]).SerializeToString()
            for number in range(1500)
        ]
        sent = [send.future(one, metadata=stub.metadata, timeout=60) for one in requests]
        kind = message_class(f"{PACKAGE}.SendMessageResponse")
        assert Counter(code_of(kind.FromString(one.result())) for one in sent) == {"OK": 1500}
        assert sum(one.maximum for one in store.offsets("t").values()) == 1500
        stub.close()


def test_polls_leave_half_of_the_calls_of_a_connection_for_acks(store):
    with served(store, streams_per_client=20) as address, ThreadPoolExecutor(40) as pool:
        stub = Stub(address)
        poller, codes = Poller(stub, polls=40), []

        def read(poll):
            codes.append(code_of(RECEIVED.FromString(next(poll))))
            for _ in poll:
                pass

        reading = [pool.submit(read, one) for one in poller.polls]
        wait_until(lambda: sum(one.done() for one in reading) == 29)
        assert codes == ["TOO_MANY_REQUESTS"] * 29
        assert stub.code("Heartbeat", group=resource("g"), client_type=3) == "OK"
        stub.send(*(b"%d" % number for number in range(11)))
        for one in reading:
            one.result(10)
        assert codes[29:] == ["OK"] * 11
        stub.close()


def test_a_message_wakes_one_of_the_parked_polls(store, receives):
    with served(store) as address:
        stub = Stub(address)
        poller = Poller(stub, polls=20)
        wait_until(lambda: len(receives) == 40)  # Each looks before and after it is parked.
        with ThreadPoolExecutor(20) as pool:
            found = [pool.submit(bodies, one) for one in poller.polls]
            for number in range(5):
                stub.send(b"%d" % number)
                wait_until(lambda: sum(one.done() for one in found) > number)  # noqa: B023
            # Each message wakes a poll, which wakes another that parks again.
            assert len(receives) <= 40 + 5 * 4
            for one in poller.polls:
                one.cancel()
        stub.close()


def test_each_message_of_a_burst_is_received_at_once_by_another_poll(store, receives):
    with served(store) as address:
        stub = Stub(address)
        poller = Poller(stub, polls=30)
        wait_until(lambda: len(receives) == 60)
        began = time.monotonic()
        for _ in range(3):
            stub.send(*(b"%d" % number for number in range(10)))
        with ThreadPoolExecutor(30) as pool:
            found = [body for one in pool.map(bodies, poller.polls) for body in one]
        assert Counter(found) == {b"%d" % number: 3 for number in range(10)}
        assert time.monotonic() - began < 10
        stub.close()


def test_a_wake_up_of_a_cancelled_poll_is_passed_on(store, receives):
    with served(store) as address:
        stub, other = Stub(address), Stub(address, client_id="other")
        first, last = Poller(stub, 1), None
        wait_until(lambda: len(receives) == 2)
        last = Poller(other, 1)
        wait_until(lambda: len(receives) == 4)
        for _ in range(8):
            first.polls[0].cancel()
            stub.send(b"x")
            assert bodies(last.polls[0]) == [b"x"]
            before = len(receives)
            first, last = Poller(stub, 1), None
            wait_until(lambda: len(receives) >= before + 2)  # noqa: B023
            last = Poller(other, 1)
            wait_until(lambda: len(receives) >= before + 4)  # noqa: B023
        for one in (stub, other):
            one.close()
