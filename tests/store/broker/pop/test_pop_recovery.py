"""A start recovers the snapshot and later changes, and takes over external changes."""

import json
import threading
from contextlib import suppress

import pytest
from pyrocket import Store
from pyrocket.broker.pop.events import Repeat, Saved, Start
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import News
from pyrocket.disk.layout import Layout
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.system_topics import POP_TOPIC
from pyrocket.metadata.groups import Subscriptions
from pyrocket.store import consumption_of
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.pops import acked, at_once, attempts, bodies, handles, popped, sent
from support.stores import SMALL, FakeClock, overwrite


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


@pytest.fixture(params=[True, False], ids=["snapshot", "log only"])
def restarted(request, store):
    """Return a function that starts another `Pop`, with or without a preceding snapshot."""

    def restart(pop, **settings):
        if request.param:
            pop.close()
        return popped(store, **settings)

    return restart


def test_messages_in_flight_acks_and_handles_survive_a_restart(store, clock, restarted):
    pop = popped(store)
    sent(store, 6)
    first = pop.receive("g", "t", max_messages=4, invisible_ms=10_000)
    pop.ack("g", "t", handles(first)[1:3])
    changed = pop.change_invisible("g", "t", handles(first)[3], 60_000)
    later = restarted(pop)
    assert attempts(later.receive("g", "t", invisible_ms=60_000)) == {b"4": 1, b"5": 1}
    clock.now += 10_000
    again = later.receive("g", "t")
    assert attempts(again) == {b"0": 2}
    assert later.ack("g", "t", [changed.handle]).valid == (True,)
    assert later.ack("g", "t", handles(first)).valid == (False,) * 4
    acked(later, again)
    later.snapshot()
    assert store.groups.committed("g", "t") == {0: 4}


def test_a_damaged_change_acks_no_other_message(store, clock, caplog):
    pop = popped(store)
    sent(store, 3)
    pop.ack("g", "t", handles(pop.receive("g", "t"))[1:2])
    (log,) = Layout(store.path).commit_log.iterdir()
    overwrite(log, b"2", log.read_bytes().rindex(b"[1]]") + 1)
    clock.now += 60_000
    assert attempts(popped(store).receive("g", "t")) == {b"0": 2, b"1": 2, b"2": 2}
    assert f"of {POP_TOPIC} is damaged" in caplog.text


def test_changes_after_a_snapshot_are_applied(store, clock):
    pop = popped(store)
    sent(store, 4)
    first = pop.receive("g", "t", max_messages=2, invisible_ms=10_000)
    pop.snapshot()
    acked(pop, first)
    second = pop.receive("g", "t", max_messages=1, invisible_ms=10_000)
    later = popped(store)
    clock.now += 10_000
    assert attempts(later.receive("g", "t")) == {b"2": 2, b"3": 1}
    assert acked(later, second) == (False,)


def test_blocked_messages_of_a_fifo_group_survive_a_restart(store, restarted):
    pop = popped(store)
    store.groups.update("g", fifo=True)
    sent(store, 1, sharding_key="a")
    sent(store, 1, first=1, sharding_key="a")
    sent(store, 1, first=2, sharding_key="b")
    first = pop.receive("g", "t", max_messages=1)
    assert bodies(pop.receive("g", "t")) == [b"2"]
    later = restarted(pop)
    assert bodies(later.receive("g", "t")) == []
    acked(later, first)
    assert attempts(later.receive("g", "t")) == {b"1": 1}


def test_the_committed_offset_is_that_of_the_first_unacked_message(store, path):
    pop = popped(store)
    sent(store, 4)
    first = pop.receive("g", "t", max_messages=3)
    pop.ack("g", "t", [handles(first)[0], handles(first)[2]])
    pop.close()
    assert store.groups.committed("g", "t") == {0: 1}
    assert [one.body for one in store.read("t", 0, 1)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("damage", ["missing", "damaged", "of another log"])
def test_a_lost_snapshot_is_rebuilt_from_all_changes_in_the_log(store, path, damage):
    pop = popped(store)
    sent(store, 3)
    first = pop.receive("g", "t", max_messages=2)
    pop.ack("g", "t", handles(first)[1:])
    pop.close()
    file = Layout(path).pop
    if damage == "missing":
        file.unlink()
    elif damage == "damaged":
        file.write_bytes(file.read_bytes().replace(b"groups", b"grapes"))
    else:
        content = json.loads(file.read_text())["content"]
        file.write_text(json.dumps({**content, "last": 17}))
    later = popped(store)
    assert attempts(later.receive("g", "t")) == {b"2": 1}
    assert later.lag("g", "t")["t", 0].in_flight == 2


@pytest.mark.parametrize(
    ("field", "value"), [("last", 17), ("next", 99), ("key", "no"), ("groups", {"g": 1})]
)
def test_an_unusable_snapshot_is_replaced_at_start(store, path, field, value):
    pop = popped(store)
    sent(store, 3)
    acked(pop, pop.receive("g", "t"))
    pop.close()
    file = Layout(path).pop
    good = decode_own(file, file.read_bytes())
    file.write_bytes(encode_own(file, {**good, field: value}))
    popped(store)
    found = decode_own(file, file.read_bytes())
    assert found[field] != value
    assert found["last"] == consumption_of(store).change_place(found["next"] - 1)


@pytest.mark.parametrize(("left", "attempt"), [(2, 1), (3, 2)], ids=["offsets", "acks"])
def test_a_group_resumes_at_the_committed_offset_if_changes_are_lost(store, path, left, attempt):
    """This happens if only the last log files and RocketMQ's files are copied to another store."""
    pop = popped(store)
    sent(store, 6)
    first = pop.receive("g", "t", max_messages=4)
    pop.ack("g", "t", handles(first)[:2])
    pop.close()
    Layout(path).pop.unlink()
    consumption, known = consumption_of(store), consumption_of(store).changes()
    real = consumption.read_changes
    consumption.read_changes = lambda start, end: real(known.maximum - left, end)
    later = popped(store)
    assert later.lag("g", "t")["t", 0].committed == 2
    assert attempts(later.receive("g", "t")) == {
        **dict.fromkeys((b"2", b"3"), attempt),
        b"4": 1,
        b"5": 1,
    }


@pytest.mark.parametrize("online", [True, False])
def test_offsets_committed_by_other_programs_are_taken_over(store, clock, online):
    pop = popped(store)
    sent(store, 6)
    acked(pop, pop.receive("g", "t", max_messages=1))
    pop.receive("g", "t", max_messages=2)
    pop.close()
    store.groups.commit("g", "t", {0: 4})
    if online:
        pop.sweep()
    else:
        pop = popped(store)
    assert bodies(pop.receive("g", "t")) == [b"4", b"5"]
    assert pop.lag("g", "t")["t", 0].committed == 4


@pytest.mark.parametrize("online", [True, False])
def test_a_reset_restarts_the_group(store, clock, online):
    pop = popped(store)
    sent(store, 4)
    acked(pop, pop.receive("g", "t"))
    pop.close()
    store.groups.reset("g", "t", "earliest")
    if online:
        pop.sweep()
    else:
        pop = popped(store)
    again = pop.receive("g", "t", max_messages=2)
    assert bodies(again) == [b"0", b"1"]
    acked(pop, again)
    # A restart does not reset the group again.
    pop.close()
    later = popped(store)
    assert bodies(later.receive("g", "t")) == [b"2", b"3"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("offset", [0, 5], ids=["first", "middle"])
def test_a_reset_to_the_previously_saved_offset_takes_effect(store, restarts, offset):
    pop = popped(store)
    sent(store, 10)
    store.groups.commit("g", "t", {0: 0})
    for _ in range(1 if offset == 0 else 2):
        acked(pop, pop.receive("g", "t", max_messages=10 - offset))
        pop.snapshot()
    assert store.groups.committed("g", "t") == {0: 10}
    store.groups.commit("g", "t", {0: offset}, backwards=True)
    if restarts:
        pop = popped(store)
    else:
        pop.sweep()
    assert store.groups.committed("g", "t") == {0: offset}
    assert bodies(pop.receive("g", "t")) == [b"%d" % n for n in range(offset, 10)]


@pytest.mark.parametrize("offset", [0, 2], ids=["as committed", "after the committed"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_reset_delivers_acked_messages_again_while_an_earlier_one_is_in_flight(
    store, restarts, offset
):
    pop = popped(store)
    sent(store, 4)
    received = pop.receive("g", "t", invisible_ms=3_600_000)
    pop.ack("g", "t", handles(received)[1:])
    pop.sweep()
    pop.reset("g", "t", lambda: store.groups.reset("g", "t", {0: offset}))
    assert News("g", "t") in pop.sweep().news
    if restarts:
        pop = popped(store)
    assert attempts(pop.receive("g", "t")) == {b"%d" % n: 1 for n in range(offset, 4)}


def test_a_reset_of_one_queue_leaves_the_others(store):
    store.topics.update("t", read_queues=2, write_queues=2)
    pop = popped(store)
    for queue_id in range(2):
        sent(store, 2, queue_id=queue_id)
    pop.receive("g", "t")
    pop.sweep()
    pop.reset("g", "t", lambda: store.groups.commit("g", "t", {0: 0}, backwards=True), {0})
    assert {one.message.queue_id for one in pop.receive("g", "t").messages} == {0}


def test_a_reset_after_a_kill_during_saving_takes_effect(store, monkeypatch):
    pop = popped(store)
    sent(store, 4)
    acked(pop, pop.receive("g", "t", max_messages=2))
    real = consumption_of(store).change_offsets

    def killed(edit):
        real(edit)
        raise KeyboardInterrupt

    store.groups.commit("g", "t", {0: 0})
    pop.snapshot()
    acked(pop, pop.receive("g", "t"))
    monkeypatch.setattr(consumption_of(store), "change_offsets", killed)
    with pytest.raises(KeyboardInterrupt):
        pop.snapshot()
    monkeypatch.undo()
    later = popped(store)
    assert bodies(later.receive("g", "t")) == []
    store.groups.commit("g", "t", {0: 2}, backwards=True)
    later.sweep()
    assert bodies(later.receive("g", "t")) == [b"2", b"3"]


def test_an_offset_left_by_a_kill_is_not_a_reset(store, monkeypatch, clock):
    pop = popped(store)
    sent(store, 4)
    acked(pop, pop.receive("g", "t", max_messages=1))
    pop.snapshot()
    acked(pop, pop.receive("g", "t", max_messages=1))
    for _ in range(3):

        def killed(edit):
            raise KeyboardInterrupt

        monkeypatch.setattr(consumption_of(store), "change_offsets", killed)
        with pytest.raises(KeyboardInterrupt):
            pop.snapshot()
        with pytest.raises(KeyboardInterrupt):
            pop = popped(store)
    monkeypatch.undo()
    later = popped(store)
    assert bodies(later.receive("g", "t")) == [b"2", b"3"]


def consumed_and_deleted(store, saves):
    """Delete a group that has acked one message and has another message in flight."""
    pop = popped(store)
    sent(store, 3)
    first, second = handles(pop.receive("g", "t", max_messages=2))
    pop.ack("g", "t", [first]).stored.result(10)
    if saves:
        pop.snapshot()
    store.groups.delete("g")
    return pop, second


def saved_offsets(store):
    return {key: value for key, value in store.groups.offsets().items() if key[1] == "g"}


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("by", ["drop", "sweep", "snapshot", "start"])
def test_the_state_of_a_deleted_group_is_removed(store, clock, saves, by):
    pop, handle = consumed_and_deleted(store, saves)
    if by == "start":
        pop = Pop(store, at_once(store))
    else:
        {"drop": lambda: pop.drop("g"), "sweep": pop.sweep, "snapshot": pop.snapshot}[by]()
    clock.now += 60_000
    pop.sweep()
    pop.snapshot()
    assert "g" not in store.groups.all()
    assert not saved_offsets(store)
    assert pop.in_flight("g") == 0
    assert "g" not in json.loads(Layout(store.path).pop.read_text())["content"]["groups"]
    store.groups.create("g")
    assert pop.ack("g", "t", [handle]).valid == (False,)
    assert attempts(pop.receive("g", "t")) == {b"0": 1, b"1": 1, b"2": 1}


@pytest.mark.parametrize("by", ["sweep", "start"])
def test_a_group_that_was_deleted_and_created_again_restarts(store, by):
    """Another process deletes and creates the group before a sweep detects the deletion."""
    pop, handle = consumed_and_deleted(store, saves=True)
    store.groups.create("g")
    if by == "sweep":
        assert News("g", "t") in pop.sweep().news
    else:
        pop = popped(store)
    assert pop.ack("g", "t", [handle]).valid == (False,)
    assert attempts(pop.receive("g", "t")) == {b"0": 1, b"1": 1, b"2": 1}
    later = popped(store)
    assert later.in_flight("g") == 3


def test_offsets_of_a_group_deleted_during_a_save_are_not_created_again(store, monkeypatch):
    pop = popped(store)
    sent(store, 2)
    pop.receive("g", "t")
    real = consumption_of(store).flush

    def deleted_meanwhile():
        real()
        store.groups.delete("g")

    monkeypatch.setattr(consumption_of(store), "flush", deleted_meanwhile)
    pop._commit()
    monkeypatch.undo()
    pop.sweep()
    assert not saved_offsets(store)
    assert "g" not in store.groups.all()


def test_a_receive_that_waits_for_a_deleted_group_uses_the_new_group(store):
    pop = popped(store)
    sent(store, 2)
    pop.receive("g", "t", max_messages=1)
    found, started = [], threading.Event()
    real = pop._states.made

    def recorded(group):
        state = real(group)
        started.set()
        return state

    pop._states.made = recorded
    receiving = threading.Thread(target=lambda: found.append(pop.receive("g", "t")))
    with pop._states.known("g").lock:
        receiving.start()
        assert started.wait(10)
        pop.drop("g")
    receiving.join(10)
    assert attempts(found[0]) == {b"0": 1, b"1": 1}
    assert popped(store).in_flight("g") == 2


def test_a_group_of_a_rocketmq_broker_without_settings_keeps_its_messages_in_flight(store):
    sent(store, 2)
    store.groups.commit("g", "t", {0: 2})
    pop = popped(store)
    store.groups.delete("g")
    store.groups.commit("g", "t", {0: 2})
    Subscriptions(Layout(store.path), store.now).remove("g")
    event = Repeat("g", "t", 0, [1], 0)
    with pop._states.opened("g") as state:
        pop._put(state, [Start("g", "t", 0, 2), Saved("g", "t", 0, 2, 2), event])
    pop.sweep()
    assert pop.in_flight("g") == 1
    store.groups.create("g")
    assert bodies(pop.receive("g", "t")) == [b"1"]


def test_deleting_a_topic_removes_the_state_of_groups_in_it(store):
    pop = popped(store)
    sent(store, 3)
    pop.receive("g", "t")
    pop.snapshot()
    store.topics.delete("t")
    pop.sweep()
    store.topics.create("t", read_queues=1, write_queues=1)
    sent(store, 1, first=7)
    assert bodies(pop.receive("g", "t")) == [b"7"]
    pop.close()
    assert bodies(popped(store).receive("g", "t")) == []


@pytest.mark.parametrize("by", ["sweep", "drop_topic"])
def test_a_topic_deleted_before_its_offsets_were_saved_is_received_from_its_start(store, by):
    pop = popped(store)
    sent(store, 3)
    pop.receive("g", "t")
    store.topics.delete("t")
    {"sweep": pop.sweep, "drop_topic": lambda: pop.drop_topic("t")}[by]()
    assert not saved_offsets(store)
    store.topics.create("t", read_queues=1, write_queues=1)
    sent(store, 1, first=7)
    assert attempts(pop.receive("g", "t")) == {b"7": 1}
    assert popped(store).in_flight("g") == 1


def test_deleted_messages_are_skipped(open_store, clock):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(store)
    sent(store, 40, properties={"p": "x" * 200})
    pop.receive("g", "t", max_messages=5, invisible_ms=10_000)
    pop.snapshot()
    store.clean(total_bytes=0)
    first = store.min_offset("t", 0)
    assert first > 5
    clock.now += 10_000
    received = pop.receive("g", "t", max_messages=1)
    assert bodies(received) == [b"%d" % first]
    acked(pop, received)
    pop.snapshot()
    assert store.groups.committed("g", "t") == {0: first + 1}


def test_log_files_with_required_changes_are_kept(open_store, clock):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(store)
    sent(store, 2)
    acked(pop, pop.receive("g", "t"))
    sent(store, 40, first=2, properties={"p": "x" * 200})
    report = store.clean(total_bytes=0)
    assert {one.held_by for one in report.kept} == {"changes of consumer groups"}
    later = popped(store)
    assert bodies(later.receive("g", "t", max_messages=1)) == [b"2"]
    later.close()
    assert not store.clean(total_bytes=0).kept
    assert bodies(popped(store).receive("g", "t", max_messages=1)) != [b"2"]


def test_changes_are_messages_of_a_system_topic(store):
    pop = popped(store)
    sent(store, 1)
    acked(pop, pop.receive("g", "t"))
    changes = [json.loads(one.body) for one in store.read(POP_TOPIC, 0, 0)]
    assert [[event[0] for event in each] for each in changes] == [
        ["start", "saved", "deliver"],
        ["ack"],
    ]


def test_a_change_that_a_dying_process_has_published_is_applied(tmp_path, monkeypatch):
    """The record of the change may not have been dispatched to its queue yet."""
    ends = set()
    for step in range(20):
        path = tmp_path / str(step)
        store = Store.open(path, create=True, config=SMALL, clock=FakeClock())
        store.topics.create("t", read_queues=1, write_queues=1)
        pop = popped(store)
        sent(store, 1)
        received = pop.receive("g", "t")
        with monkeypatch.context() as patch, suppress(DeathError):
            DyingAt(patch, step, half=False)
            pop.ack("g", "t", handles(received))
        inner(store).crash()
        with Store.open(path, clock=FakeClock()) as reopened:
            found = Pop(reopened, at_once(reopened)).in_flight("g")
            ends.add(found)
            assert Pop(reopened, at_once(reopened)).in_flight("g") == found, step
    assert ends == {0, 1}
