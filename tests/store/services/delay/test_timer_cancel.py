"""A cancelled timer is never delivered, and its cancellation affects no other timer."""

import shutil

import pytest
from pyrocket import Store
from support.stores import message, reboot
from support.timing import DAY, HOUR, Timing, park


@pytest.fixture
def timing(path, clock):
    with Timing(path, clock) as timing:
        yield timing


def test_a_cancelled_timer_is_not_delivered(timing, clock):
    kept, gone = timing.send(b"kept", 1000), timing.send(b"gone", 1000)
    assert timing.timers.cancel("t", gone.msg_id)
    clock.now += DAY
    timing.run()
    assert timing.bodies() == [b"kept"]
    assert not timing.timers.cancel("t", kept.msg_id), "it has been delivered"


@pytest.mark.parametrize("after", [1, 1000, 1001, 3 * DAY])
@pytest.mark.parametrize("indexed", [False, True])
def test_timers_with_any_due_time_can_be_cancelled(timing, clock, after, indexed):
    clock.now -= clock.now % HOUR
    gone = timing.send(b"gone", after)
    if indexed:
        timing.run()
    assert timing.timers.cancel("t", gone.msg_id)
    clock.now += 4 * DAY
    timing.run()
    assert timing.bodies() == []


def test_unknown_message_is_not_cancelled(timing, clock):
    gone = timing.send(b"gone", 1000)
    plain = timing.store.append(message(b"plain"))
    assert not timing.timers.cancel("t", "A" * 32)
    assert not timing.timers.cancel("other", gone.msg_id)
    assert not timing.timers.cancel("t", plain.msg_id)
    assert timing.timers.cancel("t", gone.msg_id)
    assert not timing.timers.cancel("t", gone.msg_id), "it is already cancelled"


def test_a_late_timer_that_has_not_been_delivered_can_be_cancelled(timing, clock):
    timing.send(b"first", 5000)
    late = timing.send(b"late", 5001)
    clock.now += 5000
    timing.run()
    clock.now -= 2000
    late2 = timing.send(b"late too", 1)
    clock.now += 2000
    assert timing.timers.cancel("t", late2.msg_id)
    assert timing.timers.cancel("t", late.msg_id)
    clock.now += 1000
    timing.run()
    assert timing.bodies() == [b"first"]


@pytest.mark.parametrize("lost", ["nothing", "power", "buckets"])
def test_a_cancelled_timer_does_not_reappear(path, clock, lost):
    timing = Timing(path, clock)
    gone = timing.send(b"gone", HOUR)
    timing.send(b"kept", HOUR)
    assert timing.timers.cancel("t", gone.msg_id)
    timing.run()
    timing.close(clean=lost != "power")
    if lost == "buckets":
        shutil.rmtree(path / "pyrocket" / "timers")
    reboot(path)
    with Timing(path, clock) as again:
        assert not again.timers.cancel("t", gone.msg_id)
        clock.now += HOUR
        again.run()
        assert again.bodies() == [b"kept"]


def test_another_process_sees_the_cancellation(path, clock):
    with Timing(path, clock) as one, Timing(path, clock) as other:
        gone = one.send(b"gone", 1000)
        other.run()
        assert other.next_due() == clock.now + 1000
        assert one.timers.cancel("t", gone.msg_id)
        clock.now += 1000
        other.run()
        assert one.bodies() == []


@pytest.mark.parametrize("form", ["{id}", "{topic}+{id}"])
def test_a_cancellation_sent_by_a_rocketmq_producer_cancels_the_timer(timing, clock, form):
    """A producer of RocketMQ 5.3 sends topic and id; producers of 5.0 and 5.5 send only the id."""
    due = clock.now + 1500
    gone = timing.send(b"gone", 1500)
    own = {"TIMER_DEL_UNIQKEY": form.format(id=gone.msg_id, topic="t"), "REAL_TOPIC": "t"}
    park(timing, {**own, "TIMER_OUT_MS": str(due // 1000 * 1000), "TIMER_DELIVER_MS": str(due)})
    clock.now += 1500
    timing.run()
    assert timing.bodies() == []


def test_cancellation_for_another_second_has_no_effect(timing, clock):
    kept = timing.send(b"kept", 5000)
    own = {"TIMER_DEL_UNIQKEY": kept.msg_id, "REAL_TOPIC": "t", "REAL_QID": "0"}
    park(timing, {**own, "TIMER_OUT_MS": str(clock.now + 3000)})
    clock.now += 5000
    timing.run()
    assert timing.bodies() == [b"kept"]


def test_pending_timers_are_listed(timing, clock, path):
    assert (timing.timers.count(), timing.timers.next_due(), timing.timers.pending()) == (
        0,
        None,
        [],
    )
    sent = [timing.send(b"%d" % n, after) for n, after in enumerate([500, 100, DAY, 300])]
    timing.timers.cancel("t", sent[3].msg_id)
    now = clock.now
    for step in (0, 1):
        assert timing.timers.count() == 3
        assert timing.timers.next_due() == now + 100
        found = timing.timers.pending()
        assert [one.msg_id for one in found] == [sent[n].msg_id for n in (1, 0, 2)]
        assert [one.due_ms - now for one in found] == [100, 500, DAY]
        assert {(one.topic, one.queue_id) for one in found} == {("t", 0)}
        assert timing.timers.pending(limit=1) == found[:1]
        assert timing.timers.pending(after=found[0]) == found[1:]
        if not step:
            timing.run()
    clock.now += 500
    timing.run()
    assert timing.timers.count() == 1
    with Store.open(path, read_only=True, clock=clock) as store:
        assert [one.msg_id for one in store.timers.pending()] == [sent[2].msg_id]


def test_the_first_hundred_timers_are_listed_by_default(timing):
    for number in range(101):
        timing.send(b"%d" % number, HOUR)
    assert len(timing.timers.pending()) == 100
    assert len(timing.timers.pending(limit=101)) == 101
