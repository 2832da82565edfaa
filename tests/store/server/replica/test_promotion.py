"""A promoted replica is a primary with all that it had; the earlier primary becomes its replica."""

import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from pyrocket import LocalTransactionState, Message, Store
from pyrocket.client import ConsumeFrom, ConsumeResult, PushConsumer
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower
from pyrocket.metadata.role import Role, RoleFile
from pyrocket.server.nameserver.registration import RegisteredTopics
from pyrocket.server.replica import promotion
from pyrocket.server.replica.promotion import promote
from pyrocket.tools.verify.verify import verify
from store.server.replica.test_replication import (
    code_of,
    fill_files,
    link_to,
    linked,
    produce,
    wait_until_level,
)
from support.broker import served
from support.name_server import wait_until
from support.pops import bodies as popped_bodies
from support.pops import handles, popped, sent
from support.replicas import (
    MIDDLE,
    assert_alike,
    log_bytes,
    opened,
    pass_files,
    pass_on,
    published,
    replica_of,
)
from support.sinks import numbered as numbered_batch
from support.sinks import publish
from support.stores import batch, bodies, message, numbered, reboot


def flat(store, topic="t"):
    return [body for queue in bodies(store, topic).values() for body in queue]


def test_a_promoted_replica_has_everything_and_is_written_to(primary, path, where):
    with served(primary) as address, linked(address, where):
        produce(primary, 0.5)
        primary.groups.create("g")
        primary.groups.commit("g", "t", {0: 3})
        wait_until_level(path, where)
        expected, epoch = bodies(primary), primary.history.epoch
    assert promote(where).term == 1
    with Store.open(where) as store:
        assert RegisteredTopics(store, "c", "b.example:1").current().term == 1
        for queue, known in expected.items():
            assert bodies(store)[queue][: len(known)] == known
        assert store.groups.committed("g", "t")[0] == 3
        assert store.history.epoch > epoch
        store.append(message(b"more"))
    assert verify(where).ok


def test_offsets_of_a_primary_that_went_on_alone_are_valid_up_to_the_promoted_end(
    primary, path, where
):
    """The replica has not received the epochs that the primary has started since."""
    primary.append_batch(batch(numbered(4), 0), topic="t")
    with served(primary) as address, linked(address, where):
        wait_until_level(path, where)
    for _ in range(3):
        alone = Store.open(path)
        alone.append_batch(batch(numbered(4), 0), topic="t")
        alone.close(clean=False)
        reboot(path)
    with Store.open(path) as alone:
        epoch = alone.history.epoch
    assert epoch == 3
    promote(where)
    with Store.open(where) as store:
        assert [store.history.cut_since(one, "t", 0) for one in range(epoch + 1)] == [4] * 4
        assert store.history.cut_since(epoch, "t", 1) == 0, "a queue without messages"


def test_a_consumer_that_has_read_more_than_the_replica_skips_nothing(primary, path, where):
    old, new = ([b"%s %d" % (word, number) for number in range(9)] for word in (b"old", b"new"))
    seen = list[bytes]()

    def listen(messages):
        seen.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    with ExitStack() as stack:
        with served(primary) as address, linked(address, where):
            wait_until_level(path, where)
            given = {"endpoint": address, "subscriptions": {"t": "*"}, "listener": listen}
            stack.enter_context(PushConsumer("g", **given, consume_from=ConsumeFrom.FIRST))
            port = int(address.rpartition(":")[2])
        alone = Store.open(path)
        alone.append_batch(batch(old, 0), topic="t")
        with served(alone, port=port):
            wait_until(lambda: {*old} <= {*seen}, seconds=60)
        promote(where)
        promoted = Store.open(where)
        promoted.append_batch(batch([b"%d" % number for number in range(5)] + new, 0), topic="t")
        with served(promoted, port=port):
            wait_until(lambda: {*new} <= {*seen}, seconds=60)
    assert {b"%d" % number for number in range(5)} <= {*seen}


def test_pending_messages_are_delivered_once_after_a_promotion(primary, path, where):
    with served(primary) as address, linked(address, where):
        early, late = primary.now() + 300, primary.now() + 6_000
        for due in (early, late):
            body = b"early" if due == early else b"late"
            primary.append(Message(topic="t", body=body, queue_id=0, deliver_at_ms=due))
        primary.append(message(b"level", delay_level=2))
        _, status = primary.transactions.send_half("g", message(b"half"))
        assert status
        wait_until(lambda: b"early" in flat(primary))
        wait_until_level(path, where)
        assert b"late" not in flat(primary)
    promote(where)
    with Store.open(where) as store:
        store.run_services()
        (half,) = store.transactions.pending()
        assert half.transaction_id
        wait_until(lambda: {b"late", b"level"} <= {*flat(store)})
        time.sleep(0.5)
        assert sorted(flat(store)) == [b"early", b"late", b"level"]


def test_timers_are_delivered_once_however_often_the_roles_change(primary, path, where):
    dues = [primary.now() + 1_500 * (number + 1) for number in range(5)]
    for due in dues:
        body = b"%d" % due
        primary.append(Message(topic="t", body=body, queue_id=0, deliver_at_ms=due))
    paths, store = [path, where], primary
    for number in range(4):
        with served(store) as address, linked(address, paths[(number + 1) % 2]):
            time.sleep(0.3)
            wait_until_level(paths[number % 2], paths[(number + 1) % 2])
        promote(paths[(number + 1) % 2])
        store = Store.open(paths[(number + 1) % 2])
    with store:
        store.run_services()
        wait_until(lambda: len(flat(store)) >= len(dues))
        time.sleep(0.5)
        assert sorted(flat(store)) == [b"%d" % due for due in dues]


def test_an_earlier_primary_becomes_a_replica_and_its_tail_is_saved(primary, path, where):
    with served(primary) as address, linked(address, where):
        produce(primary, 0.3)
        wait_until_level(path, where)
    kept = published(where)
    with Store.open(path) as ahead:
        ahead.append_batch(batch(numbered(50), 0), topic="t")
        ahead.topics.create("only-here")
        ahead.groups.create("only-here")
        publish(ahead, 0, [b"row"])
        ahead.sink.publish(numbered_batch(0, identity="empty"), [])
        epoch = ahead.history.epoch
        ends = ahead.offsets("t")
    tail = log_bytes(path, kept)
    promote(where)
    with served(Store.open(where)) as address, linked(address, path):
        wait_until_level(where, path)
        assert_alike(where, path)
        (saved,) = Layout(path).own.glob("cut-*")
        assert saved.read_bytes() == tail
        assert RoleFile(Layout(path)).read().term == 1
    names = {file.name for file in Layout(where).sink_markers.glob("*")}
    assert {file.name for file in Layout(path).sink_markers.glob("*")} == names
    for each in (path, where):
        with Store.open(each, read_only=True) as store:
            assert store.history.cut_since(epoch, "t", 0) < ends[0].maximum
            assert "only-here" not in store.groups.all()


def test_an_earlier_primary_with_checksums_follows_one_without(path, where):
    config = replace(MIDDLE, property_crc=True)
    primary = Store.open(path, create=True, config=config)
    primary.topics.create("t", read_queues=2, write_queues=2)
    with served(primary) as address, linked(address, where):
        primary.append_batch(batch(numbered(20), 0), topic="t")
        wait_until_level(path, where)
    with Store.open(path) as ahead:
        ahead.append_batch(batch(numbered(20), 0), topic="t")
    promote(where)
    store = Store.open(where)
    with served(store) as address, linked(address, path):
        store.append_batch(batch(numbered(20), 1), topic="t")
        wait_until_level(where, path)
        assert_alike(where, path)
    assert verify(path).ok
    assert verify(where).ok


def test_both_directions_in_turn(primary, path, where):
    """What is appended in each round by the primary of the moment is there in the end."""
    paths, store, rows = [path, where], primary, []
    for number in range(6):
        ours, theirs = paths[number % 2], paths[(number + 1) % 2]
        with served(store) as address, linked(address, theirs):
            more = numbered(20, 100, 20 * number)
            store.append_batch(batch(more, [row % 2 for row in range(20)]), topic="t")
            rows += more
            wait_until_level(ours, theirs)
            assert_alike(ours, theirs)
        assert promote(theirs).term == number + 1
        store = Store.open(theirs)
    assert sorted(flat(store)) == sorted(rows)
    store.close()
    assert verify(paths[0]).ok


def test_stores_that_are_no_earlier_primary_are_refused(primary, path, where, tmp_path):
    other = tmp_path / "other"
    Store.open(other, create=True).close()
    with served(primary) as address, linked(address, where):
        primary.append(message(b"x"))
        wait_until_level(path, where)
    shutil.copytree(path, tmp_path / "copy")
    with served(Store.open(path)) as address:
        for refused in (other, tmp_path / "copy"):
            before = [*refused.rglob("*")]
            link = link_to(address, refused)
            assert code_of(link.start) == "NOT_A_REPLICA"
            link.stop()
            assert [*refused.rglob("*")] == before
    promote(where)
    with served(Store.open(where)) as address:
        link = link_to(address, other)
        assert code_of(link.start) == "NOT_A_REPLICA"
        link.stop()
    with served(Store.open(path)) as address:  # The one with the older term is not followed.
        link = link_to(address, where)
        assert code_of(link.start) == "NOT_A_REPLICA"
        link.stop()


def test_the_term_of_another_store_is_not_adopted(primary, path, where, tmp_path):
    other, copy = tmp_path / "other", tmp_path / "copy"
    with served(Store.open(other, create=True)) as address, linked(address, copy):
        wait_until(lambda: Layout(copy).state.exists())
    promote(copy)
    with served(primary) as address, linked(address, where):
        primary.append(message(b"x"))
        wait_until_level(path, where)
    with served(Store.open(copy)) as address:
        link = link_to(address, where)
        assert code_of(link.start) == "REPLICA_OTHER_STORE"
        link.stop()
    assert RoleFile(Layout(where)).read().term == 0


def test_only_a_stopped_replica_is_promoted(primary, path, where, tmp_path):
    assert code_of(lambda: promote(path)) == "NOT_A_REPLICA"
    assert code_of(lambda: promote(tmp_path / "nothing")) == "STORE_NOT_FOUND"
    with served(primary) as address, linked(address, where):
        assert code_of(lambda: promote(where)) == "STORE_IN_USE"
    assert promote(where).term == 1
    assert code_of(lambda: promote(where)) == "NOT_A_REPLICA"


def die(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("dies", [False, True])
def test_topics_whose_table_has_not_arrived_are_created(primary, path, where, monkeypatch, dies):
    """Also if the process dies before the promoted store is recovered."""
    with served(primary) as address, linked(address, where):
        wait_until_level(path, where)
        monkeypatch.setattr(Follower, "put", lambda follower, small: None)
        primary.topics.create("new", read_queues=3, write_queues=3)
        primary.append(Message(topic="new", body=b"x", queue_id=2))
        wait_until(lambda: published(where) == published(path))
    monkeypatch.undo()
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        if dies:
            patch.setattr(promotion.Store, "open", die)
        promote(where)
    with Store.open(where) as store:
        assert store.topics.get("new").read_queues == 3
        assert flat(store, "new") == [b"x"]


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_a_part_of_an_exactly_once_batch_is_no_batch(primary, path, where, tmp_path, part):
    """Neither after a promotion nor in a snapshot of the replica; its rows are published again."""
    follower, rows = replica_of(path, where), numbered(500, 200)
    primary.append(message(b"before"))
    start = published(path)
    pass_files(path, follower)
    publish(primary, 0, rows)
    primary.close()
    pass_on(path, follower, until=int(start + part * (published(path) - start)))
    with Store.open(where, read_only=True) as store:
        store.snapshot(tmp_path / "snapshot")
    follower.close(clean=True)
    promote(where)
    for promoted in (where, tmp_path / "snapshot"):
        with Store.open(promoted) as store:
            assert flat(store) == [b"before"]
            publish(store, 0, rows)
            assert sorted(flat(store)) == [*rows, b"before"]
        assert verify(promoted).ok


def test_an_earlier_primary_that_another_process_uses_is_tried_again(primary, path, where):
    with served(primary) as address, linked(address, where):
        primary.append(message(b"x"))
        wait_until_level(path, where)
    promote(where)
    with served(Store.open(where)) as address:
        link = link_to(address, path)
        with Store.open(path):
            assert code_of(link.start) == "STORE_IN_USE"
        link.start()
        link.stop()


def test_a_replica_of_two_follows_the_promoted_one(primary, path, where, tmp_path):
    third = tmp_path / "third"
    with (
        served(primary) as address,
        linked(address, where),
        linked(address, third, name="third"),
    ):
        primary.append(message(b"x"))
        wait_until_level(path, where)
        wait_until_level(path, third)
    promote(where)
    with (
        served(Store.open(where)) as address,
        linked(address, third, name="third"),
        linked(address, path, name="first"),
    ):
        wait_until_level(where, third)
        wait_until_level(where, path)
    with served(Store.open(where)) as address, linked(address, third):
        pass
    assert {RoleFile(Layout(each)).read().term for each in (path, where, third)} == {1}


RECOVERED_S = 3.2
"""A recovery begins at a file with messages that were stored this long before the checkpoint."""


def follow(path, follower, *, files=True):
    """Send a replica the log, and small files and cursors from its end on."""
    follower.begin(published(path))
    pass_on(path, follower)
    if files:
        pass_files(path, follower)
    follower.flush()


def deliver(store, *sent):
    """Append messages, and wait until all are delivered."""
    for one in sent:
        store.append(one)
    bodies = {one.body for one in sent}
    wait_until(lambda: bodies <= {*flat(store)}, seconds=30)


def delivered(where, seconds, *expected):
    """Return what the services of a promoted store deliver, apart from the rows of files."""
    promote(where)
    with Store.open(where) as store:
        store.run_services()
        wait_until(lambda: {*expected} <= {*flat(store)}, seconds=30)
        time.sleep(seconds)
        return sorted(body for body in flat(store) if body[:1].isalpha())


def test_timers_that_are_not_delivered_in_the_order_of_their_offsets_are_delivered_once(
    primary, path, where
):
    with served(primary):
        now = primary.now()
        timers = [(b"t%d" % number, now + 900 - 200 * number) for number in range(4)]
        deliver(primary, *(Message(topic="t", body=b, deliver_at_ms=due) for b, due in timers))
        follower = replica_of(path, where)
        for _ in range(2):
            follow(path, follower)
            time.sleep(RECOVERED_S)
            fill_files(primary)
        follow(path, follower)
        follower.close(clean=False)
    assert delivered(where, 1) == [b"t0", b"t1", b"t2", b"t3"]


def test_a_replica_that_was_catching_up_delivers_nothing_again(primary, path, where):
    """Its cursors are older than its log."""
    follower = replica_of(path, where)
    follow(path, follower)
    with served(primary):
        levels = [message(b"l%d" % number, delay_level=1) for number in range(3)]
        timer = Message(topic="t", body=b"t", deliver_at_ms=primary.now() + 300)
        deliver(primary, *levels, timer)
        for _ in range(2):
            follow(path, follower, files=False)
            time.sleep(RECOVERED_S)
            fill_files(primary)
        follow(path, follower, files=False)
    follower.close(clean=True)
    assert delivered(where, 1) == [b"l0", b"l1", b"l2", b"t"]


@pytest.mark.parametrize("is_level", [False, True])
def test_what_an_earlier_primary_delivered_alone_does_not_hide_later_messages(
    primary, path, where, is_level
):
    """Its cursors are after those of the promoted replica, whose messages have the same offsets."""
    follower = replica_of(path, where)
    follow(path, follower)
    follower.close(clean=True)
    with served(primary):
        deliver(primary, *(message(b"cut %d" % number, delay_level=1) for number in range(3)))
        for _ in range(3):
            half, _ = primary.transactions.send_half("g", message(b"half"))
            primary.transactions.end(half.half, LocalTransactionState.ROLLBACK)
    promote(where)
    promoted = Store.open(where)
    later = [b"later %d" % number for number in range(3)]
    for body in later:
        promoted.append(message(body, delay_level=2))
        promoted.transactions.send_half("g", message(b"half"))
    RoleFile(Layout(path)).write(Role("promoted:1", term=1))
    follower = opened(path)
    follower.cut_what(lambda mark: promoted.history.holds(mark) is False)
    follower = opened(path)
    follow(where, follower, files=is_level)
    follower.close(clean=False)
    promoted.close()
    assert delivered(path, 0.5, *later) == later
    with Store.open(path) as store:
        assert len(store.transactions.pending()) == 3


def test_a_group_of_pops_keeps_its_acks_although_its_table_of_offsets_is_older(
    primary, path, where
):
    """The acks are in the log. The older offset in the table is not that of a reset."""
    follower, pop = replica_of(path, where), popped(primary)
    sent(primary, 5)
    first, *others = handles(pop.receive("g", "t", max_messages=4))
    pop.ack("g", "t", others)
    pop.snapshot()
    follow(path, follower)
    pop.ack("g", "t", [first])
    pop.snapshot()
    follow(path, follower, files=False)
    follower.close(clean=True)
    promote(where)
    with Store.open(where) as store:
        assert store.groups.committed("g", "t")[0] == 4
        pop = popped(store)
        pop.sweep()
        assert popped_bodies(pop.receive("g", "t")) == [b"4"]
