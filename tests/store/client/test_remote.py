"""Clients of brokers: several brokers, name servers, lost brokers, TLS, users and misuse."""

import json
import time
from contextlib import ExitStack, contextmanager

import pytest
from click.testing import CliRunner
from pyrocket import Message, MessageQueue, Store, StoreConfig
from pyrocket.base.credentials import Credentials
from pyrocket.broker.broker import Broker
from pyrocket.client.instance import wait_for
from pyrocket.client.producer import Producer
from pyrocket.client.pull_consumer import PullConsumer
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import (
    MessageError,
    NotAuthenticatedError,
    StorePermissionError,
    TransportError,
)
from pyrocket.formats.compression import COMPRESSED_FLAGS
from pyrocket.formats.message_keys import parse_offset_message_id
from pyrocket.formats.record import STORE_HOST
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.server.tls import Certificate
from pyrocket.tools.cli import main
from pyrocket.values.message import OutgoingMessage, SendStatus
from pyrocket.values.routes import Registration, TopicData
from pyrocket.values.transactions import LocalTransactionState
from support import name_server
from support.broker import served
from support.certificates import write_certificate
from support.users import ADMIN, access_of, credentials


@contextmanager
def broker(path, name="broker-a", topics=("orders",), ordered=False, **settings):
    """Serve a new or existing store; yield the address."""
    store = Store.open(path, create=True, config=StoreConfig(broker_name=name))
    for topic in topics:
        store.topics.create(topic, read_queues=2, write_queues=2, ordered=ordered)
    with served(store, **settings) as address:
        yield address


def body(number):
    return Message(topic="orders", body=b"%d" % number)


def poll_all(consumer, count):
    """Return the bodies of the next messages, of which there are exactly `count`."""
    found, end = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found += [message.body for message in consumer.poll(1, 100)]
    return sorted(found + [message.body for message in consumer.poll(0.1)], key=int)


class TestSeveralBrokers:
    @pytest.fixture
    def endpoints(self, tmp_path):
        with ExitStack() as stack:
            yield [
                stack.enter_context(broker(tmp_path / name, name))
                for name in ("broker-a", "broker-b")
            ]

    def test_the_queues_of_several_brokers_are_one_topic(self, endpoints):
        with Producer(endpoint=",".join(endpoints)) as producer:
            sent = [producer.send(body(number)) for number in range(8)]
        assert {result.status for result in sent} == {SendStatus.SEND_OK}
        with PullConsumer("g", endpoint=";".join(endpoints), consume_from="first") as consumer:
            queues = consumer.queues("orders")
            assert {queue.broker for queue in queues} == {"broker-a", "broker-b"}
            assert len(queues) == 4
            consumer.assign(queues)
            assert poll_all(consumer, 8) == [b"%d" % number for number in range(8)]
            replies = consumer.commit()
        assert {reply.next_offset for reply in replies.values()} == {2}

    def test_without_a_name_server_a_client_remembers_the_queues_of_ordered_topics(self, tmp_path):
        ordered = {"ordered": True}
        with broker(tmp_path / "a", "broker-a", topics=("orders",), **ordered) as first:
            with broker(tmp_path / "b", "broker-b", topics=("orders",), **ordered) as second:
                producer = Producer(endpoint=f"{first},{second}")
                producer.start()
                before = [queue_of_key(producer, key) for key in range(8)]
            instance = producer._instance
            asked = instance.run(instance.routes.get("orders", fresh=True))
            assert (
                {queue.broker for queue in asked.writable} == {"broker-a", "broker-b"} == {*before}
            )
            producer.close()

    def test_a_broker_that_is_in_no_route_is_not_followed_any_longer(self, endpoints):
        table = RouteTable()
        for name, address in zip(("broker-a", "broker-b"), endpoints, strict=True):
            topics = (TopicData("orders", 2, 2, 6),)
            table.register(Registration("c", name, 0, address, 1, topics), name)
        with name_server.serving(table) as address, Producer(endpoint=address) as producer:
            instance = producer._instance
            followed = instance.transport._invoker._brokers._notifications._names
            for topic in ("orders", "orders"):
                instance.run(instance.routes.get(topic, fresh=True))
            assert followed == {"broker-a", "broker-b"}
            table.disconnect("broker-a")
            instance.run(instance.routes.get("orders", fresh=True))
            assert [*followed] == ["broker-b"] == instance.run(instance.transport.brokers())
            assert producer.send(body(1)).broker == "broker-b"

    def test_members_of_a_group_share_all_queues_soon_after_each_change(self, endpoints):
        def member(name):
            return PushConsumer(
                "g",
                endpoint=",".join(endpoints),
                instance=name,
                subscriptions={"orders": "*"},
                listener=lambda messages: ConsumeResult.SUCCESS,
            )

        def held(*members):
            return [
                sorted(queue.broker for queue in one.queues() if queue.topic == "orders")
                for one in members
            ]

        with member("1") as first:
            assert held(first) == [["broker-a", "broker-a", "broker-b", "broker-b"]]
            with member("2") as second:
                name_server.wait_until(lambda: [len(one) for one in held(first, second)] == [2, 2])
            name_server.wait_until(lambda: len(held(first)[0]) == 4, seconds=10)

    def test_a_send_avoids_a_broker_that_is_lost(self, tmp_path, endpoints):
        with broker(tmp_path / "broker-c", "broker-c") as third:
            producer = Producer(endpoint=",".join([*endpoints, third]))
            producer.start()
            names = {queue.broker for queue in wait_for_route(producer)}
            assert names == {"broker-a", "broker-b", "broker-c"}
        for number in range(12):
            assert producer.send(body(number)).status is SendStatus.SEND_OK
        producer.close()


def queue_of_key(producer, key):
    """Send a message with a sharding key; return the name of the broker that stored it."""
    message = Message(topic="orders", body=b"", sharding_key=f"key-{key}")
    return producer.send(message).broker


def wait_for_route(producer):
    """Return the queues that a producer knows."""
    instance = producer._instance
    return wait_for(instance.submit(instance.routes.get("orders"))).writable


def test_clients_survive_a_restart_of_the_broker(tmp_path):
    with broker(tmp_path / "s") as address:
        port = int(address.rpartition(":")[2])
        producer = Producer(endpoint=address)
        consumer = PullConsumer("g", endpoint=address, consume_from="first")
        producer.start()
        consumer.start()
        consumer.assign(consumer.queues("orders"))
        producer.send(body(0))
        assert poll_all(consumer, 1) == [b"0"]
    with pytest.raises(TransportError, match=address):
        producer.send(body(1))
    with broker(tmp_path / "s", topics=(), port=port):
        name_server.wait_until(lambda: can_send(producer, 2))
        name_server.wait_until(lambda: consumer.poll(1), seconds=30)
        assert consumer.commit()
        producer.close()
        consumer.close()


def can_send(producer, number):
    try:
        return producer.send(body(number))
    except TransportError:
        return None


def test_an_address_where_nothing_listens_is_an_error_that_names_it_soon():
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1 "):
        Producer(endpoint="127.0.0.1:1").start()
    assert time.monotonic() - began < 10


def test_a_broker_with_users_and_tls_admits_only_those_with_rights(tmp_path):
    access = access_of(tmp_path, owner=ADMIN, reader=("subscribe", "orders", "billing"))
    pem, key = write_certificate(tmp_path)
    trust = {"tls": True, "ca": pem.read_bytes()}
    owner = credentials("owner", **trust)
    reader = credentials("reader", **trust)
    certificate = Certificate(str(pem), str(key))
    with broker(tmp_path / "s", access=lambda: access, certificate=certificate) as address:
        with pytest.raises(NotAuthenticatedError):
            Producer(endpoint=address, credentials=Credentials(**trust)).start()
        with pytest.raises(TransportError):
            Producer(endpoint=address).start()
        with Producer(endpoint=address, credentials=owner) as producer:
            producer.send(body(0))
        refused = pytest.raises(StorePermissionError, match="reader")
        with Producer(endpoint=address, credentials=reader) as producer, refused:
            producer.send(body(1))
        given = {"endpoint": address, "credentials": reader}
        refused = pytest.raises(StorePermissionError, match="others")
        with PullConsumer("billing", **given, consume_from="first") as consumer, refused:
            consumer.pull(MessageQueue("others", "broker-a", 0), 0)
        refused = pytest.raises(StorePermissionError, match="reports")
        with PullConsumer("reports", **given) as consumer, refused:
            consumer.assign([MessageQueue("orders", "broker-a", 0)])


def test_a_corrupt_compressed_body_is_refused(tmp_path):
    with broker(tmp_path / "s") as address, Producer(endpoint=address) as producer:
        corrupt = OutgoingMessage(body(0), b"not compressed", "id", 1, sys_flag=COMPRESSED_FLAGS)
        queue = MessageQueue("orders", "broker-a", 0)
        with pytest.raises(MessageError) as caught:
            producer._instance.run(producer._instance.transport.send(queue, [corrupt]))
    assert caught.value.code == "BODY_CORRUPT"


def test_hundreds_of_queues_are_pulled_while_other_calls_are_answered(tmp_path):
    with broker(tmp_path / "s", topics=()) as address, Producer(endpoint=address) as producer:
        with Store.open(tmp_path / "s") as store:
            store.topics.create("orders", read_queues=150, write_queues=150)
        with PullConsumer("g", endpoint=address, consume_from="first") as consumer:
            consumer.assign(consumer.queues("orders"))
            began = time.monotonic()
            for number in range(150):
                producer.send(body(number))
            assert poll_all(consumer, 150) == [b"%d" % number for number in range(150)]
            consumer.commit()
            assert time.monotonic() - began < 20


class TestOffsetIds:
    """Offset ids name the broker that stored the message."""

    @pytest.fixture
    def brokers(self, tmp_path):
        with ExitStack() as stack:
            yield [
                stack.enter_context(broker(tmp_path / name, name))
                for name in ("broker-a", "broker-b")
            ]

    @staticmethod
    def found(address, msg_id):
        """Return the body that `pyrocket message find --id` finds at a broker, or None."""
        place = ["--endpoint", address, "--json"]
        result = CliRunner().invoke(main, ["message", "find", "orders", "--id", msg_id, *place])
        assert result.exit_code in (0, 1), result.output
        bodies = [one["body"] for one in json.loads(result.stdout)["messages"]]
        return bodies[0] if bodies else None

    def test_equal_places_at_two_brokers_have_different_ids(self, brokers):
        sent = []
        for address in brokers:
            with Producer(endpoint=address) as producer:
                sent.append(producer.send(Message(topic="orders", body=address.encode())))
        assert sent[0].physical_offset == sent[1].physical_offset
        ids = [one.offset_msg_id for one in sent]
        for address in brokers:
            assert [self.found(address, one) for one in ids] == [
                address if other == address else None for other in brokers
            ]

    def test_the_id_contains_the_address_of_the_broker(self, brokers):
        with Producer(endpoint=brokers[0]) as producer:
            sent = producer.send(body(1))
        host, port, offset = parse_offset_message_id(sent.offset_msg_id)
        assert (f"{'.'.join(map(str, host))}:{port}", offset) == (brokers[0], sent.physical_offset)

    def test_an_address_without_ipv4_is_not_part_of_ids(self, tmp_path):
        with Store.open(tmp_path / "s", create=True) as store:
            broker = Broker(store)
            try:
                for host in (bytes(4), bytes(16)):
                    broker.advertise((host, 8081))
                assert store.lookup.host == STORE_HOST
            finally:
                broker.close()

    def test_ids_of_an_embedded_store_are_found_by_a_broker_of_the_store(self, tmp_path):
        with Store.open(tmp_path / "s", create=True) as store:
            sent = store.append(body(1))
        with served(Store.open(tmp_path / "s")) as address:
            assert self.found(address, sent.offset_msg_id) == "1"


class TestBornHosts:
    def test_a_message_that_was_sent_over_the_network_has_the_address_of_its_producer(
        self, tmp_path
    ):
        class Listener:
            def execute(self, message, argument):
                return LocalTransactionState.COMMIT

            def check(self, message):
                return LocalTransactionState.UNKNOWN

        with broker(tmp_path / "s") as address:
            with Producer(endpoint=address, listener=Listener()) as producer:
                producer.send(body(1))
                producer.send_batch([body(2), body(3)])
                producer.send_in_transaction(body(4))
            arguments = ["message", "send", "orders", "5", "--endpoint", address]
            assert CliRunner().invoke(main, arguments).exit_code == 0
        with Store.open(tmp_path / "s", read_only=True) as store:
            found = [*store.messages("orders")]
        assert len(found) == 5
        assert {one.born_host.rpartition(":")[0] for one in found} == {"127.0.0.1"}
        assert "127.0.0.1:10911" not in {one.born_host for one in found}
        assert {one.store_host for one in found} == {"127.0.0.1:10911"}
