"""Where a group starts in queues for which it has committed no offset."""

import threading
from dataclasses import replace

import pytest
from pyrocket import Message, Store
from pyrocket.broker.broker import running_state
from pyrocket.broker.consumers.consumers import Consumers
from pyrocket.disk import io
from pyrocket.errors import TopicNameError
from pyrocket.values.consuming import (
    ConsumerData,
    GroupStart,
    Heartbeat,
    MessageModel,
    Subscription,
)
from pyrocket.values.message import MessageQueue
from support.pops import at_once
from support.stores import BY_HAND, SMALL, FakeClock

END, FIRST = GroupStart(), GroupStart(0, 0)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(tmp_path / "store", create=True, config=BY_HAND, clock=clock) as opened:
        opened.topics.create("orders", read_queues=2, write_queues=2)
        yield opened


@pytest.fixture
def consumers(store):
    return Consumers(store, at_once(store))


def beat(client="c1", group="billing", **starts):
    subscriptions = {topic: Subscription() for topic in starts}
    data = ConsumerData(group, MessageModel.CLUSTERING, "LAST", subscriptions, starts)
    return Heartbeat(client, client, [data])


def send(store, *bodies, queue_id=0, topic="orders"):
    for body in bodies:
        store.append(Message(topic=topic, body=body, queue_id=queue_id))


def queue_of(store, queue_id=0, topic="orders"):
    return MessageQueue(topic, store.broker_name, queue_id)


def start_of(consumers, store, queue_id=0, topic="orders", group="billing", **given):
    return consumers.start_offset(group, queue_of(store, queue_id, topic), **given).offset


def starts_of(consumers, group="billing"):
    return consumers.group_starts(group).starts


class TestFirstContact:
    def test_an_end_from_before_a_truncation_of_the_log_is_the_current_end(self, consumers, store):
        send(store, b"before")
        consumers.heartbeat(beat(orders=GroupStart(log_offset=10**9, time_ms=1)))
        send(store, b"after")
        assert start_of(consumers, store) == 1

    def test_the_end_of_the_log_and_the_time_of_the_first_heartbeat_are_stored(
        self, consumers, store, clock
    ):
        send(store, b"0")
        now, end = clock.now, store.position().published
        consumers.heartbeat(beat(orders=END))
        send(store, b"1")
        clock.now += 1000
        consumers.heartbeat(beat(orders=END))
        consumers.heartbeat(beat("c2", orders=FIRST))
        assert starts_of(consumers) == {"orders": GroupStart(end, now)}
        assert consumers.group_starts("billing").end == GroupStart(
            store.position().published, now + 1000
        )

    def test_other_starts_are_stored_as_they_are_given(self, consumers, store):
        end, future = store.position().published, GroupStart(time_ms=1 << 50)
        given = {"orders": FIRST, "others": GroupStart(time_ms=7), "later": future}
        consumers.heartbeat(beat(**given))
        by_time = GroupStart(time_ms=7, end_offset=end)
        assert starts_of(consumers) == {"orders": FIRST, "others": by_time, "later": future}

    def test_a_start_by_time_keeps_the_end_that_the_client_was_given(self, consumers, store):
        first = store.position().published
        send(store, b"0")
        given = {"orders": GroupStart(time_ms=1 << 50, end_offset=first)}
        consumers.heartbeat(beat(**given, later=GroupStart(time_ms=7, end_offset=first)))
        later = GroupStart(time_ms=7, end_offset=first)
        assert starts_of(consumers) == {**given, "later": later}
        assert start_of(consumers, store) == 0

    def test_a_start_by_time_after_the_end_of_a_truncated_log_is_lowered(self, consumers, store):
        consumers.heartbeat(beat(orders=GroupStart(time_ms=7, end_offset=1 << 40)))
        assert starts_of(consumers)["orders"].end_offset == store.position().published

    def test_a_topic_that_does_not_exist_yet_has_a_start(self, consumers, store):
        consumers.heartbeat(beat(later=END))
        store.topics.create("later", read_queues=1, write_queues=1)
        send(store, b"0", topic="later")
        consumers.heartbeat(beat(later=END))
        assert start_of(consumers, store, topic="later") == 0

    def test_retry_topics_have_no_start(self, consumers, store):
        consumers.heartbeat(beat(**{"%RETRY%billing": END, "orders": END}))
        assert [*starts_of(consumers)] == ["orders"]
        assert start_of(consumers, store, topic="%RETRY%billing") == 0

    def test_the_start_is_durable_before_the_reply(self, consumers, store, monkeypatch):
        send(store, b"0")
        synced = []
        monkeypatch.setattr(io, "sync", lambda descriptor: synced.append("file"))
        monkeypatch.setattr(io, "sync_directory", lambda path: synced.append(path.name))
        consumers.heartbeat(beat(orders=END))
        assert "pyrocket" in synced[synced.index("file") :]

    def test_the_log_before_a_start_is_durable(self, consumers, store):
        """A start after the end to which a power loss cuts the log would hide later messages."""
        send(store, b"0")
        assert running_state(store.path).flushed < store.position().published
        consumers.heartbeat(beat(orders=END))
        assert running_state(store.path).flushed == starts_of(consumers)["orders"].log_offset
        send(store, b"1")
        assert consumers.group_starts("billing").end.log_offset == running_state(store.path).flushed

    def test_all_new_topics_of_a_group_are_written_at_once(self, consumers, monkeypatch):
        consumers.heartbeat(beat())
        written, write = [], io.write_at
        monkeypatch.setattr(io, "write_at", lambda *given: (written.append(given), write(*given)))
        consumers.heartbeat(beat(**{f"topic{n}": FIRST for n in range(5)}))
        assert len(written) == 1

    def test_members_that_join_at_once_get_one_start(self, consumers, store):
        seen, ready = set(), threading.Barrier(4)

        def join(number):
            ready.wait()
            send(store, b"%d" % number)
            consumers.heartbeat(beat(f"c{number}", orders=END))
            seen.add(starts_of(consumers)["orders"])

        threads = [threading.Thread(target=join, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 1

    def test_a_start_in_an_illegal_topic_is_an_error(self, consumers):
        with pytest.raises(TopicNameError, match="a b"):
            consumers.heartbeat(beat(**{"a b": END}))
        assert starts_of(consumers) == {}


class TestLife:
    def test_starts_outlive_a_restart(self, consumers, store):
        send(store, b"0")
        consumers.heartbeat(beat(orders=END))
        kept = starts_of(consumers)
        send(store, b"1")
        restarted = Consumers(store, at_once(store))
        restarted.heartbeat(beat(orders=END))
        assert starts_of(restarted) == kept
        assert start_of(restarted, store) == 1

    def test_starts_outlive_their_topic(self, consumers, store):
        send(store, b"0")
        consumers.heartbeat(beat(orders=END))
        store.topics.delete("orders")
        store.topics.create("orders", read_queues=1, write_queues=1)
        send(store, b"1", b"2")
        consumers.heartbeat(beat(orders=END))
        minimum = store.offsets("orders")[0].minimum
        assert start_of(consumers, store) == minimum
        assert [one.body for one in store.read("orders", 0, minimum)] == [b"1", b"2"]

    def test_starts_are_deleted_with_their_group(self, consumers, store):
        for group in ("billing", "audit"):
            consumers.heartbeat(beat(group=group, orders=FIRST))
        store.groups.delete("billing")
        assert starts_of(consumers) == {}
        assert starts_of(consumers, "audit") == {"orders": FIRST}
        send(store, b"0")
        consumers.heartbeat(beat(orders=END))
        assert start_of(consumers, store) == 1

    def test_a_group_of_an_older_release_starts_the_other_queues_at_their_minimum(
        self, consumers, store
    ):
        store.topics.create("others", read_queues=1, write_queues=1)
        for topic in ("orders", "others"):
            send(store, b"0", topic=topic)
        send(store, b"0", queue_id=1)
        store.groups.commit("billing", "orders", {0: 1})
        consumers.heartbeat(beat(orders=END, others=END))
        assert [start_of(consumers, store, queue_id) for queue_id in (0, 1)] == [1, 0]
        assert start_of(consumers, store, topic="others") == 1


class TestLag:
    def test_a_group_that_has_committed_nothing_shows_the_messages_since_its_start(
        self, consumers, store, clock
    ):
        send(store, b"0", b"1")
        consumers.heartbeat(beat(orders=END, later=END))
        assert [one.lag for one in store.groups.lag("billing")] == [0, 0]
        send(store, b"2", b"3", b"4")
        send(store, b"0", queue_id=1)
        clock.now += 1000
        found = store.groups.lag("billing")
        assert [(one.start, one.lag, one.delay_ms) for one in found] == [(2, 3, 1000), (0, 1, 1000)]
        (lags,) = [one for group, topic, one in consumers.lags() if topic == "orders"]
        assert [one.ready for one in lags] == [3, 1]
        with Store.open(store.path, read_only=True, clock=clock) as reader:
            assert reader.groups.lag() == store.groups.lag()
            (part,) = reader.views.plan("groups", group="billing")
            (batch,) = reader.views.scan(part, ["committedOffset", "lag"])
            shown = batch.to_pylist()
        assert [(one["committedOffset"], one["lag"]) for one in shown] == [(None, 3), (None, 1)]

    def test_the_lag_of_the_other_queues_begins_where_the_group_starts(self, consumers, store):
        send(store, b"0", b"1")
        send(store, b"0", queue_id=1)
        consumers.heartbeat(beat(orders=END))
        store.groups.commit("billing", "orders", {0: 1})
        assert [(one.committed, one.lag) for one in store.groups.lag()] == [(1, 1), (None, 0)]

    def test_a_topic_that_is_created_again_is_counted_from_its_first_message(
        self, consumers, store
    ):
        consumers.heartbeat(beat(orders=END))
        store.topics.delete("orders")
        assert store.groups.lag("billing") == []
        store.topics.create("orders", read_queues=1, write_queues=1)
        send(store, b"0", b"1")
        assert [one.lag for one in store.groups.lag("billing")] == [2]


class TestStartOffset:
    def test_messages_after_the_first_contact_are_consumed(self, consumers, store):
        send(store, b"0", b"1")
        send(store, b"0", queue_id=1)
        consumers.heartbeat(beat(orders=END))
        assert [start_of(consumers, store, queue_id) for queue_id in (0, 1)] == [2, 1]
        send(store, *[b"%d" % n for n in range(40)])
        assert [start_of(consumers, store, queue_id) for queue_id in (0, 1)] == [2, 1]

    def test_a_start_by_time_is_the_first_message_stored_at_or_after_it(
        self, consumers, store, clock
    ):
        times = []
        for number in range(5):
            times.append(clock.now)
            send(store, b"%d" % number)
            clock.now += 1000
        consumers.heartbeat(beat(orders=GroupStart(time_ms=times[3])))
        assert start_of(consumers, store) == 3
        for at, offset in ((times[1] + 1, 2), (0, 0), (clock.now, 5)):
            assert start_of(consumers, store, start=GroupStart(time_ms=at)) == offset

    @pytest.mark.parametrize("start", [FIRST, GroupStart(1, 1), GroupStart(time_ms=0)])
    def test_deleted_messages_are_skipped(self, tmp_path, clock, start):
        config = replace(SMALL, broker_name="b")
        with Store.open(tmp_path / "s", create=True, config=config, clock=clock) as store:
            store.topics.create("orders", read_queues=1, write_queues=1)
            send(store, *[b"." * 900] * 30)
            store.clean(total_bytes=config.log_file_bytes * 2)
            minimum = store.min_offset("orders", 0)
            assert minimum > 0
            consumers = Consumers(store, at_once(store))
            consumers.heartbeat(beat(orders=start))
            assert start_of(consumers, store) == minimum

    def test_the_search_reads_few_entries_of_a_long_queue(self, consumers, store, monkeypatch):
        store.topics.create("long", read_queues=1, write_queues=1)
        for _ in range(100):
            send(store, b"0", topic="long")
        consumers.heartbeat(beat(long=END))
        for _ in range(100):
            send(store, b"0", topic="long")
        start_of(consumers, store, topic="long")
        reads, read = [], io.os.pread
        monkeypatch.setattr(io.os, "pread", lambda *given: (reads.append(1), read(*given))[1])
        assert start_of(consumers, store, topic="long") == 100
        assert len(reads) < 20
