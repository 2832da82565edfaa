"""`pyrocket broker DIR --replica-of` as a process: reads, refusals, status, and faults."""

import json
import os
import signal
from contextlib import contextmanager

import pytest
from pyrocket import Message, QueueOffsets, RemoteSource, Store
from pyrocket.client import Producer, PullConsumer
from pyrocket.disk.layout import Layout
from pyrocket.errors import PyrocketError
from pyrocket.metadata.role import RoleFile
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.values.consuming import PullStatus
from support import name_server
from support.broker_process import metric, running
from support.commands import run
from support.name_server import wait_until
from support.replicas import assert_alike, log_bytes, published

WAIT_S = 60


def command(*arguments):
    """Run a command of pyrocket; return its status and its output."""
    done = run(*arguments)
    return done.exit_code, done.output


@contextmanager
def pair(tmp_path, *flags):
    """Run a primary with topic t, and a replica; yield both with their directories."""
    sizes = ("--log-file-bytes", "64k", "--metrics", "127.0.0.1:0")
    with running(tmp_path / "p", *sizes) as (primary, at):
        send(at.listen[0])
        more = ("--replica-of", at.listen[0], "--metrics", "127.0.0.1:0", *flags)
        with running(tmp_path / "r", *more) as (replica, there):
            yield (primary, at), (replica, there)


def send(address, count=1):
    with Producer(endpoint=address, create=True) as producer:
        for number in range(count):
            producer.send(Message(topic="t", body=b"m%d" % number))


def level(tmp_path):
    wait_until(lambda: published(tmp_path / "r") == published(tmp_path / "p"))


def test_reads_are_served_and_everything_else_is_refused(tmp_path):
    with pair(tmp_path) as ((_, at), (_, there)):
        address, other = at.listen[0], there.listen[0]
        assert command("group", "create", "g", "--endpoint", address)[0] == 0
        level(tmp_path)
        wait_until(lambda: "m0" in command("message", "tail", "t", "--endpoint", other)[1])
        assert "t" in command("topic", "list", "--endpoint", other)[1]
        for write in (
            ("message", "send", "t", "x", "--endpoint", other),
            ("topic", "create", "u", "--path", tmp_path / "r"),
            ("broker", tmp_path / "r"),
        ):
            status, text = command(*write)
            assert status == 2
            assert "REPLICA_READ_ONLY" in text
        new = (tmp_path / "new", "--listen", "127.0.0.1:0")
        assert "REPLICA_OF_REPLICA" in command("broker", *new, "--replica-of", other)[1]
        assert (
            "REPLICA_OF_ITSELF"
            in command("broker", tmp_path / "new", "--listen", address, "--replica-of", address)[1]
        )
        own = {"replica": RoleFile(Layout(tmp_path / "r")).read().replica, "name": "r"}
        with pytest.raises(PyrocketError) as caught:  # By another of its addresses.
            next(Client(Connection(other)).stream("Replicate", **own))
        assert caught.value.code == "REPLICA_OF_ITSELF"
        with PullConsumer("g", endpoint=other) as consumer:
            wait_until(lambda: command("group", "show", "g", "--endpoint", other)[0] == 0)
            (queue,) = [each for each in consumer.queues("t") if consumer.bounds(each).maximum]
            assert [one.body for one in consumer.pull(queue, 0).messages] == [b"m0"]
            assert consumer.pull(queue, 1, hold_ms=1000).status is PullStatus.NO_NEW_MSG
            # The replica may be behind: an offset after its end is not corrected.
            beyond = consumer.pull(queue, 9)
            assert (beyond.status, beyond.next_offset) == (PullStatus.NO_NEW_MSG, 9)
            assert beyond.epoch is None, "the offset was not learned here"
            assert beyond.available == QueueOffsets(0, 1)
            with pytest.raises(PyrocketError) as caught:
                consumer.commit({queue: 1})
            assert caught.value.code == "REPLICA_READ_ONLY"
        state = json.loads(command("broker", "status", "--json", "--endpoint", address)[1])
        (found,) = state["replicas"]
        assert (found["connected"], found["lagBytes"], found["lagMs"]) == (True, 0, 0)
        state = json.loads(command("broker", "status", "--json", "--endpoint", other)[1])
        assert (state["replicaOf"], state["writable"]) == (address, False)
        for each in (at, there):
            lag = metric(each, "pyrocket_replica_lag_bytes", "replica")
            assert [*lag.values()] == [0]
            assert [*metric(each, "pyrocket_replica_connected", "replica").values()] == [1]
    assert_alike(tmp_path / "p", tmp_path / "r")


def test_name_servers_list_a_replica_while_it_runs_but_writes_go_to_the_primary(tmp_path):
    with name_server.running() as (_, servers):
        flags = ("--nameserver", servers, "--log-file-bytes", "64k")

        def listed():
            shown = json.loads(command("broker", "list", "--json", "--endpoint", servers)[1])
            return {(one["brokerId"] > 0): one["address"] for one in shown["brokers"]}

        with running(tmp_path / "p", *flags) as (primary, at):
            send(at.listen[0])
            more = ("--replica-of", at.listen[0], "--nameserver", servers)
            with running(tmp_path / "r", *more) as (_, there):
                places = at.listen[0], there.listen[0]
                wait_until(lambda: listed() == dict(zip((False, True), places, strict=True)))
                route = command("topic", "route", "t", "--json", "--endpoint", servers)[1]
                (found,) = json.loads(route)["brokers"]
                assert (found["address"], *found["replicas"]) == places
                send(servers)
                level(tmp_path)
                primary.kill()
                primary.wait()
                wait_until(lambda: listed() == {True: there.listen[0]})
                with pytest.raises(PyrocketError):
                    send(servers)
            assert "knows no live broker" in command("broker", "list", "--endpoint", servers)[1]
    assert_alike(tmp_path / "p", tmp_path / "r")


def test_a_source_reads_a_replica(tmp_path):
    with pair(tmp_path) as ((_, at), (_, there)):
        source = RemoteSource(Client(Connection(there.listen[0])))
        seen = source.version()
        send(at.listen[0])
        assert source.wait_for_change(seen, 20)
        assert source.store_id == RemoteSource(Client(Connection(at.listen[0]))).store_id
        source.client.close()


@pytest.mark.parametrize(
    ("which", "number"),
    [
        (0, signal.SIGKILL),
        (1, signal.SIGSTOP),
        pytest.param(0, signal.SIGSTOP, marks=pytest.mark.heavy),
        pytest.param(1, signal.SIGKILL, marks=pytest.mark.heavy),
    ],
)
def test_either_side_is_killed_or_suspended_and_comes_back(tmp_path, which, number):
    with pair(tmp_path) as both:
        address = both[0][1].listen[0]
        send(address)
        level(tmp_path)
        process, found = both[which]
        process.send_signal(number)
        if number == signal.SIGSTOP:
            if which:
                send(address)
            process.send_signal(signal.SIGCONT)
        else:
            process.wait()
            flags = ("--listen", found.listen[0], "--log-file-bytes", "64k")
            more = ("--replica-of", address) if which else ()
            with running(tmp_path / "pr"[which], *flags, *more):
                send(address)
                level(tmp_path)
            return
        send(address)
        level(tmp_path)
    assert log_bytes(tmp_path / "p").startswith(log_bytes(tmp_path / "r"))


def test_spark_and_stores_read_by_path_while_the_replica_runs_and_afterwards(tmp_path):
    with pair(tmp_path) as ((_, at), _):
        send(at.listen[0], 2)
        level(tmp_path)
        with Store.open(tmp_path / "r", read_only=True) as store:
            assert [one.body for one in store.messages("t")]
            assert not store.deliver_due()
    with Store.open(tmp_path / "r", read_only=True) as store:
        assert len([*store.messages("t")]) == 3
        assert not store.deliver_due()
    assert not os.path.exists(tmp_path / "r" / "pyrocket" / "broker.json")
