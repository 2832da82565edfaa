"""A push consumer over a store of this process, and over a broker."""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import (
    InvalidInputError,
    StoreLockedError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.values.consuming import Subscription
from support.broker import served
from support.broker_process import running as running_broker
from support.forked import Forked, run_code
from support.name_server import wait_until


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    config = StoreConfig(delay_levels="1s 1s 1s 1s")  # The first retry has the third level.
    with Store.open(folder, create=True, config=config) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        for number in range(6):
            store.append(Message(topic="orders", body=b"%d" % number, queue_id=number % 2))
    return str(folder)


@contextmanager
def text_at_a_url(text):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments):
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Listener:
    """Records the bodies that it gets, and returns the given results first."""

    def __init__(self, *results):
        self.results, self.bodies = [*results], []
        self.changed = threading.Condition()

    def __call__(self, messages):
        with self.changed:
            self.bodies += [message.body for message in messages]
            self.changed.notify_all()
            result = self.results.pop(0) if self.results else ConsumeResult.SUCCESS
        if isinstance(result, BaseException):
            raise result
        return result

    def wait_for(self, count, seconds=30):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.bodies) >= count, seconds), self.bodies


def consumer(at, listener, group="billing", **settings):
    return PushConsumer(
        group,
        **at,
        listener=listener,
        **{"subscriptions": {"orders": "*"}, "consume_from": "first", **settings},
    )


def committed(path, group="billing"):
    with Store.open(path, read_only=True) as store:
        return store.groups.committed(group, "orders")


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_messages_are_consumed_and_committed(path, at):
    listener = Listener()
    with consumer(at, listener) as running:
        listener.wait_for(6)
        assert len(running.queues()) == 3
        assert running.queues()[-1].topic == "orders"
    assert sorted(listener.bodies) == [b"%d" % number for number in range(6)]
    assert committed(path) == {0: 3, 1: 3}
    assert running.stats.consumed == 6


def test_subscriptions_change_while_the_consumer_runs(path, at):
    with Store.open(path) as store:
        store.topics.create("bills", read_queues=1, write_queues=1)
        store.append(Message(topic="bills", body=b"bill", queue_id=0))
    with consumer(at, listener := Listener()) as running:
        listener.wait_for(6)
        running.subscribe("bills", "*")
        listener.wait_for(7)
        running.unsubscribe("orders")
        wait_until(lambda: "orders" not in {queue.topic for queue in running.queues()})
        running.subscribe("missing")  # It is consumed as soon as it exists.
        with pytest.raises(InvalidInputError):
            running.subscribe("bills", Subscription("a >", "SQL92"))
    assert listener.bodies[-1] == b"bill"


def test_a_listener_that_closes_its_consumer_is_an_error(at):
    errors, started = [], threading.Event()

    def listen(messages):
        started.wait()
        try:
            running.close()
        except InvalidInputError as error:
            errors.append(error.code)
        return ConsumeResult.SUCCESS

    with consumer(at, listen) as running:
        started.set()
        wait_until(lambda: len(errors) == 6)
    assert {*errors} == {"CLIENT_DEADLOCK"}


def test_hooks_get_the_messages_and_the_result_of_each_call(at):
    before, after = [], []
    listener = Listener(ConsumeResult.SUCCESS, ValueError("no"))
    hooks = {
        "before_consume": lambda messages: before.append(messages[0].body),
        "after_consume": lambda messages, result: after.append(type(result).__name__),
    }
    with consumer(at, listener, thread_max=1, **hooks):
        listener.wait_for(6)
    assert len(before) >= 6
    assert {*after} == {"ConsumeResult", "ValueError"}


def test_the_addresses_of_brokers_are_read_from_a_url(path, monkeypatch):
    with served(Store.open(path)) as address, text_at_a_url(address) as url:
        monkeypatch.setenv("PYROCKET_ENDPOINT_URL", url)
        for server in ({"endpoint_url": url}, {}):
            with consumer(server, Listener()) as running:
                assert running.queues()


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_failed_message_is_delivered_again(path, at):
    listener = Listener(ValueError("no"))
    with consumer(at, listener, subscriptions={"orders": "*"}) as running:
        listener.wait_for(7, seconds=60)
    assert running.stats.sent_back == 1


def test_cpu_time_and_waits_of_the_listener_are_measured(path, at):
    def work(messages):
        start = time.thread_time()
        while time.thread_time() - start < 0.01:
            pass
        time.sleep(0.03)
        return listener(messages)

    listener = Listener()
    with consumer(at, work) as running:
        listener.wait_for(6)
    stats = running.stats
    assert stats.listener_cpu_s >= 0.06
    assert stats.listener_wall_s - stats.listener_cpu_s >= 6 * 0.029


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_an_orderly_dead_letter_has_the_number_of_its_deliveries(path, at):
    def fail_first(messages):
        seen.append(messages[0].body)
        if messages[0].body == b"0":
            return ConsumeResult.RECONSUME_LATER
        return listener(messages)

    listener, seen = Listener(), []
    with consumer(at, fail_first, orderly=True, max_reconsume_times=2, suspend_ms=10):
        listener.wait_for(5)
    with Store.open(path, read_only=True) as store:
        (letter,) = store.messages("%DLQ%billing")
    assert (letter.body, letter.reconsume_times) == (b"0", 3)
    assert seen.count(b"0") == 3


def test_a_broadcasting_consumer_keeps_its_offsets_on_its_machine(path, tmp_path, monkeypatch, at):
    monkeypatch.setenv("HOME", str(tmp_path))
    with consumer(at, first := Listener(), message_model="BROADCASTING"):
        first.wait_for(6)
    (file,) = tmp_path.glob(".rocketmq_offsets/*@DEFAULT/billing/offsets.json")
    assert file.read_text().startswith('{"offsetTable":{{"brokerName":"broker-a","queueId":0,')
    assert committed(path) == {}
    with consumer(at, second := Listener(), message_model="BROADCASTING"):
        time.sleep(0.5)
    assert second.bodies == []


def test_a_listener_that_exits_ends_the_wait_and_commits_nothing(path, at):
    exits = consumer(at, Listener(SystemExit(3)), thread_max=1)
    with exits, pytest.raises(SystemExit):
        exits.wait(30)
    assert sum(committed(path).values()) < 6


def test_a_wait_returns_false_after_its_timeout(path, at):
    with consumer(at, Listener()) as running:
        assert not running.wait(0.01)
    assert running.wait(0)


def test_an_interrupt_stops_a_consumer_gracefully(path):
    program = (
        "import os, sys\n"
        "from pyrocket.client.push_consumer import PushConsumer\n"
        "from pyrocket.client.results import ConsumeResult\n"
        "def listen(messages):\n"
        "    os.write(1, b'got %s\\n' % messages[0].body)\n"
        "    return ConsumeResult.SUCCESS\n"
        "with PushConsumer('billing', path=sys.argv[1], subscriptions={'orders': '*'},\n"
        "                  listener=listen, consume_from='first') as consumer:\n"
        "    os.write(1, b'started\\n')\n"
        "    consumer.wait()\n"
    )
    process = Forked(run_code, program, str(path))
    try:
        lines = [process.stdout.readline() for _ in range(7)]
        assert lines.count("started\n") == 1
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.communicate()
    assert committed(path) == {0: 3, 1: 3}


class TestMisuse:
    def test_a_consumer_is_started_once(self, path, at):
        running = consumer(at, Listener())
        with running:
            with pytest.raises(InvalidInputError) as caught:
                running.start()
            assert caught.value.code == "CLIENT_STARTED"
        running.close()
        with pytest.raises(StoreUnavailableError, match="CLIENT_CLOSED"):
            running.start()

    def test_a_missing_topic_can_be_an_error_at_the_start_and_the_store_is_closed(self, path, at):
        with pytest.raises(TopicNotFoundError):
            consumer(at, Listener(), subscriptions={"missing": "*"}, missing_topic="error").start()
        Store.open(path).close()

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            ({"listener": None}, "CONSUMER_LISTENER"),
            ({"queues_changed": 5}, "CONSUMER_LISTENER"),
        ],
    )
    def test_an_invalid_argument_is_an_error_that_names_it(self, path, arguments, code, at):
        with pytest.raises(InvalidInputError, match=next(iter(arguments))) as caught:
            consumer(at, **{"listener": Listener(), **arguments})
        assert caught.value.code == code

    def test_a_store_that_another_process_holds_is_an_error(self, path):
        wrong = pytest.raises(StoreLockedError, match="as `endpoint` instead of `path`")
        with running_broker(Path(path)), wrong:
            consumer({"path": path}, Listener()).start()


def test_offsets_of_a_corrupt_file_are_those_of_its_backup(path, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        with consumer({"path": path}, listener := Listener(), message_model="BROADCASTING"):
            time.sleep(0.3)
    (file,) = tmp_path.glob(".rocketmq_offsets/*@DEFAULT/billing/offsets.json")
    file.with_name("offsets.json.bak").write_bytes(file.read_bytes())
    file.write_text(json.dumps({"offsetTable": 5}))
    with consumer({"path": path}, listener := Listener(), message_model="BROADCASTING"):
        time.sleep(0.3)
    assert listener.bodies == []
    assert "cannot be parsed" in caplog.text


def test_a_group_is_consumed_by_one_process_at_a_time(path):
    program = (
        "import sys\n"
        "from pyrocket.client.push_consumer import PushConsumer\n"
        "consumer = PushConsumer('billing', path=sys.argv[1], subscriptions={'orders': '*'},\n"
        "                        listener=print)\n"
        "consumer.start()\n"
    )
    with consumer({"path": path}, listener := Listener()):
        listener.wait_for(6)
        error = Forked(run_code, program, str(path)).communicate(timeout=60)[1]
        assert "GROUP_IN_USE" in error
        assert f"process {os.getpid()}" in error
    with consumer({"path": path}, Listener()):
        pass


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_holds_age_while_the_machine_is_suspended(path, at, monkeypatch):
    clock, read = time.clock_gettime_ns, []
    monkeypatch.setattr(time, "clock_gettime_ns", lambda one: read.append(one) or clock(one))
    listener = Listener()
    with PushConsumer("billing", **at, listener=listener, subscriptions={"orders": "*"}) as one:
        ages = one._core._member._boot_s
        before = [*read]
        assert ages() == pytest.approx(clock(time.CLOCK_BOOTTIME) / 1e9, abs=5)
        assert read[len(before)] == time.CLOCK_BOOTTIME
