"""The broker's part of consumer groups that rebalance: members, locks, pulls, commits, retries."""

import os
import threading
from concurrent.futures import Future
from dataclasses import replace
from unittest.mock import DEFAULT, Mock

import pytest
from pyrocket import Message, Store
from pyrocket.broker.consumers import queue_locks
from pyrocket.broker.consumers.consumers import Consumers
from pyrocket.disk.layout import Layout
from pyrocket.errors import (
    GroupNotFoundError,
    InvalidInputError,
    MessageNotFoundError,
    QueueNotFoundError,
    StorePermissionError,
    StoreUnavailableError,
)
from pyrocket.formats.record_decode import messages_of
from pyrocket.metadata.epochs import Epochs
from pyrocket.values.admin import Backoff
from pyrocket.values.consuming import (
    ConsumerData,
    Heartbeat,
    MessageModel,
    Pull,
    PullStatus,
    Subscription,
)
from pyrocket.values.message import MessageQueue, QueueOffsets
from support.pops import at_once
from support.stores import SMALL, FakeClock

MINUTE_MS = 60_000
EVERYTHING = Subscription()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(
        tmp_path / "store", create=True, config=replace(SMALL, log_file_bytes=4 << 20), clock=clock
    ) as opened:
        opened.topics.create("orders", read_queues=2, write_queues=2)
        yield opened


@pytest.fixture
def consumers(store, clock):
    return Consumers(store, at_once(store), ages=clock)


def queue_of(store, queue_id=0, topic="orders"):
    return MessageQueue(topic, store.broker_name, queue_id)


def beat(client_id="c1", incarnation="i1", group="billing", topics=("orders",), expression="*"):
    subscriptions = {topic: Subscription(expression) for topic in topics}
    data = ConsumerData(group, MessageModel.CLUSTERING, "last", subscriptions)
    return Heartbeat(client_id, incarnation, [data])


def send(store, *bodies, queue_id=0, **more):
    for body in bodies:
        store.append(Message(topic="orders", body=body, queue_id=queue_id, **more))


def pull(store, offset=0, queue_id=0, subscription=EVERYTHING, most=32):
    return Pull(queue_of(store, queue_id), "billing", offset, subscription, most)


def members(consumers, store):
    return consumers.members.ids("billing", consumers.ages())


class TestMembers:
    def test_a_heartbeat_creates_the_group_and_its_retry_topic(self, consumers, store):
        consumers.heartbeat(beat())
        assert "billing" in store.groups.all()
        assert store.topics.get("%RETRY%billing").read_queues == 1
        assert members(consumers, store) == ["c1"]

    def test_a_missing_group_is_an_error_if_groups_are_not_created(self, store):
        consumers = Consumers(store, at_once(store), creates_groups=False)
        with pytest.raises(GroupNotFoundError, match="billing"):
            consumers.heartbeat(beat())

    def test_a_member_leaves_or_expires_two_minutes_after_its_last_heartbeat(
        self, consumers, store, clock
    ):
        for name in ("c1", "c2", "c3"):
            consumers.heartbeat(beat(name, name))
        consumers.members.unregister("c3", "billing")
        clock.now += MINUTE_MS
        consumers.heartbeat(beat("c2", "c2"))
        assert members(consumers, store) == ["c1", "c2"]
        clock.now += MINUTE_MS
        assert members(consumers, store) == ["c2"]

    def test_only_changes_of_the_group_are_reported(self, consumers, clock):
        changed = []
        consumers.members.watch(changed.append)
        consumers.heartbeat(beat())
        consumers.heartbeat(beat())
        assert changed == ["billing"]
        consumers.heartbeat(beat(expression="a"))
        assert changed == ["billing"] * 2
        clock.now += 2 * MINUTE_MS
        consumers.heartbeat(beat("c2", "i2"))
        assert changed == ["billing"] * 3
        consumers.members.unregister("c2", "billing")
        consumers.members.unregister("c2", "billing")
        assert changed == ["billing"] * 4

    def test_the_id_of_a_live_client_cannot_be_used_by_another_one(self, consumers, store, clock):
        consumers.heartbeat(beat())
        with pytest.raises(InvalidInputError, match="c1") as caught:
            consumers.heartbeat(beat(incarnation="i2"))
        assert caught.value.code == "DUPLICATE_CLIENT"
        audit, changed = beat(incarnation="i2", group="audit"), []
        consumers.members.watch(changed.append)
        with pytest.raises(InvalidInputError, match="DUPLICATE_CLIENT"):
            consumers.heartbeat(replace(audit, consumers=[*audit.consumers, *beat().consumers]))
        assert changed == ["audit"], "it has joined this group"
        clock.now += 2 * MINUTE_MS
        consumers.heartbeat(beat(incarnation="i2"))
        assert members(consumers, store) == ["c1"]

    def test_a_heartbeat_tells_a_member_of_all_its_groups_from_a_new_one(self, consumers, clock):
        both = replace(beat(), consumers=[*beat().consumers, *beat(group="audit").consumers])
        assert consumers.heartbeat(beat()) is False
        assert consumers.heartbeat(beat()) is True
        assert consumers.heartbeat(both) is False
        assert consumers.heartbeat(both) is True
        clock.now += 2 * MINUTE_MS
        assert consumers.heartbeat(both) is False
        consumers.members.unregister("c1", "audit")
        assert consumers.heartbeat(both) is False
        assert consumers.heartbeat(beat()) is True

    def test_members_and_locks_end_on_time_although_the_clock_is_set_back(self, store, clock):
        ages = FakeClock(0)
        consumers = Consumers(store, at_once(store), ages=ages)
        consumers.heartbeat(beat())
        consumers.lock("billing", "c1", [queue_of(store)])
        clock.now -= 60 * MINUTE_MS
        ages.now += MINUTE_MS
        assert consumers.lock("billing", "c2", [queue_of(store)])
        assert members(consumers, store) == ["c1"]
        ages.now += MINUTE_MS
        assert members(consumers, store) == []

    def test_the_last_heartbeat_decides_the_subscriptions_and_others_differ(self, consumers, store):
        consumers.heartbeat(beat("c1", "i1", expression="a"))
        consumers.heartbeat(beat("c2", "i2", expression="b"))
        now = consumers.ages()
        assert consumers.members.subscriptions("billing", now)["orders"].expression == "b"
        assert consumers.members.differing("billing", now) == ["c1"]
        consumers.heartbeat(beat("c1", "i1", expression="b"))
        assert consumers.members.differing("billing", now) == []


class TestLocks:
    @pytest.fixture(autouse=True)
    def groups(self, store):
        for group in ("billing", "audit"):
            store.groups.create(group)

    def test_a_queue_is_locked_for_one_client_for_a_minute_after_each_renewal(
        self, consumers, store, clock
    ):
        queues = [queue_of(store, 0), queue_of(store, 1)]
        assert [*consumers.lock("billing", "c1", queues)] == queues
        assert not consumers.lock("billing", "c2", queues)
        clock.now += MINUTE_MS - 1
        assert [*consumers.lock("billing", "c1", queues[:1])] == queues[:1]
        clock.now += 1
        assert [*consumers.lock("billing", "c2", queues)] == queues[1:]

    def test_a_lock_is_renewed_only_if_the_client_held_it_until_now(self, consumers, store, clock):
        queues = [queue_of(store, 0), queue_of(store, 1)]
        assert consumers.lock("billing", "c1", queues) == dict.fromkeys(queues, False)
        clock.now += MINUTE_MS - 1
        assert consumers.lock("billing", "c1", queues[:1]) == {queues[0]: True}
        clock.now += 1
        assert consumers.lock("billing", "c1", queues) == {queues[0]: True, queues[1]: False}

    def test_a_lock_that_another_client_had_in_between_is_not_renewed(self, consumers, store):
        queues = [queue_of(store)]
        consumers.lock("billing", "c1", queues)
        consumers.unlock("billing", "c1", queues)
        consumers.lock("billing", "c2", queues)
        consumers.unlock("billing", "c2", queues)
        assert consumers.lock("billing", "c1", queues) == {queues[0]: False}

    def test_only_the_owner_unlocks_a_queue(self, consumers, store):
        queues = [queue_of(store)]
        consumers.lock("billing", "c1", queues)
        consumers.unlock("billing", "c2", queues)
        assert not consumers.lock("billing", "c2", queues)
        consumers.unlock("billing", "c1", queues)
        assert consumers.lock("billing", "c2", queues)

    def test_locks_outlive_a_restart_of_the_broker_by_a_minute(self, consumers, store, clock):
        queues = [queue_of(store)]
        consumers.lock("billing", "c1", queues)
        clock.now += MINUTE_MS // 2
        restarted = Consumers(store, at_once(store), ages=clock)
        clock.now += MINUTE_MS - 1
        assert not restarted.lock("billing", "c2", queues)
        clock.now += 1
        assert restarted.lock("billing", "c2", queues)

    def test_the_owner_renews_its_locks_after_a_restart_of_the_broker(self, consumers, store):
        queues = [queue_of(store)]
        consumers.lock("billing", "c1", queues)
        restarted = Consumers(store, at_once(store))
        assert restarted.lock("billing", "c1", queues) == {queues[0]: True}

    def test_a_lock_that_could_not_be_saved_is_saved_with_its_renewal(
        self, consumers, store, monkeypatch
    ):
        queues = [queue_of(store)]
        save = Mock(wraps=queue_locks.replace_file, side_effect=[OSError("No space"), DEFAULT])
        monkeypatch.setattr(queue_locks, "replace_file", save)
        with pytest.raises(OSError, match="No space"):
            consumers.lock("billing", "c1", queues)
        consumers.lock("billing", "c1", queues)
        assert not Consumers(store, at_once(store)).lock("billing", "c2", queues)

    def test_only_queues_that_exist_are_locked(self, consumers, store):
        queues = [queue_of(store, number) for number in range(-1, 500)]
        missing = [queue_of(store, 0, f"missing-{number}") for number in range(500)]
        assert [*consumers.lock("billing", "c1", [*missing, *queues])] == queues[1:3]
        assert (store.path / "pyrocket" / "locks.json").stat().st_size < 200

    def test_nothing_is_written_for_a_client_id_that_is_too_long_or_an_unknown_group(
        self, consumers, store
    ):
        for refused in ("", "x" * 256, "ü" * 128):
            with pytest.raises(InvalidInputError, match="CLIENT_ID_INVALID"):
                consumers.lock("billing", refused, [queue_of(store)])
            with pytest.raises(InvalidInputError, match="CLIENT_ID_INVALID"):
                consumers.heartbeat(beat(refused))
        with pytest.raises(GroupNotFoundError, match="unknown"):
            consumers.lock("unknown", "c1", [queue_of(store)])
        assert not (store.path / "pyrocket" / "locks.json").exists()

    def test_a_file_of_locks_that_would_be_too_long_is_not_written(
        self, consumers, store, monkeypatch, caplog
    ):
        consumers.lock("billing", "c1", [queue_of(store, 0)])
        file = store.path / "pyrocket" / "locks.json"
        monkeypatch.setattr(queue_locks, "_MAX_BYTES", file.stat().st_size)
        before = file.read_bytes()
        assert consumers.lock("billing", "c1", [queue_of(store, 1)])
        assert file.read_bytes() == before
        assert "is not written" in caplog.text

    def test_a_corrupt_file_of_locks_is_logged_and_ignored(self, consumers, store, caplog):
        queues = [queue_of(store)]
        consumers.lock("billing", "c1", queues)
        file = store.path / "pyrocket" / "locks.json"
        file.write_bytes(file.read_bytes()[:-5])
        assert Consumers(store, at_once(store)).lock("billing", "c2", queues)
        assert "locks.json cannot be parsed" in caplog.text


class TestPulls:
    @pytest.fixture(autouse=True)
    def _joined(self, consumers):
        consumers.heartbeat(beat())

    def test_messages_are_returned_from_an_offset_on_with_the_range(self, consumers, store):
        send(store, b"0", b"1", b"2")
        found = consumers.pulls.pull(pull(store, 1, most=1))
        assert [message.body for message in messages_of(found.records)] == [b"1"]
        assert (found.status, found.next_offset) == (PullStatus.FOUND, 2)
        assert found.available == QueueOffsets(0, 3)

    @pytest.mark.parametrize(("offset", "nearest"), [(-1, 0), (9, 1)])
    def test_an_offset_outside_the_range_is_illegal(self, consumers, store, offset, nearest):
        send(store, b"0")
        found = consumers.pulls.pull(pull(store, offset))
        assert (found.status, found.next_offset) == (PullStatus.OFFSET_ILLEGAL, nearest)

    @pytest.mark.parametrize(("offset", "nearest"), [(2, None), (3, 2)])
    def test_an_offset_from_before_a_truncation_is_illegal(self, consumers, store, offset, nearest):
        send(store, b"0", b"1", b"2", b"3")
        epoch = consumers.pulls.pull(pull(store)).epoch
        Epochs(Layout(store.path)).begin({("orders", 0): 2})
        found = consumers.pulls.pull(replace(pull(store, offset), epoch=epoch))
        assert found.epoch == consumers.start_offset("billing", queue_of(store)).epoch == epoch + 1
        illegal = found.status is PullStatus.OFFSET_ILLEGAL
        assert (found.next_offset if illegal else None) == nearest
        assert consumers.pulls.pull(replace(pull(store, 3), epoch=found.epoch)).records

    @pytest.mark.parametrize(
        "subscription", [Subscription("a || b"), Subscription("TAGS = 'a'", "SQL92")]
    )
    def test_only_selected_messages_are_returned(self, consumers, store, subscription):
        send(store, b"0", tags="c")
        send(store, b"1", tags="a")
        found = consumers.pulls.pull(pull(store, subscription=subscription))
        assert [message.body for message in messages_of(found.records)] == [b"1"]
        send(store, b"2", b"3", tags="c")
        found = consumers.pulls.pull(pull(store, 2, subscription=subscription))
        assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MSG, 4)

    def test_an_invalid_expression_is_an_error(self, consumers, store):
        with pytest.raises(InvalidInputError):
            consumers.check_filter("orders", Subscription("a >", "SQL92"))

    def test_a_reply_has_a_quarter_of_a_mebibyte_or_one_message(self, consumers, store):
        send(store, *(os.urandom(200_000) for _ in range(3)))
        assert len(consumers.pulls.pull(pull(store)).records) == 2
        send(store, os.urandom(300_000))
        assert len(consumers.pulls.pull(pull(store, 3)).records) == 1

    def test_a_missing_queue_or_group_or_a_disabled_group_is_an_error(self, consumers, store):
        with pytest.raises(QueueNotFoundError):
            consumers.pulls.pull(pull(store, queue_id=7))
        store.groups.update("billing", consume_enabled=False)
        with pytest.raises(StorePermissionError, match="billing"):
            consumers.pulls.pull(pull(store))
        store.groups.delete("billing")
        with pytest.raises(GroupNotFoundError, match="billing"):
            consumers.pulls.pull(pull(store))


class TestCommits:
    def test_a_member_commits_and_gets_the_state_of_the_queue(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, b"0", b"1", b"2")
        queue = queue_of(store)
        assert consumers.committed("billing", queue) is None
        reply = consumers.commit("billing", "c1", "i1", {queue: 2})[queue]
        assert (reply.minimum, reply.maximum, reply.next_offset) == (0, 3, 2)
        assert consumers.committed("billing", queue) == 2
        assert store.groups.committed("billing", "orders") == {0: 2}

    def test_a_commit_does_not_move_an_offset_back(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, b"0", b"1")
        queue = queue_of(store)
        consumers.commit("billing", "c1", "i1", {queue: 2})
        assert consumers.commit("billing", "c1", "i1", {queue: 1})[queue].next_offset == 2

    def test_a_commit_from_before_a_truncation_is_lowered(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, b"0", b"1", b"2", b"3")
        who, queue = ("billing", "c1", "i1"), queue_of(store)
        Epochs(Layout(store.path)).begin({("orders", 0): 2})
        assert consumers.commit(*who, {queue: 3}, 0)[queue].next_offset == 2
        assert consumers.commit(*who, {queue: 3}, 1)[queue].next_offset == 3

    @pytest.mark.parametrize(("client", "incarnation"), [("c2", "i1"), ("c1", "i2")])
    def test_a_commit_of_another_client_is_fenced(self, consumers, store, client, incarnation):
        consumers.heartbeat(beat())
        with pytest.raises(InvalidInputError) as caught:
            consumers.commit("billing", client, incarnation, {queue_of(store): 0})
        assert caught.value.code == "COMMIT_FENCED"

    def test_a_queue_that_another_client_has_locked_is_not_committed(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, b"0", queue_id=0)
        send(store, b"0", queue_id=1)
        locked, free = queue_of(store, 0), queue_of(store, 1)
        consumers.lock("billing", "c2", [locked])
        assert [*consumers.commit("billing", "c1", "i1", {locked: 1, free: 1})] == [free]
        assert store.groups.committed("billing", "orders") == {1: 1}


class TestResets:
    @pytest.fixture(autouse=True)
    def _committed(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, *[b"0"] * 6)
        consumers.commit("billing", "c1", "i1", {queue_of(store): 5})

    def test_a_group_with_live_members_is_not_reset(self, consumers, store):
        for number in range(2, 9):
            consumers.heartbeat(beat(f"c{number}"))
        with pytest.raises(InvalidInputError, match="c1, c2, c3, c4, c5 and 3 more") as caught:
            consumers.reset("billing", "orders", "earliest")
        assert caught.value.code == "GROUP_HAS_MEMBERS"
        assert store.groups.committed("billing", "orders") == {0: 5}

    def test_a_group_is_reset_after_its_members_have_left_or_expired(self, consumers, store, clock):
        consumers.heartbeat(beat("c2"))
        consumers.members.unregister("c1", "billing")
        clock.now += 2 * MINUTE_MS
        assert consumers.reset("billing", "orders", "earliest") == {0: 0, 1: 0}

    def test_members_that_consume_all_queues_do_not_prevent_a_reset(self, consumers):
        data = ConsumerData("audit", MessageModel.BROADCASTING, "LAST", {})
        consumers.heartbeat(Heartbeat("c1", "i1", [data]))
        assert consumers.reset("audit", "orders", {0: 3}) == {0: 3}

    def test_a_forced_reset_is_not_overridden_by_a_member(self, consumers, store):
        changed = []
        consumers.members.watch(changed.append)
        assert consumers.reset("billing", "orders", {0: 2}, force=True) == {0: 2}
        assert changed == ["billing"]
        with pytest.raises(InvalidInputError) as caught:
            consumers.commit("billing", "c1", "i1", {queue_of(store): 6})
        assert caught.value.code == "COMMIT_FENCED"
        assert consumers.heartbeat(beat()) is False
        assert consumers.committed("billing", queue_of(store)) == 2

    def test_a_commit_is_before_or_after_a_forced_reset(self, consumers, store, monkeypatch):
        """A commit that waits for the write lock during the reset is made before it."""
        commit, resets = store.groups.commit, []

        def commit_late(*given):
            reset = threading.Thread(
                target=consumers.reset, args=("billing", "orders", {0: 2}), kwargs={"force": True}
            )
            reset.start()
            resets.append(reset)
            reset.join(0.2)
            return commit(*given)

        monkeypatch.setattr(store.groups, "commit", commit_late)
        consumers.commit("billing", "c1", "i1", {queue_of(store): 6})
        resets[0].join()
        assert store.groups.committed("billing", "orders") == {0: 2}


class TestSendBack:
    @pytest.fixture(autouse=True)
    def _sent(self, consumers, store):
        consumers.heartbeat(beat())
        send(store, b"0", keys=["k"])

    def test_a_message_is_copied_to_the_retry_topic_after_a_delay(self, consumers, store, clock):
        consumers.send_back("billing", queue_of(store), 0, 0, -1).result()
        assert not [*store.messages("%RETRY%billing")]
        clock.now += 10_000
        store.deliver_due()
        (copy,) = store.messages("%RETRY%billing")
        assert (copy.body, copy.reconsume_times, copy.keys) == (b"0", 1, ("k",))
        assert copy.properties["RETRY_TOPIC"] == "orders"

    def test_a_dead_letter_has_the_number_of_its_deliveries_as_in_rocketmq(
        self, consumers, store, clock
    ):
        store.groups.create("billing")
        store.groups.update("billing", retry_max_times=16)
        queue, offset = queue_of(store), 0
        for deliveries in range(1, 18):
            consumers.send_back("billing", queue, offset, 0, -1).result()
            clock.now += 3 * 3_600_000
            store.deliver_due()
            queue, offset = queue_of(store, 0, "%RETRY%billing"), deliveries - 1
        (letter,) = store.messages("%DLQ%billing")
        assert letter.reconsume_times == 17

    @pytest.mark.parametrize(
        ("backoff", "delays_ms"),
        [
            (Backoff((3_000, 4_000)), [3_000, 4_000, 4_000]),
            (Backoff((5_000,)), [5_000, 5_000, 5_000]),
            (Backoff(initial_ms=100, max_ms=1_000, multiplier=5), [100, 500, 1_000]),
            (Backoff(), [10_000, 30_000, 60_000]),
        ],
    )
    def test_the_delays_of_the_group_are_obeyed(self, consumers, store, clock, backoff, delays_ms):
        store.groups.create("billing")
        store.groups.update("billing", backoff=backoff)
        queue = queue_of(store)
        for number, delay_ms in enumerate(delays_ms):
            consumers.send_back("billing", queue, max(number - 1, 0), 0, -1).result()
            queue = queue_of(store, 0, "%RETRY%billing")
            clock.now += delay_ms - 1
            store.deliver_due()
            assert len([*store.messages("%RETRY%billing")]) == number
            clock.now += 1
            store.deliver_due()
            assert len([*store.messages("%RETRY%billing")]) == number + 1

    def test_the_delay_of_a_consumer_wins_over_that_of_the_group(self, consumers, store, clock):
        store.groups.create("billing")
        store.groups.update("billing", backoff=Backoff((3_000,)))
        consumers.send_back("billing", queue_of(store), 0, 1, -1).result()
        clock.now += 1_000
        store.deliver_due()
        assert len([*store.messages("%RETRY%billing")]) == 1

    def test_the_delay_grows_with_the_attempts(self, consumers, store, clock):
        consumers.send_back("billing", queue_of(store), 0, 0, -1).result()
        clock.now += 10_000
        store.deliver_due()
        consumers.send_back("billing", queue_of(store, 0, "%RETRY%billing"), 0, 0, -1).result()
        clock.now += 29_999
        store.deliver_due()
        assert len([*store.messages("%RETRY%billing")]) == 1
        clock.now += 1
        store.deliver_due()
        assert [one.reconsume_times for one in store.messages("%RETRY%billing")] == [1, 2]

    def test_a_missing_message_is_an_error(self, consumers, store):
        with pytest.raises(MessageNotFoundError):
            consumers.send_back("billing", queue_of(store), 5, 0, -1)

    @pytest.mark.parametrize("code", ["QUEUES_NOT_WRITTEN", "WRITE_FAILED"])
    def test_a_copy_that_is_stored_is_sent_back_although_it_is_not_visible_yet(self, store, code):
        failed = Future()
        failed.set_exception(StoreUnavailableError("no space", code=code))
        sent_back = Consumers(store, lambda records: failed).send_back(
            "billing", queue_of(store), 0, 0, -1
        )
        assert (sent_back.exception() is None) == (code == "QUEUES_NOT_WRITTEN")
