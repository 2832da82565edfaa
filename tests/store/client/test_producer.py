"""Producers: every way to send to a store in the same process or to a broker, and misuse."""

import asyncio
import os
import threading
import time
from concurrent.futures import CancelledError
from itertools import chain

import pytest
from pyrocket import Store
from pyrocket.client.producer import Producer
from pyrocket.client.selection import by_hash
from pyrocket.client.send_hooks import SendHook
from pyrocket.errors import (
    InvalidInputError,
    MessageError,
    PyrocketError,
    StoreNotFoundError,
    StoreUnavailableError,
)
from pyrocket.index.queues.dispatcher import Dispatcher
from pyrocket.values.message import Message, MessageQueue, SendStatus
from pyrocket.values.transactions import LocalTransactionState
from support.name_server import wait_until

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT,
    LocalTransactionState.ROLLBACK,
    LocalTransactionState.UNKNOWN,
)


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("orders", read_queues=4, write_queues=4)
    return tmp_path / "s"


@pytest.fixture
def producer(at):
    with Producer(**at) as producer:
        yield producer


def message(body=b"1", **fields):
    return Message(**{"topic": "orders", "body": body, **fields})


def stored(path):
    """Return the bodies of each queue."""
    with Store.open(path, read_only=True) as store:
        queues = store.topics.get("orders").read_queues
        return [[one.body for one in store.messages("orders", queue)] for queue in range(queues)]


def code_of(call, *arguments, **options):
    with pytest.raises(PyrocketError) as caught:
        call(*arguments, **options)
    return caught.value.code


class Listener:
    """Returns or raises `result` in `execute`, and `answer` in `check`."""

    def __init__(self, result=COMMIT, answer=COMMIT):
        self.result, self.answer, self.executed = result, answer, []
        self.checked = threading.Event()

    def execute(self, message, argument):
        self.executed.append((message.body, argument, threading.current_thread()))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def check(self, message):
        self.thread = threading.current_thread().name
        self.checked.set()
        return self.answer


def test_each_message_has_an_id_by_which_it_is_found(producer, path):
    ids = {producer.send(message()).msg_id for _ in range(50)}
    assert len(ids) == 50
    with Store.open(path, read_only=True) as store:
        assert all(store.lookup.query("orders", each) for each in ids)


def test_a_queue_a_selector_a_queue_id_and_a_sharding_key_choose_the_queue(producer):
    with_queue = producer.send(message(), queue=MessageQueue("orders", "", 3))
    assert with_queue.queue_id == 3
    selected = producer.send(message(), selector=by_hash, argument=6)
    assert selected.queue_id == 2
    assert producer.send(message(queue_id=1)).queue_id == 1
    assert len({producer.send(message(sharding_key="k")).queue_id for _ in range(5)}) == 1


def test_an_asynchronous_send_returns_a_future(producer, path):
    futures = [producer.send_async(message(b"%d" % number)) for number in range(100)]
    assert len({future.result(10).msg_id for future in futures}) == 100
    assert sum(map(len, stored(path))) == 100


def test_the_error_of_an_asynchronous_send_is_in_its_future(at):
    with Producer(**at) as producer:
        future = producer.send_async(message(queue_id=9))
        assert future.exception(10).code == "QUEUE_NOT_FOUND"


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_one_way_send_is_stored_and_its_error_is_logged(path, caplog, at):
    with Producer(**at) as producer:
        assert producer.send_oneway(message(b"a")) is None
        producer.send_oneway(message(queue_id=9))
    assert sum(map(len, stored(path))) == 1
    assert "a one-way send failed: [QUEUE_NOT_FOUND]" in caplog.text


def test_closing_waits_for_sends_that_were_started(path, at):
    with Producer(**at, timeout_ms=60_000) as producer:
        futures = [producer.send_async(message()) for _ in range(500)]
    assert all(future.done() for future in futures)
    assert sum(map(len, stored(path))) == 500


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_batch_is_stored_in_one_queue_in_order(producer, path):
    batch = [message(b"%d" % number) for number in range(10)]
    results = producer.send_batch(batch)
    assert {result.queue_id for result in results} == {results[0].queue_id}
    assert [result.queue_offset for result in results] == [*range(10)]
    assert stored(path)[results[0].queue_id] == [one.body for one in batch]


def test_long_bodies_are_compressed_and_read_as_they_were_sent(producer, path):
    result = producer.send(message(b"x" * 100_000))
    with Store.open(path, read_only=True) as store:
        (found,) = store.messages("orders", result.queue_id)
    assert (found.body, found.store_size < 1000) == (b"x" * 100_000, True)


def test_a_delayed_message_is_delivered_by_the_process(producer, path):
    producer.send(message(b"late", deliver_at_ms=int(time.time() * 1000) + 500))
    assert not any(stored(path))
    wait_until(lambda: any(stored(path)), 20)


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
@pytest.mark.parametrize(("result", "seen"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_a_transaction_is_visible_if_the_listener_commits_it(path, result, seen, at):
    listener = Listener(result)
    with Producer("shop", **at, listener=listener) as producer:
        sent = producer.send_in_transaction(message(b"a"), "argument")
    assert (sent.state, sent.status, sent.error) == (result, SendStatus.SEND_OK, None)
    assert listener.executed == [(b"a", "argument", threading.current_thread())]
    assert sum(map(len, stored(path))) == seen


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
@pytest.mark.parametrize("result", [UNKNOWN, ValueError("?")])
def test_an_unknown_outcome_is_checked_in_the_thread_of_the_checks(path, result, at):
    listener = Listener(result)
    with Producer("shop", **at, listener=listener) as producer:
        sent = producer.send_in_transaction(message(b"a"), immunity_s=0)
        assert sent.state is UNKNOWN
        assert listener.checked.wait(30)
        wait_until(lambda: any(stored(path)), 10)
    assert listener.thread.startswith("transaction checks of shop")


def test_a_check_before_the_reply_to_the_send_decides_nothing(path, monkeypatch):
    listener = Listener(COMMIT, answer=ROLLBACK)
    with Producer("shop", path=path, listener=listener) as producer:
        transport = producer._instance.transport
        send_half = transport.send_half

        async def slow(*arguments):
            undecided = await send_half(*arguments)
            producer._transactions._core.ask(undecided)
            await asyncio.sleep(0.2)
            return undecided

        monkeypatch.setattr(transport, "send_half", slow)
        sent = producer.send_in_transaction(message(b"a"))
    assert (sent.state, sent.error, listener.checked.is_set()) == (COMMIT, None, False)
    assert sum(map(len, stored(path))) == 1


@pytest.mark.parametrize("status", [each for each in SendStatus if each is not SendStatus.SEND_OK])
def test_a_half_message_that_may_not_be_durable_is_rolled_back(path, monkeypatch, status):
    listener = Listener(COMMIT)
    with Producer("shop", path=path, listener=listener) as producer:
        sender = producer._instance.transport._invoker._store._services.sender
        monkeypatch.setattr(sender, "flush", lambda writer: status)
        sent = producer.send_in_transaction(message())
    assert (sent.state, sent.status, listener.executed) == (ROLLBACK, status, [])
    assert not any(stored(path))


def test_a_listener_that_ends_the_program_leaves_the_message_undecided(path, at):
    listener = Listener(KeyboardInterrupt())
    producer = Producer("shop", **at, listener=listener)
    with producer, pytest.raises(KeyboardInterrupt):
        producer.send_in_transaction(message())
    with Store.open(path) as store:
        assert len(store.transactions.pending()) == 1


class Noting(SendHook):
    """Records all calls; raises `error`."""

    def __init__(self, error=None):
        self.calls, self.error = [], error

    def before_send(self, context):
        self.calls.append(("before", context.mode, len(context.messages)))
        if self.error:
            raise self.error

    def after_send(self, context):
        self.calls.append(("after", context.mode, len(context.results), context.error))
        if self.error:
            raise self.error


def test_hooks_are_called_before_and_after_each_send(at):
    hook = Noting()
    with Producer("shop", **at, hooks=[hook], listener=Listener()) as producer:
        producer.send(message())
        producer.send_async(message()).result(10)
        producer.send_batch([message()] * 3)
        producer.send_in_transaction(message())
    assert hook.calls == [
        *(("before", "SYNC", 1), ("after", "SYNC", 1, None)),
        *(("before", "ASYNC", 1), ("after", "ASYNC", 1, None)),
        *(("before", "SYNC", 3), ("after", "SYNC", 3, None)),
        *(("before", "TRANSACTION", 1), ("after", "TRANSACTION", 0, None)),
    ]


def test_a_hook_gets_the_error_of_a_send(at):
    hook = Noting()
    with Producer(**at, hooks=[hook]) as producer, pytest.raises(MessageError) as caught:
        producer.send(message(queue_id=9))
    assert hook.calls[-1] == ("after", "SYNC", 0, caught.value)


def test_a_hook_that_fails_is_logged_and_the_message_is_sent(path, caplog, at):
    with Producer(**at, hooks=[Noting(ValueError("broken hook"))]) as producer:
        producer.send(message())
    assert "broken hook" in caplog.text
    assert sum(map(len, stored(path))) == 1


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, "CLIENT_SERVER"),
        ({"path": "/tmp/s", "endpoint": "127.0.0.1:1"}, "CLIENT_SERVER"),
        ({"endpoint": "127.0.0.1"}, "ADDRESS_INVALID"),
        ({"endpoint": 8081}, "NOT_A_TEXT"),
        ({"path": 7}, "STORE_PATH"),
        ({"path": "s", "create": "yes"}, "WRONG_TYPE"),
        ({"path": "s", "group": "a b"}, "GROUP_ILLEGAL"),
        ({"path": "s", "instance": "a b"}, "CLIENT_NAME"),
        ({"path": "s", "retries": -1}, "PRODUCER_CONFIG"),
        ({"path": "s", "hooks": [print]}, "WRONG_TYPE"),
        ({"path": "s", "hooks": print}, "WRONG_TYPE"),
        ({"path": "s", "listener": print}, "TRANSACTION_LISTENER"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_at_once(settings, code):
    assert code_of(Producer, **settings) == code


def test_a_producer_starts_once_and_never_after_it_was_closed(at):
    producer = Producer(**at)
    producer.start()
    assert code_of(producer.start) == "CLIENT_STARTED"
    producer.close()
    producer.close()
    for method in (producer.send, producer.send_async, producer.send_oneway):
        assert code_of(method, message()) == "CLIENT_CLOSED"
    assert code_of(producer.send_batch, [message()]) == "CLIENT_CLOSED"
    assert code_of(producer.start) == "CLIENT_CLOSED"


def test_a_missing_store_is_created_only_on_request(tmp_path):
    producer = Producer(path=tmp_path / "new")
    with pytest.raises(StoreNotFoundError):
        producer.start()
    with Producer(path=tmp_path / "new", create=True) as creating:
        creating.send(message())
        producer.start()
        producer.close()


def test_arguments_of_a_send_that_are_wrong_are_refused(producer):
    queue = MessageQueue("orders", "", 0)
    assert code_of(producer.send, message(), queue=0) == "WRONG_TYPE"
    assert code_of(producer.send, message(), selector="hash") == "WRONG_TYPE"
    assert code_of(producer.send, message(), queue=queue, selector=by_hash) == "QUEUE_AND_SELECTOR"
    assert code_of(producer.send, message(), timeout_ms=0) == "OPTION_INVALID"
    assert code_of(producer.send_in_transaction, message()) == "TRANSACTION_LISTENER"


def test_the_number_of_unfinished_sends_is_limited(path, monkeypatch):
    go = threading.Event()
    with Producer(path=path, max_pending=2, timeout_ms=200) as producer:
        sends = producer._instance.transport._invoker._broker.sends
        send = sends.send
        monkeypatch.setattr(sends, "send", lambda sent: (go.wait(10), send(sent))[1])
        for _ in range(2):
            producer.send_async(message(), timeout_ms=20_000)
        assert code_of(producer.send_async, message()) == "TOO_MANY_SENDS"
        go.set()


def test_a_callback_may_send_asynchronously_but_not_wait(producer):
    codes, done, here = [], threading.Event(), threading.current_thread()

    def callback(future):
        if threading.current_thread() is here:  # The message was stored before this call.
            return
        try:
            producer.send(message())
        except InvalidInputError as error:
            codes.append(error.code)
        producer.send_async(message()).add_done_callback(lambda future: done.set())

    for _ in range(100):
        producer.send_async(message()).add_done_callback(callback)
        if done.wait(0.1):
            break
    assert {*codes} == {"CLIENT_DEADLOCK"}


def test_an_asynchronous_send_can_be_cancelled(path, monkeypatch):
    go = threading.Event()
    with Producer(path=path) as producer:
        sends = producer._instance.transport._invoker._broker.sends
        monkeypatch.setattr(sends, "send", lambda sent: go.wait(10))
        future = producer.send_async(message())
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(10)
        go.set()


def test_producers_of_one_store_share_a_client(path):
    with Producer(path=path) as one, Producer("other", path=str(path)) as two:
        assert one.client_id == two.client_id
        with Producer(path=path, instance="b") as three:
            assert three.client_id.endswith("@b")
            three.send(message())
        one.send(message())
    assert not (path / "abort").exists(), "the last client has closed the store"
    assert sum(map(len, stored(path))) == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_refused(producer, path):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = "no error"
        try:
            producer.send(message())
        except StoreUnavailableError as error:
            code = error.code
        finally:
            producer.close()
            os.write(writer, code.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        assert result.read() == "CLIENT_FORKED"
    os.waitpid(child, 0)
    producer.send(message())


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_send_whose_error_says_that_the_message_is_stored_is_not_repeated(at, path, monkeypatch):
    real, failures = Dispatcher.put, [OSError(28, "No space left on device")]

    def put(*arguments):
        if failures:
            raise failures.pop()
        return real(*arguments)

    with Producer(**at) as producer:
        monkeypatch.setattr(Dispatcher, "put", put)
        assert code_of(producer.send, message(b"once")) == "QUEUES_NOT_WRITTEN"
        producer.send(message(b"next"))
        producer.close()
        assert sorted(chain(*stored(path))) == [b"next", b"once"]
