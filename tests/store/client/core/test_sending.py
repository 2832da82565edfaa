"""The core of a producer, on a simulated clock, with brokers whose failures the tests determine."""

import asyncio
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from pyrocket.client.config import ProducerConfig
from pyrocket.client.core.routes import Routes
from pyrocket.client.core.sending import Sending, SendTarget
from pyrocket.client.outgoing import outgoing
from pyrocket.client.selection import by_hash
from pyrocket.client.transport import TopicRoute
from pyrocket.errors import (
    BrokerBusyError,
    InvalidInputError,
    MessageError,
    NotAuthenticatedError,
    PyrocketError,
    TopicNotFoundError,
    TransportError,
)
from pyrocket.values.message import Message, MessageQueue, SendResult
from support.simulated_loop import run_simulated

LOST = TransportError("lost", repeat_is_safe=False)
MISSING = MessageError("no such queue", code="QUEUE_NOT_FOUND")


def queues(brokers="ab", count=2, topic="orders"):
    return [MessageQueue(topic, broker, number) for broker in brokers for number in range(count)]


class Brokers:
    """A transport that appends at once, unless `fails` or `seconds` contains the broker."""

    def __init__(self, *, writable=None, fails=None, seconds=None, default=None):
        self.writable = queues() if writable is None else writable
        self.fails, self.seconds = fails or {}, seconds or {}
        self.default, self.sent, self.routed = default, [], 0

    async def route(self, topic):
        self.routed += 1
        if self.default is not None:
            raise TopicNotFoundError("no topic")
        return TopicRoute(self.writable, self.writable)

    async def route_if_created(self, topic):
        return TopicRoute(self.default, self.default)

    async def send(self, queue, messages):
        self.sent.append(queue)
        await asyncio.sleep(self.seconds.get(queue.broker, 0))
        errors = self.fails.get(queue.broker, [])
        if errors:
            raise errors.pop(0)
        return [SendResult("orders", queue.queue_id, 0, 0, m.unique_id, "") for m in messages]

    @property
    def brokers(self):
        return [queue.broker for queue in self.sent]


def message(**fields):
    return outgoing(Message(**{"topic": "orders", "body": b"1", **fields}), "ID", 0)


def send(brokers, *messages, count=1, target=None, timeout_ms=None, **settings):
    """Send messages `count` times; return the results, and the seconds that passed."""

    async def sends():
        sending = Sending(ProducerConfig(**settings), brokers, Routes(brokers), Random(1))
        began = asyncio.get_running_loop().time()
        options = {} if target is None else {"target": target}
        results = [
            await sending.send(messages or [message()], timeout_ms=timeout_ms, **options)
            for _ in range(count)
        ]
        return results, asyncio.get_running_loop().time() - began

    return run_simulated(sends())


def code_of(*arguments, **options):
    with pytest.raises(PyrocketError) as caught:
        send(*arguments, **options)
    return caught.value.code


def test_messages_are_sent_to_all_queues_in_turn():
    brokers = Brokers()
    send(brokers, count=40)
    assert Counter(brokers.sent) == dict.fromkeys(queues(), 10)
    assert brokers.routed == 1


@pytest.mark.parametrize("error", [LOST, BrokerBusyError("busy")])
def test_a_failed_send_is_repeated_at_another_broker(error):
    brokers = Brokers(fails={"a": [error] * 10})
    results, _ = send(brokers, count=8)
    assert len(results) == 8
    assert all(after == "b" for at, after in pairwise(brokers.brokers) if at == "a")


def test_a_send_that_fails_everywhere_raises_the_last_error_after_three_attempts():
    brokers = Brokers(fails={"a": [LOST] * 9, "b": [LOST] * 9})
    assert code_of(brokers) == "TRANSPORT_FAILED"
    assert len(brokers.sent) == 3
    assert [*map(str.__ne__, brokers.brokers, brokers.brokers[1:])] == [True, True]


def test_without_retries_a_send_has_one_attempt():
    brokers = Brokers(fails={"a": [LOST], "b": [LOST]})
    assert code_of(brokers, retries=0) == "TRANSPORT_FAILED"
    assert len(brokers.sent) == 1


@pytest.mark.parametrize(
    "error",
    [NotAuthenticatedError("who?"), MessageError("too long", code="BODY_TOO_LARGE")],
)
def test_an_error_that_remains_is_not_repeated(error):
    brokers = Brokers(fails={"a": [error] * 3, "b": [error] * 3})
    assert code_of(brokers) == error.code
    assert len(brokers.sent) == 1


def test_a_send_ends_with_its_timeout_though_attempts_are_left():
    brokers = Brokers(seconds={"a": 60, "b": 60})
    assert code_of(brokers) == "SEND_TIMEOUT"

    async def timed():
        sending = Sending(ProducerConfig(), brokers, Routes(brokers), Random(1))
        began = asyncio.get_running_loop().time()
        with pytest.raises(TransportError) as caught:
            await sending.send([message()])
        assert not caught.value.repeat_is_safe
        return asyncio.get_running_loop().time() - began

    assert run_simulated(timed()) == pytest.approx(3)


def test_a_send_can_have_a_timeout_of_its_own():
    brokers = Brokers(seconds={"a": 4, "b": 4})
    assert send(brokers, timeout_ms=5000)[1] == pytest.approx(4)


def test_the_error_of_a_stale_route_is_repeated_with_the_current_route():
    brokers = Brokers(fails={"a": [MISSING], "b": [MISSING]}, writable=queues("a"))
    send(brokers)
    assert (len(brokers.sent), brokers.routed) == (2, 2)


@pytest.mark.parametrize("fields", [{"sharding_key": "customer 7"}, {"queue_id": 1}])
def test_equal_keys_and_queue_ids_are_sent_to_the_same_queue(fields):
    brokers = Brokers(writable=queues("a", 4))
    send(brokers, message(**fields), count=5)
    assert len({*brokers.sent}) == 1
    if "queue_id" in fields:
        assert brokers.sent[0].queue_id == 1


def test_a_sharding_key_has_one_attempt_because_another_queue_would_break_the_order():
    brokers = Brokers(fails={"a": [LOST] * 3, "b": [LOST] * 3})
    assert code_of(brokers, message(sharding_key="k")) == "TRANSPORT_FAILED"
    assert len(brokers.sent) == 1


def test_a_missing_queue_id_is_refused():
    assert code_of(Brokers(), message(queue_id=9)) == "QUEUE_NOT_FOUND"


def test_a_selector_and_a_queue_have_one_attempt():
    brokers = Brokers(fails={"a": [LOST] * 3, "b": [LOST] * 3})
    assert code_of(brokers, target=SendTarget(selector=by_hash, argument=5)) == "TRANSPORT_FAILED"
    assert code_of(brokers, target=SendTarget(queue=queues()[3])) == "TRANSPORT_FAILED"
    assert brokers.sent == [queues()[1], queues()[3]]


def test_a_selector_that_returns_another_value_is_refused():
    target = SendTarget(selector=lambda queues, message, argument: None)
    assert code_of(Brokers(), target=target) == "NOT_A_QUEUE"


def test_an_error_of_a_selector_is_raised():
    def fail(queues, message, argument):
        raise LookupError(argument)

    with pytest.raises(LookupError, match="7"):
        send(Brokers(), target=SendTarget(selector=fail, argument=7))


def test_a_missing_topic_is_sent_to_the_queues_that_it_will_have():
    brokers = Brokers(default=queues("b", 1))
    send(brokers)
    assert brokers.sent == queues("b", 1)


def test_slow_brokers_are_avoided_if_configured():
    slow = {"a": 0.6}
    counts = [
        Counter(brokers.brokers)["a"]
        for avoid in (False, True)
        for brokers in [Brokers(seconds=slow)]
        if send(brokers, count=20, avoid_slow_brokers=avoid)
    ]
    assert counts == [10, 1]


def test_the_queue_with_the_least_latency_is_chosen_if_configured():
    brokers = Brokers(seconds={"a": 0.5, "b": 0.01})
    send(brokers, count=64, queue_choice="least-latency")
    assert Counter(brokers.brokers)["b"] > 56


@pytest.mark.parametrize(
    "settings",
    [
        *({"retries": -1}, {"retries": 1.5}, {"timeout_ms": 0}, {"max_message_bytes": "4m"}),
        *({"queue_choice": "fastest"}, {"max_pending": 0}),
    ],
)
def test_a_setting_out_of_bounds_is_refused(settings):
    with pytest.raises(InvalidInputError) as caught:
        ProducerConfig(**settings)
    assert caught.value.code == "PRODUCER_CONFIG"


class TestRoutes:
    """How often a producer asks for the route of a topic."""

    def test_failed_sends_ask_for_the_route_at_most_once_a_second(self):
        brokers = Brokers(fails={"a": [LOST] * 1000, "b": [LOST] * 1000})

        async def sends():
            sending = Sending(ProducerConfig(), brokers, Routes(brokers), Random(1))
            for _ in range(100):
                with pytest.raises(TransportError):
                    await sending.send([message(sharding_key="k")])
                await asyncio.sleep(0.1)

        run_simulated(sends())
        assert 8 <= brokers.routed <= 11

    def test_a_failed_send_does_not_wait_for_the_route(self):
        brokers = Brokers(fails={"a": [LOST] * 9, "b": [LOST] * 9})

        async def sends():
            loop, routes = asyncio.get_running_loop(), Routes(brokers)
            sending = Sending(ProducerConfig(), brokers, routes, Random(1))
            await routes.get("orders")
            await asyncio.sleep(2)
            brokers.route = lambda topic: asyncio.sleep(20)
            began = loop.time()
            for _ in range(5):
                with pytest.raises(TransportError):
                    await sending.send([message(sharding_key="k")])
            return loop.time() - began

        assert run_simulated(sends()) == 0

    def test_a_route_that_is_not_answered_remains_in_use(self):
        brokers = Brokers()

        async def sends():
            loop, routes = asyncio.get_running_loop(), Routes(brokers)
            sending = Sending(ProducerConfig(), brokers, routes, Random(1))
            await sending.send([message()])
            await asyncio.sleep(40)
            brokers.route = lambda topic: asyncio.sleep(600)
            began = loop.time()
            for _ in range(5):
                await sending.send([message()])
            return loop.time() - began

        assert run_simulated(sends()) <= 1


class TestHungBrokers:
    """Brokers that answer no send, with the least latency."""

    def sends(self, count, hung, *, topics=("orders",), again=0):
        """Send one after the other, while "a" hangs from send `hung` on, and until `again`."""
        brokers, outcomes = Brokers(seconds={"b": 0.02}), []

        async def route(topic):
            return TopicRoute((), queues(count=4, topic=topic))

        async def run():
            brokers.route = route
            config = ProducerConfig(queue_choice="least-latency", retries=0)
            sending = Sending(config, brokers, Routes(brokers), Random(1))
            for number in range(count):
                is_hung = hung <= number and not 0 < again <= number
                brokers.seconds["a"] = 60 if is_hung else 0.005
                try:
                    await sending.send([message(topic=topics[number % len(topics)])])
                except TransportError:
                    outcomes.append("time-out")
                else:
                    outcomes.append(brokers.sent[-1].broker)

        run_simulated(run())
        return outcomes

    def test_one_time_out_leaves_a_hung_broker_except_to_explore(self):
        outcomes = self.sends(200, hung=100)
        assert outcomes[:100].count("a") > 80
        assert outcomes[100:].count("time-out") <= 1 + 100 // 16
        assert outcomes[101:115].count("time-out") <= 1
        assert outcomes[100:].count("b") > 90

    def test_a_broker_that_hangs_from_the_start_has_one_time_out_before_it_is_left(self):
        assert self.sends(15, hung=0).count("time-out") == 1

    def test_a_time_out_of_one_topic_counts_for_all_topics(self):
        assert self.sends(15, hung=0, topics=("orders", "bills", "trips")).count("time-out") == 1

    def test_a_broker_that_answers_again_is_used_again(self):
        outcomes = self.sends(300, hung=100, again=150)
        assert outcomes[200:].count("a") > 60
