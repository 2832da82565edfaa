"""Functions of the application: their errors change nothing, and `async def` is rejected."""

import asyncio
import logging
import threading
from functools import partial

import pytest
from pyrocket import Message, Store
from pyrocket.client import Producer
from pyrocket.client.base import ClientState
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import InvalidInputError
from support.name_server import wait_until


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    with Store.open(folder, create=True) as store:
        store.topics.create("orders", read_queues=1, write_queues=1)
        for number in range(3):
            store.append(Message(topic="orders", body=b"%d" % number, queue_id=0))
    return str(folder)


def consumer(at, listener, **settings):
    return PushConsumer(
        "billing",
        **at,
        listener=listener,
        **{"subscriptions": {"orders": "*"}, "consume_from": "first", **settings},
    )


def committed(path):
    with Store.open(path, read_only=True) as store:
        return store.groups.committed("billing", "orders")


def fail(*arguments):
    raise ValueError("a bug of the application")


@pytest.mark.parametrize("hook", ["before_consume", "after_consume", "queues_changed"])
def test_a_callback_that_raises_does_not_change_what_was_consumed(path, at, hook):
    got = []

    def listen(messages):
        got.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    with consumer(at, listen, **{hook: fail}) as running:
        wait_until(lambda: running.stats.consumed == 3)
        assert running.stats.callback_errors
        assert running.state is ClientState.RUNNING
    assert (sorted(got), running.stats.sent_back) == ([b"0", b"1", b"2"], 0)
    assert committed(path) == {0: 3}


async def listen_async(messages):
    return ConsumeResult.SUCCESS


class AsyncListener:
    async def __call__(self, messages):
        return ConsumeResult.SUCCESS


@pytest.mark.parametrize("listener", [listen_async, AsyncListener(), partial(listen_async)])
def test_an_async_listener_is_rejected_when_it_is_given(path, at, listener):
    with pytest.raises(InvalidInputError, match="async def") as caught:
        consumer(at, listener)
    assert caught.value.code == "LISTENER_ASYNC"


@pytest.mark.parametrize("hook", ["before_consume", "after_consume", "queues_changed"])
def test_an_async_callback_is_rejected_when_it_is_given(at, hook):
    with pytest.raises(InvalidInputError, match=hook) as caught:
        consumer(at, fail, **{hook: listen_async})
    assert caught.value.code == "LISTENER_ASYNC"


@pytest.mark.parametrize(
    "listener",
    [lambda messages: listen_async(messages), lambda messages: asyncio.Future(loop=LOOP)],
)
def test_a_consumer_stops_if_its_listener_returns_an_awaitable(path, at, listener, caplog):
    with consumer(at, listener) as running:
        with pytest.raises(InvalidInputError, match="LISTENER_ASYNC"):
            running.wait(30)
        assert running.state is ClientState.FAILED
        assert running.error.code == "LISTENER_ASYNC"
    assert running.state is ClientState.CLOSED
    assert (committed(path), running.stats.sent_back) == ({}, 0)
    assert "the consumer of 'billing' stops" in caplog.text


LOOP = asyncio.new_event_loop()


def test_an_async_transaction_listener_is_rejected_when_it_is_given(at):
    class Listener:
        async def execute(self, message, argument):
            """Return a coroutine."""

        def check(self, message):
            """Return None."""

    with pytest.raises(InvalidInputError, match="execute") as caught:
        Producer(**at, listener=Listener())
    assert caught.value.code == "LISTENER_ASYNC"


def test_a_callback_that_ends_the_program_ends_the_start(path, at, caplog):
    caplog.set_level(logging.CRITICAL)

    def leave(*arguments):
        raise SystemExit(3)

    running = consumer(at, lambda messages: ConsumeResult.SUCCESS, queues_changed=leave)
    with pytest.raises(SystemExit):
        running.start()
    wait_until(lambda: all(one.name != "pyrocket-client" for one in threading.enumerate()))


def test_the_state_of_a_client_is_that_of_its_life(path, at):
    running = consumer(at, lambda messages: ConsumeResult.SUCCESS)
    assert (running.state, running.error) == (ClientState.NEW, None)
    with running:
        assert (running.state, running.error) == (ClientState.RUNNING, None)
    assert (running.state, running.error) == (ClientState.CLOSED, None)
