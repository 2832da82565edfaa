"""Producers over name servers, while brokers and name servers stop and return."""

import socket
import time
from contextlib import ExitStack, contextmanager

import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.base.credentials import Credentials
from pyrocket.client.producer import Producer
from pyrocket.errors import PyrocketError, TopicNotFoundError, TransportError
from pyrocket.server.nameserver.registration import RegisteredTopics, Registrar
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.values.routes import Registration, TopicData
from support import name_server
from support.broker import served
from support.name_server import wait_until

KEYS = range(24)


@contextmanager
def broker(path, name_servers, *, topics=("orders",), auto_create_topics=True):
    """Serve the store at a path, and register it with name servers; yield the store."""
    config = StoreConfig(broker_name=path.name, auto_create_topics=auto_create_topics)
    store = Store.open(path, create=True, config=config)
    for topic in topics:
        store.topics.create(topic, read_queues=2, write_queues=2, ordered=True)
    with served(store) as address:
        registered = RegisteredTopics(store, "c", address)
        registrar = Registrar(store, registered, name_servers, Credentials())
        registrar.start()
        try:
            yield store
        finally:
            registrar.stop()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def route(producer, topic="orders", *, fresh=True):
    return producer._instance.run(producer._instance.routes.get(topic, fresh=fresh))


def send(producer, key):
    return producer.send(Message(topic="orders", body=b"1", sharding_key=str(key)))


def queue_of(producer, key):
    sent = send(producer, key)
    return sent.broker, sent.queue_id


class TestOrderedTopics:
    def test_keys_keep_their_queues_if_a_name_server_restarts_while_a_broker_is_down(
        self, tmp_path, stack
    ):
        port = free_port()
        address = f"127.0.0.1:{port}"
        with ExitStack() as first:
            first.enter_context(name_server.serving(RouteTable(), port=port))
            stack.enter_context(broker(tmp_path / "broker-a", [address]))
            down = first.enter_context(ExitStack())
            down.enter_context(broker(tmp_path / "broker-b", [address]))
            producer = stack.enter_context(Producer(endpoint=address))
            before = [queue_of(producer, key) for key in KEYS]
            assert {name for name, _ in before} == {"broker-a", "broker-b"}
            down.close()
            assert {queue.broker for queue in route(producer).readable} == {"broker-a"}
        table = RouteTable()
        with name_server.serving(table, port=port):
            wait_until(lambda: table.brokers())
            for key, (name, queue_id) in zip(KEYS, before, strict=True):
                route(producer)
                if name == "broker-a":
                    assert queue_of(producer, key) == (name, queue_id)
                else:
                    with pytest.raises(TransportError):
                        send(producer, key)
            with broker(tmp_path / "broker-b", [address], topics=()):
                route(producer)
                assert [queue_of(producer, key) for key in KEYS] == before

    def test_a_broker_that_a_restarted_name_server_does_not_know_yet_receives_its_keys(
        self, tmp_path, stack
    ):
        """Brokers register again one after the other."""
        table = RouteTable()
        address = stack.enter_context(name_server.serving(table))
        for name in ("broker-a", "broker-b"):
            stack.enter_context(broker(tmp_path / name, [address]))
        producer = stack.enter_context(Producer(endpoint=address))
        before = [queue_of(producer, key) for key in KEYS]
        for known in ({"broker-a"}, set()):
            table._ordered.clear()
            table._brokers = {name: one for name, one in table._brokers.items() if name in known}
            route(producer)
            assert [queue_of(producer, key) for key in KEYS] == before

    def test_a_live_broker_that_no_longer_has_the_topic_receives_no_keys(self, tmp_path, stack):
        table = RouteTable()
        address = stack.enter_context(name_server.serving(table))
        stores = [
            stack.enter_context(broker(tmp_path / name, [address]))
            for name in ("broker-a", "broker-b")
        ]
        producer = stack.enter_context(Producer(endpoint=address))
        assert {queue_of(producer, key)[0] for key in KEYS} == {"broker-a", "broker-b"}
        stores[1].topics.delete("orders")
        wait_until(lambda: len(table.routes(["orders"])[0].queues) == 1)
        assert {queue.broker for queue in route(producer).writable} == {"broker-a"}

    def test_sends_to_a_broker_that_has_returned_succeed_soon(self, tmp_path, stack):
        address = stack.enter_context(name_server.serving(RouteTable()))
        stack.enter_context(broker(tmp_path / "broker-a", [address]))
        producer = stack.enter_context(Producer(endpoint=address))
        with broker(tmp_path / "broker-b", [address]):
            route(producer)
            key = next(key for key in KEYS if queue_of(producer, key)[0] == "broker-b")
        wait_until(lambda: fails(producer, key))
        route(producer)
        assert fails(producer, key)
        with broker(tmp_path / "broker-b", [address], topics=()):
            began = time.monotonic()
            wait_until(lambda: not fails(producer, key))
            assert time.monotonic() - began < 10


def fails(producer, key):
    try:
        send(producer, key)
    except TransportError:
        return True
    return False


class TestCreatedTopics:
    def test_a_missing_topic_is_created_at_each_broker_that_allows_it(self, tmp_path, stack):
        table = RouteTable()
        address = stack.enter_context(name_server.serving(table))
        stores = [
            stack.enter_context(broker(tmp_path / name, [address], topics=()))
            for name in ("broker-a", "broker-b")
        ]
        refusing = stack.enter_context(
            broker(tmp_path / "broker-c", [address], topics=(), auto_create_topics=False)
        )
        down = f"127.0.0.1:{free_port()}"
        hung = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for name, where in (("broker-d", down), ("broker-e", f"127.0.0.1:{hung}")):
            topic = TopicData("others", 1, 1, 6)
            table.register(Registration("c", name, 0, where, 1, [topic]), name)
        with Producer(endpoint=address) as producer:
            began = time.monotonic()
            sent = [producer.send(Message(topic="new", body=b"1")).broker for _ in range(40)]
            assert time.monotonic() - began < 20
        assert {*sent} == {"broker-a", "broker-b"}
        for store in stores:
            assert store.offsets("new")
            assert "new" in store.topics.all()
        assert "new" not in refusing.topics.all()

    def test_concurrent_sends_to_a_missing_topic_use_all_brokers(self, tmp_path, stack):
        address = stack.enter_context(name_server.serving(RouteTable()))
        for name in ("broker-a", "broker-b"):
            stack.enter_context(broker(tmp_path / name, [address], topics=()))
        with Producer(endpoint=address) as producer:
            futures = [producer.send_async(Message(topic="new", body=b"1")) for _ in range(40)]
            assert {one.result().broker for one in futures} == {"broker-a", "broker-b"}

    def test_a_topic_that_no_broker_creates_is_an_error(self, tmp_path, stack):
        address = stack.enter_context(name_server.serving(RouteTable()))
        stack.enter_context(
            broker(tmp_path / "broker-a", [address], topics=(), auto_create_topics=False)
        )
        with Producer(endpoint=address) as producer, pytest.raises(TopicNotFoundError):
            producer.send(Message(topic="new", body=b"1"))

    def test_a_topic_that_can_not_be_created_in_time_is_an_error_of_the_network(self, stack):
        table = RouteTable()
        address = stack.enter_context(name_server.serving(table))
        hung = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        topic = TopicData("others", 1, 1, 6)
        table.register(Registration("c", "b", 0, f"127.0.0.1:{hung}", 1, [topic]), "b")
        with Producer(endpoint=address) as producer, pytest.raises(PyrocketError) as caught:
            producer.send(Message(topic="new", body=b"1"))
        assert isinstance(caught.value, TransportError)
