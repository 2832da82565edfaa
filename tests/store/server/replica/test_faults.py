"""Faults of the network, the processes and the disks between a primary with `sync` and its replica:
no send is acknowledged that a replica lacks, the status names the fault, and both go on afterwards.
"""

import signal
import time
from contextlib import contextmanager

import pytest
from pyrocket import Message, PyrocketError, Store
from pyrocket.client import Producer
from pyrocket.server.call_server import CallServer
from pyrocket.values.message import SendStatus
from store.server.replica.test_replication import MIDDLE, linked
from store.server.replica.test_sync import bodies, serving, status_of
from support.broker_process import running
from support.cutting_proxy import cutting
from support.disks import mounted
from support.name_server import wait_until
from support.replicas import assert_alike, log_bytes, published

OK, SLOW, NONE = (
    SendStatus.SEND_OK,
    SendStatus.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE,
)
STALLS = [("client", "broker"), ("client",), ("broker",)]
"""The sides that are not heard: a stall, and the two half-open connections."""


class Sender:
    """Sends numbers; `stored` has those with SEND_OK."""

    def __init__(self, producer):
        self._producer, self._next, self.stored = producer, 0, []

    def send(self):
        """Send the next number; return the status, or the code of the error."""
        self._next += 1
        try:
            sent = self._producer.send(Message(topic="t", body=b"%d" % self._next))
        except PyrocketError as error:
            return error.code
        if sent.status is OK:
            self.stored.append(b"%d" % self._next)
        return sent.status

    def send_until(self, status, seconds=60):
        end = time.monotonic() + seconds
        while self.send() is not status:
            assert time.monotonic() < end, f"sends do not get {status}"
            time.sleep(0.05)


@contextmanager
def sender(address):
    with Producer(endpoint=address, timeout_ms=20_000) as producer:
        yield Sender(producer)


@contextmanager
def over_a_network(primary, where):
    """Let a replica follow through a proxy, and sends wait for it."""
    with (
        serving(primary) as address,
        cutting(address, 0) as proxy,
        linked(proxy.address, where) as link,
        sender(address) as sends,
    ):
        sends.send_until(OK)
        yield address, proxy, link, sends


def assert_stored(where, sender):
    with Store.open(where, read_only=True) as copy:
        assert {*sender.stored} <= {*bodies(copy)}


@pytest.mark.parametrize("sides", STALLS)
def test_a_stalled_network_delays_and_is_named(primary, path, where, sides):
    """It ends before any time-out: the connection goes on."""
    with over_a_network(primary, where) as (address, proxy, link, sends):
        proxy.mute(*sides)
        assert sends.send() is SLOW
        (state,) = status_of(address).replicas
        assert state.connected
        assert state.lag_bytes > 0
        assert state.lag_ms > 0
        proxy.mute()
        sends.send_until(OK)
        wait_until(lambda: link.state().end == published(path))
        assert status_of(address).replicas[0].lag_bytes == 0
    assert_stored(where, sends)


@pytest.mark.heavy
@pytest.mark.parametrize("sides", STALLS)
def test_a_lost_network_ends_the_connection_on_both_sides(primary, path, where, sides, monkeypatch):
    """After the time-outs of both sides, the replica is not waited for, and connects again."""
    monkeypatch.setattr(CallServer, "ping_s", 10)
    monkeypatch.setattr(CallServer, "answer_s", 10)
    with over_a_network(primary, where) as (address, proxy, link, sends):
        proxy.mute(*sides)
        assert sends.send() is SLOW
        wait_until(lambda: not link.state().connected)
        wait_until(lambda: not status_of(address).replicas[0].connected)
        assert status_of(address).sync == "SLAVE_NOT_AVAILABLE"
        assert sends.send() is NONE
        assert not link.rounds.trouble, "a lost network is no failure of the replica"
        proxy.mute()
        sends.send_until(OK)
        wait_until(lambda: link.state().end == published(path))
    assert_stored(where, sends)
    assert log_bytes(path).startswith(log_bytes(where))


SYNC = ("--sync", "--sync-timeout", "300ms", "--log-file-bytes", "64k")


@contextmanager
def pair(ours, theirs):
    """Run a primary with `sync` and a replica; yield both with what describes them."""
    with Store.open(ours, create=True, config=MIDDLE) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    with (
        running(ours, *SYNC) as first,
        running(theirs, "--replica-of", first[1].listen[0]) as second,
    ):
        yield first, second


@pytest.mark.heavy
def test_a_suspended_replica_is_not_waited_for_after_the_time_outs(path, where):
    with pair(path, where) as ((_, at), (replica, _)), sender(at.listen[0]) as sends:
        sends.send_until(OK)
        replica.send_signal(signal.SIGSTOP)
        assert sends.send() is SLOW
        assert status_of(at.listen[0]).replicas[0].lag_bytes > 0
        sends.send_until(NONE, 120)
        assert not status_of(at.listen[0]).replicas[0].connected
        replica.send_signal(signal.SIGCONT)
        sends.send_until(OK)
        wait_until(lambda: published(where) == published(path))
    assert_stored(where, sends)
    assert_alike(path, where)


@pytest.mark.heavy
def test_a_replica_of_a_suspended_primary_says_so_and_goes_on(path, where):
    with pair(path, where) as ((primary, at), (_, there)), sender(at.listen[0]) as sends:
        sends.send_until(OK)
        primary.send_signal(signal.SIGSTOP)
        wait_until(lambda: not status_of(there.listen[0]).replicas[0].connected)
        time.sleep(10)
        assert_stored(where, sends)
        primary.send_signal(signal.SIGCONT)
        sends.send_until(OK)
        wait_until(lambda: published(where) == published(path))
    assert_stored(where, sends)
    assert_alike(path, where)


@pytest.mark.heavy
@pytest.mark.parametrize("side", ["primary", "replica"])
def test_a_full_disk_of_either_side_is_named_and_both_go_on_later(tmp_path, side):
    with mounted(tmp_path / "disk", 64 << 20) as disk:
        paths = {"primary": tmp_path / "primary", "replica": tmp_path / "replica"}
        paths[side] = disk.store
        with pair(paths["primary"], paths["replica"]) as ((_, at), (_, there)):
            place = {"primary": at, "replica": there}[side].listen[0]
            with sender(at.listen[0]) as sends:
                sends.send_until(OK)
                disk.fill()
                refused = {"primary": ("DISK_FULL",), "replica": (SLOW, NONE)}[side]
                statuses = [sends.send() for _ in range(20)]
                assert set(statuses[-10:]) <= {*refused}
                assert status_of(place).disk_full
                assert_stored(paths["replica"], sends)
                disk.free()
                sends.send_until(OK)
                assert not status_of(place).disk_full
                wait_until(lambda: published(paths["replica"]) == published(paths["primary"]))
        assert_stored(paths["replica"], sends)
        assert_alike(paths["primary"], paths["replica"])
