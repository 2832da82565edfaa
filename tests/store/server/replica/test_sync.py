"""With `sync`, what is acknowledged is durable on a replica, and every status is RocketMQ's."""

import threading
import time
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest
from pyrocket import LocalTransactionState, Message, PyrocketError, SinkBatch, Store
from pyrocket.client import Producer
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower
from pyrocket.errors import BrokerBusyError
from pyrocket.metadata.role import Role, RoleFile
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.sink import RemoteSink
from pyrocket.remote.source import RemoteSource
from pyrocket.values.message import SendStatus
from store.server.replica.test_replication import code_of, link_to, linked
from support.broker import served
from support.cutting_proxy import cutting
from support.name_server import wait_until
from support.replicas import log_bytes
from support.stores import bodies as by_queue
from support.stores import message

SHORT_S = 0.3


def bodies(store):
    return sorted((body for queue in by_queue(store).values() for body in queue), key=int)


def count(store):
    return sum(offsets.maximum for offsets in store.offsets("t").values())


def serving(store, timeout_s=SHORT_S):
    return served(store, sync=True, sync_timeout=timeout_s)


@contextmanager
def stuck(monkeypatch):
    """A replica receives everything, but its disk does not complete a flush until the end."""
    go, flush = threading.Event(), Follower.flush

    def wait(follower):
        assert go.wait(60)
        flush(follower)

    with monkeypatch.context() as patch:
        patch.setattr(Follower, "flush", wait)
        try:
            yield
        finally:
            go.set()


def status_of(address):
    client = Client(Connection(address))
    try:
        return RemoteSource(client).status()
    finally:
        client.close()


def send(producer, body=b"0"):
    return producer.send(Message(topic="t", body=body)).status


def sink_of(address, seconds=20):
    return RemoteSink(Client(Connection(address), Timeouts(total=seconds, first=seconds)))


def test_a_send_is_acknowledged_when_a_replica_has_it_durably(primary, path, where):
    with serving(primary, 20) as address, linked(address, where) as link:
        wait_until(lambda: status_of(address).sync == "SEND_OK")
        with Producer(endpoint=address) as producer:
            for number in range(30):
                result = producer.send(Message(topic="t", body=b"%d" % number))
                assert result.status is SendStatus.SEND_OK
                assert link.state().end > result.physical_offset
    with Store.open(where, read_only=True) as copy:
        assert bodies(copy) == [b"%d" % number for number in range(30)]


def test_without_a_replica_sends_are_stored_and_say_so_at_once(primary, path, where):
    with serving(primary, 30) as address, Producer(endpoint=address) as producer:
        began = time.monotonic()
        assert send(producer) is SendStatus.SLAVE_NOT_AVAILABLE
        assert time.monotonic() - began < 5
        assert status_of(address).sync == "SLAVE_NOT_AVAILABLE"
        with linked(address, where):
            wait_until(lambda: status_of(address).sync == "SEND_OK")
            assert send(producer) is SendStatus.SEND_OK
        wait_until(lambda: status_of(address).sync == "SLAVE_NOT_AVAILABLE")
        assert len(bodies(primary)) == 2


def test_a_replica_that_is_too_slow_delays_only_what_waits_for_it(
    primary, path, where, monkeypatch
):
    with serving(primary, 1.5) as address, linked(address, where):
        wait_until(lambda: status_of(address).sync == "SEND_OK")
        with Producer(endpoint=address) as producer, stuck(monkeypatch):
            results = []
            threads = [
                threading.Thread(target=lambda: results.append(send(producer))) for _ in range(20)
            ]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            wait_until(lambda: count(primary) == 20)  # They are readable meanwhile.
            assert status_of(address).replicas
            assert not results
            for thread in threads:
                thread.join()
            assert time.monotonic() - began < 9  # Together, not one after the other.
            assert set(results) == {SendStatus.FLUSH_SLAVE_TIMEOUT}


def test_batches_of_the_exactly_once_sink_wait_and_are_published_once(primary, path, where):
    batch = pa.record_batch({"body": [b"1", b"2"]})
    with serving(primary) as address:
        sink, named = sink_of(address, 1), SinkBatch(identity="q", target="t", batch=0)
        with sink.stage(named, partition=0, attempt=0) as stager:
            stager.append(batch, topic="t")
            staged = stager.finish()
        with pytest.raises(BrokerBusyError) as caught:
            sink.publish(named, [staged])
        assert caught.value.code == "SLAVE_NOT_AVAILABLE"
        assert len(bodies(primary)) == 2
        with linked(address, where):
            again = sink_of(address)
            assert again.publish(named, [staged]).dropped
            assert log_bytes(where) == log_bytes(path)
            again.close()
        sink.close()


def test_appended_batches_have_a_status_and_a_flush_waits(primary, where):
    batch = pa.record_batch({"body": [b"1"]})
    with serving(primary) as address:
        sink = sink_of(address, 1)
        assert sink.append(batch, topic="t").status is SendStatus.SLAVE_NOT_AVAILABLE
        assert code_of(sink.flush) == "SLAVE_NOT_AVAILABLE"
        with linked(address, where):
            wait_until(lambda: status_of(address).sync == "SEND_OK")
            assert sink.append(batch, topic="t").status is SendStatus.SEND_OK
            sink.flush()
        sink.close()


class Listener:
    def __init__(self):
        self.executed = 0

    def execute(self, message, argument):
        self.executed += 1
        return LocalTransactionState.COMMIT

    def check(self, message):
        return LocalTransactionState.UNKNOWN


def test_transactions_without_a_replica_are_rolled_back(primary, where):
    listener = Listener()
    with (
        serving(primary) as address,
        Producer("g", endpoint=address, listener=listener) as producer,
    ):
        result = producer.send_in_transaction(Message(topic="t", body=b"1"))
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert (result.state, result.error) == (LocalTransactionState.ROLLBACK, None)
        assert listener.executed == 0
        assert not primary.transactions.pending()
        with linked(address, where):
            wait_until(lambda: status_of(address).sync == "SEND_OK")
            result = producer.send_in_transaction(Message(topic="t", body=b"2"))
            assert (result.status, result.error) == (SendStatus.SEND_OK, None)
            with Store.open(where, read_only=True) as copy:
                assert bodies(copy) == [b"2"]


def test_a_connection_that_falls_silent_costs_a_time_out_and_nothing_else(primary, path, where):
    with serving(primary) as address, cutting(address, 0) as proxy, linked(proxy.address, where):
        wait_until(lambda: status_of(address).sync == "SEND_OK")
        with Producer(endpoint=address) as producer:
            proxy.silence()
            assert send(producer, b"1") is SendStatus.FLUSH_SLAVE_TIMEOUT
            assert bodies(primary) == [b"1"]


def test_connections_are_cut_under_senders_and_what_is_acknowledged_is_there(primary, path, where):
    acknowledged = []
    with (
        serving(primary) as address,
        cutting(address, 40, within=True) as proxy,
        linked(proxy.address, where),
        Producer(endpoint=address) as producer,
    ):
        end, number = time.monotonic() + 3, 0
        while time.monotonic() < end:
            number += 1
            if send(producer, b"%d" % number) is SendStatus.SEND_OK:
                acknowledged.append(number)
        assert proxy.cuts
    assert acknowledged
    with Store.open(where, read_only=True) as copy:
        assert {*acknowledged} <= {*map(int, bodies(copy))}


def test_a_stop_confirms_what_is_in_flight(primary, path, where):
    statuses = []
    with serving(primary, 10) as address, linked(address, where):
        wait_until(lambda: status_of(address).sync == "SEND_OK")
        producer = Producer(endpoint=address)
        producer.start()

        def run():
            with suppress(PyrocketError):
                while True:
                    statuses.append(send(producer))

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: len(statuses) > 5)
    producer.close()
    thread.join()
    assert {*statuses} <= {SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE}


def test_an_acknowledgement_beyond_the_log_confirms_nothing_that_is_appended_later(
    primary, path, where, monkeypatch
):
    with serving(primary) as address, linked(address, where) as link:
        wait_until(lambda: status_of(address).sync == "SEND_OK")
        client = Client(Connection(address))
        client.call("Acknowledge", replica=link.role.replica, end=1 << 40, term=0)
        client.close()
        with stuck(monkeypatch), Producer(endpoint=address) as producer:
            assert send(producer) is SendStatus.FLUSH_SLAVE_TIMEOUT


def test_an_older_term_gets_no_acknowledgement(primary, path, where):
    with serving(primary) as address:
        with linked(address, where):
            primary.append(message(b"x"))
            wait_until(lambda: status_of(address).replicas[0].lag_bytes == 0)
        role = RoleFile(Layout(where)).read()
        RoleFile(Layout(where)).write(Role(role.primary, role.replica, 1))
        link = link_to(address, where)
        assert code_of(link.start) == "PRIMARY_FENCED"
        link.stop()
        client = Client(Connection(address))
        who = {"replica": role.replica, "end": 1 << 40, "term": 1}
        assert code_of(lambda: client.call("Acknowledge", **who)) == "PRIMARY_FENCED"
        connect = {"store": primary.uuid, "name": "r", **who}
        assert code_of(lambda: next(client.stream("Replicate", **connect))) == "PRIMARY_FENCED"
        client.close()
