"""A replica follows its primary over `pyrocket.v1`, whatever the network does."""

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from pyrocket import Message, PyrocketError, Store, StoreConfig
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import Credentials
from pyrocket.broker.replicas import ReplicaFeed, Replicas, decode_block
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import FAILED
from pyrocket.engine.disk_room import DiskRoom
from pyrocket.engine.parts.follower import Follower
from pyrocket.errors import StoreFailedError, StoreUnavailableError, TransportError
from pyrocket.formats.checksum import crc32
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.remote.source import RemoteSource
from pyrocket.server.replica import link as links
from pyrocket.server.replica.link import TIMEOUTS, PrimaryLink
from pyrocket.server.tls import Certificate
from pyrocket.services.services import recovery_hooks
from support.broker import served
from support.certificates import write_certificate
from support.cutting_proxy import cutting
from support.name_server import wait_until
from support.replicas import MIDDLE, assert_alike, log_bytes, published
from support.stores import SMALL, batch, bodies, message, numbered, words
from support.users import ADMIN, access_of, credentials

WAIT_S = 60


def link_to(address, where, credentials=Credentials(), name="r"):  # noqa: B008
    layout, config = Layout(where), StoreConfig(exclusive=True)
    hooks = recovery_hooks(layout, system_clock)
    client = Client(Connection(address, credentials), TIMEOUTS)
    opens = partial(Follower, layout, config, system_clock, hooks)
    return PrimaryLink(client, layout, address, name, opens)


@contextmanager
def linked(address, where, **more):
    link = link_to(address, where, **more)
    try:
        link.start()
        yield link
    finally:
        link.stop()


def wait_until_level(path, where):
    """Wait until the log is equal, and the small files have been sent."""
    wait_until(lambda: where.joinpath("pyrocket/state").exists())
    end = -1
    while end != published(path):  # Delayed messages may be delivered meanwhile.
        end = published(path)
        time.sleep(1.3)
        wait_until(lambda: published(where) == published(path))


def produce(store, seconds):
    """Append messages of all kinds for some seconds."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rows = numbered(20, 200, 100 * number)
        store.append_batch(batch(rows, [n % 2 for n in range(20)]), topic="t")
        store.append(message(b"delayed", delay_level=1))
        soon = store.now() + 300
        store.append(Message(topic="t", body=b"timed", queue_id=1, deliver_at_ms=soon))
        store.transactions.send_half("g", message(b"half"))
        number += 1
        time.sleep(0.01)
    return number


def fill_files(store):
    """Append messages that fill several log files, and that no service needs."""
    for number in range(4):
        store.append_batch(batch(numbered(500, 200, 500 * number), 0), topic="t")


def test_a_replica_is_equal_under_all_kinds_of_messages(primary, path, where):
    with served(primary) as address, linked(address, where):
        produce(primary, 1)
        wait_until_level(path, where)
        assert_alike(path, where)
        (state,) = replicas_of(address)
        assert (state.name, state.connected, state.lag_bytes, state.lag_ms) == ("r", True, 0, 0)
        assert state.end == published(path)


def replicas_of(address):
    client = Client(Connection(address))
    try:
        return RemoteSource(client).status().replicas
    finally:
        client.close()


def test_small_files_arrive(primary, path, where):
    with served(primary) as address, linked(address, where):
        primary.append(message(b"x"))
        primary.groups.create("g")
        primary.groups.commit("g", "t", {0: 1})
        primary.topics.create("u")
        wait_until_level(path, where)
        with Store.open(where, read_only=True) as store:
            assert store.groups.committed("g", "t") == {0: 1}
            assert "u" in store.topics.all()
        primary.topics.delete("u")
        primary.append(message(b"y"))
        wait_until_level(path, where)
        with Store.open(where, read_only=True) as store:
            assert "u" not in store.topics.all()
            assert store._engine.reader.cursors() == primary._engine.reader.cursors()


@pytest.mark.parametrize("every", [30])
def test_connections_are_cut_in_the_middle_of_records(primary, path, where, every):
    with served(primary) as address, cutting(address, every, within=True) as proxy:
        produce(primary, 1)
        with linked(proxy.address, where):
            produce(primary, 2)
            wait_until(lambda: published(where) == published(path))
            assert proxy.cuts
    assert log_bytes(path).startswith(log_bytes(where))


def test_a_replica_that_was_stopped_continues(primary, path, where):
    with served(primary) as address:
        for _ in range(3):
            with linked(address, where):
                produce(primary, 0.3)
            produce(primary, 0.3)
        with linked(address, where):
            wait_until_level(path, where)
            assert_alike(path, where)


def test_a_replica_starts_without_its_primary_and_follows_it_later(path, where, tmp_path):
    store = Store.open(path, create=True, config=MIDDLE)
    with served(store) as address, linked(address, where):
        pass
    link = link_to(address, where)
    link.start()
    try:
        assert not link.state().connected
        assert not link.rounds.trouble
        store = Store.open(path)
        with served(store, port=int(address.rpartition(":")[2])):
            store.topics.create("t", read_queues=2, write_queues=2)
            produce(store, 0.5)
            wait_until_level(path, where)
            assert_alike(path, where)
            assert link.state().connected
    finally:
        link.stop()


def test_a_replica_that_cannot_be_opened_again_at_once_is_opened_later(
    primary, path, where, monkeypatch
):
    """Its disk fails during a flush, and also when the replica is recovered."""
    with served(primary) as address, linked(address, where) as link:
        wait_until_level(path, where)
        failing = [OSError("open"), OSError("open again"), StoreFailedError("sync", remedy="")]
        opens, flush = link._opens, Follower.flush

        def fail_or(work):
            if failing:
                raise failing.pop()
            return work()

        link._opens = lambda: fail_or(opens)
        monkeypatch.setattr(Follower, "flush", lambda follower: fail_or(lambda: flush(follower)))
        primary.append(message(b"x"))
        wait_until(lambda: len(failing) < 2)
        assert link.rounds.trouble
        wait_until(lambda: link.state().end == published(path) and not link.rounds.trouble)
    assert_alike(path, where)


def test_a_new_replica_needs_its_primary(where):
    with pytest.raises(TransportError):
        link_to("127.0.0.1:1", where).start()
    assert not where.exists()


def test_a_tail_that_a_restored_primary_lacks_is_cut_and_saved(primary, path, where, tmp_path):
    with served(primary) as address, linked(address, where):
        produce(primary, 0.5)
        primary.snapshot(tmp_path / "copy")
        produce(primary, 0.5)
        wait_until_level(path, where)
    restored = Store.open(tmp_path / "copy")
    kept = restored.position().published
    tail = log_bytes(path, kept)
    with served(restored) as address, linked(address, where):
        produce(restored, 0.5)
        wait_until_level(tmp_path / "copy", where)
        assert_alike(tmp_path / "copy", where)
        (saved,) = Layout(where).own.glob("cut-*")
        assert saved.name.endswith(f"-{kept}")
        assert saved.read_bytes() == tail
        with Store.open(where, read_only=True) as store:
            assert store.history.epoch == restored.history.epoch
            assert store.history.cut_since(0, "t", 0) is not None


def test_a_replica_deletes_the_files_that_its_primary_has_deleted(primary, path, where):
    with served(primary) as address, linked(address, where):
        fill_files(primary)
        wait_until_level(path, where)
        assert primary.clean(total_bytes=2 << 16).removals
        primary.append(message(b"x"))
        wait_until_level(path, where)
        assert log_bytes(where) == log_bytes(path)
        assert_alike(path, where)


def test_a_replica_that_is_too_far_behind_is_named(primary, path, where):
    with served(primary) as address:
        with linked(address, where):
            primary.append(message(b"x"))
            wait_until_level(path, where)
        fill_files(primary)
        primary.clean(total_bytes=1 << 16)
        assert code_of(link_to(address, where).start) == "REPLICA_BEHIND"


def code_of(call):
    with pytest.raises(PyrocketError) as caught:
        call()
    return caught.value.code


def test_other_stores_and_names_in_use_are_refused(primary, where, tmp_path):
    with served(primary) as address, linked(address, where):
        second = link_to(address, tmp_path / "second")
        assert code_of(second.start) == "REPLICA_NAME_IN_USE"
        second.stop()
    other = Store.open(tmp_path / "other", create=True)
    with served(other) as address:
        link = link_to(address, where)
        assert code_of(link.start) == "REPLICA_OTHER_STORE"
        link.stop()
        link = link_to(address, tmp_path / "primary")
        assert code_of(link.start) == "NOT_A_REPLICA"
        link.stop()


def test_a_log_beyond_that_of_the_primary_is_named(primary, path, where):
    replicas, uuid = Replicas(primary), primary.uuid
    primary.append(message(b"x"))
    end, mark = published(path), primary.history.mark({"t": {0: 1}})
    for at, head in ((end + 100, mark), (end, replace(mark, header_crc=1))):
        connect = partial(replicas.connect, uuid, "id", "r", 0, at, head)
        assert code_of(connect) == "REPLICA_DIVERGED"
    replicas.connect(uuid, "id", "r", 0, end, mark)
    primary.close()


def test_a_newer_primary_is_refused(primary, where, monkeypatch):
    monkeypatch.setattr(links, "RELEASE", "0.0.9")
    with served(primary) as address:
        assert code_of(link_to(address, where).start) == "PRIMARY_NEWER"


def test_rights_and_tls(primary, path, where, tmp_path):
    pem, key = write_certificate(tmp_path)
    access = access_of(tmp_path, reader=("subscribe", "*"), copier=ADMIN)
    certificate = Certificate(str(pem), str(key))
    with served(primary, access=lambda: access, certificate=certificate) as address:
        ca = pem.read_bytes()
        reader = credentials("reader", tls=True, ca=ca)
        assert code_of(link_to(address, where, reader).start) == "PERMISSION_DENIED"
        anonymous = Credentials(tls=True, ca=ca)
        assert code_of(link_to(address, where, anonymous).start) == "UNAUTHENTICATED"
        assert code_of(link_to(address, where, Credentials()).start) == "TRANSPORT_FAILED"
        assert not where.exists()
        with linked(address, where, credentials=credentials("copier", tls=True, ca=ca)):
            primary.append(message(b"x"))
            wait_until_level(path, where)
            assert_alike(path, where)


def test_a_full_disk_is_named_and_the_replica_goes_on_later(primary, path, where, monkeypatch):
    full = threading.Event()
    check = DiskRoom.check_fits

    def check_fits(room, size):
        if full.is_set() and room._layout.root == where:
            raise StoreUnavailableError("the disk is full.", code="DISK_FULL")
        check(room, size)

    monkeypatch.setattr(DiskRoom, "check_fits", check_fits)
    with served(primary) as address, linked(address, where) as link:
        produce(primary, 0.3)
        wait_until_level(path, where)
        full.set()
        produce(primary, 0.3)
        wait_until(lambda: "DISK_FULL" in link.rounds.trouble)
        with Store.open(where, read_only=True) as store:
            assert bodies(store)[0]
        full.clear()
        wait_until_level(path, where)
        assert_alike(path, where)
        assert not link.rounds.trouble


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.heavy)])
def test_changed_blocks_are_refused_and_nothing_of_them_is_written(path, where, count):
    rng = random.Random(1)
    with Store.open(path, create=True, config=SMALL) as primary:
        primary.topics.create("t", read_queues=2, write_queues=2)
        link = link_to("127.0.0.1:1", where)
        replicas = Replicas(primary)
        feed = replicas.connect("", link.role.replica, "r", 0, 0, None)
        blocks = [*iter(feed.next, None)]
        first = decode_block(blocks[0])
        links.make_replica(Layout(where), link.role, first.files.pop("pyrocket/store.json"))
        link._open()
        link._client = SimpleNamespace(
            call=lambda name, **given: replicas.acknowledge(**given), close=lambda: None
        )
        for block in blocks[1:]:
            link._take(decode_block(block))
        number = 0
        while number < count:
            primary.append(message(b"%d" % number * 50))
            for block in iter(feed.next, None):
                for _ in range(10):
                    number += 1
                    take_changed(link, block, rng)
                    assert log_bytes(path).startswith(log_bytes(where))
                link._take(decode_block(block))
            assert log_bytes(where) == log_bytes(path)
        link.stop()


def take_changed(link, block, rng):
    """Let the link use a block with some changed bytes; it must fail, or have no effect."""
    data = bytearray(block)
    for _ in range(rng.choice((1, 1, 3))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
    if cut == block:
        return
    with pytest.raises(PyrocketError) as caught:
        link._take(decode_block(cut))
    assert caught.value.code == "REPLICA_BLOCK"


def test_a_block_at_another_place_is_refused(path, where):
    with Store.open(path, create=True, config=SMALL) as primary, served(primary) as address:
        primary.topics.create("t", read_queues=2, write_queues=2)
        primary.append(message(b"x"))
        with linked(address, where):
            wait_until_level(path, where)
        link = link_to(address, where)
        link._open()
        block = feed_block(primary, published(path) - 8)
        assert block[:4] == crc32(block[4:]).to_bytes(4, "big")
        assert code_of(lambda: link._take(decode_block(block))) == "REPLICA_OFFSET"
        link._thread.start()
        link.stop()


def test_the_log_is_sent_after_a_failed_fsync_too(primary, path):
    """Before the disk is replaced, a replica gets everything that can still be read."""
    fill_files(primary)
    page = words(path)
    page[FAILED] = 1
    for _ in range(2):
        feed = Replicas(primary).connect("", "id", "name", 0, 0, None)
        blocks = map(decode_block, iter(feed.next, None))
        assert b"".join(block.data for block in blocks) == log_bytes(path)
    page[FAILED] = 0
    page.close()


def feed_block(primary, start):
    feed = ReplicaFeed(primary, SimpleNamespace(end=0, connected=True), start)
    feed.next()
    return feed.next()
