"""Timers are delivered once, in order, and not a millisecond before they are due."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyrocket.disk.shared_state import NEVER, NEXT_DUE
from pyrocket.services.delay import pending_timers
from pyrocket.services.delay.timer_service import TimerLimits
from support.inner import inner
from support.shares import TIMES
from support.stores import FakeClock, batch, message, overwrite, scan
from support.timing import DAY, HOUR, TIMER, Timing, park, times


@pytest.fixture
def timing(path, clock):
    with Timing(path, clock) as timing:
        yield timing


def test_a_timer_is_delivered_at_its_millisecond_and_not_before(timing, clock):
    timing.send(b"x", 1234)
    timing.run()
    clock.now += 1233
    timing.run()
    assert timing.bodies() == []
    clock.now += 1
    timing.run()
    assert timing.bodies() == [b"x"]


def test_timers_are_delivered_to_their_real_topic_and_queue_by_due_time(timing, clock):
    timing.store.topics.create("u", read_queues=1, write_queues=1)
    for number in range(12):
        topic, queue_id = [("t", 0), ("u", 0), ("t", 1)][number % 3]
        timing.send(b"%d" % number, 1000 - number, topic, queue_id)
    clock.now += 1000
    timing.run()
    for first, queue in enumerate([("t", 0), ("u", 0), ("t", 1)]):
        assert timing.bodies(*queue) == [b"%d" % n for n in range(9 + first, -1, -3)]


def test_a_delivered_message_equals_the_sent_message(timing, clock):
    timing.send(b"x" * 5000, 1, keys=["k"], tags="red", properties={"a": "b"}, flag=7)
    (parked,) = timing.store.read(TIMER, 0, 0) if TIMER in timing.store.topics.all() else (None,)
    clock.now += 1
    timing.run()
    (one,) = timing.store.read("t", 0, 0)
    assert (one.body, one.keys, one.tags, one.flag) == (b"x" * 5000, ("k",), "red", 7)
    assert one.store_timestamp == clock.now
    assert parked is None or one.properties == parked.properties
    assert timing.store.lookup.query("t", "k") == [one]


def test_a_timer_indexed_after_later_timers_is_delivered(timing, clock):
    """A process with a slow clock sent the timer, so its due time is before the read position."""
    early = clock.now + 1
    timing.send(b"later", 5)
    clock.now += 5
    timing.run()
    assert timing.cursor()[1] > early
    park(timing, {"REAL_TOPIC": "t", "REAL_QID": "0", "TIMER_OUT_MS": str(early)}, b"early")
    timing.run()
    assert timing.bodies() == [b"later", b"early"]


def test_the_next_due_time_is_the_due_time_of_the_first_timer(timing, clock):
    assert timing.next_due() == NEVER
    timing.send(b"far", 9 * DAY)
    assert timing.next_due() == clock.now, "due immediately, because it is not indexed yet"
    timing.run()
    assert timing.next_due() == clock.now + 9 * DAY
    timing.send(b"near", 3 * HOUR)
    timing.run()
    assert timing.next_due() == clock.now + 3 * HOUR
    clock.now += 3 * HOUR
    timing.run()
    assert timing.next_due() == clock.now + 9 * DAY - 3 * HOUR
    clock.now += 9 * DAY
    timing.run()
    assert timing.next_due() == NEVER


def test_a_batch_of_timers_is_delivered_in_parts_without_losing_order(timing, clock, monkeypatch):
    timing.service.limits = TimerLimits(messages=7, indexed=11)
    monkeypatch.setattr(pending_timers, "_MAX_ENTRIES", 5)
    after = list(range(100))
    random.Random(1).shuffle(after)
    rows = batch([b"%02d" % n for n in after], 0, deliverTimestamp=times(clock, after))
    timing.store.append_batch(rows, topic="t")
    clock.now += 50
    timing.run()
    assert timing.bodies() == [b"00", *(b"%02d" % n for n in range(1, 51))]
    clock.now += 50
    timing.run()
    assert sorted(timing.bodies()) == [b"%02d" % n for n in range(100)]


def test_an_append_delivers_up_to_its_byte_limit(timing, clock):
    timing.service.limits = TimerLimits(bytes=1000)
    for number in range(10):
        timing.send(b"%d" % number * 300, number + 1)
    clock.now += 10
    timing.service.deliver_due(timing.writer, clock.now)
    assert 1 <= len(timing.bodies()) <= 3
    timing.run()
    assert timing.bodies() == [b"%d" % number * 300 for number in range(10)]


def test_an_append_delivers_to_a_limited_number_of_topics(timing, clock):
    timing.service.limits = TimerLimits(topics=2)
    for number in range(18):
        timing.send(b"%d" % (number % 2), 1, f"u{number // 2}")
    clock.now += 1
    timing.service.deliver_due(timing.writer, clock.now)
    assert [len(timing.bodies(f"u{number}")) for number in range(9)] == [2, 2, *[0] * 7]
    timing.run()
    assert all(timing.bodies(f"u{number}") == [b"0", b"1"] for number in range(9))


def test_no_timer_is_delivered_twice_or_early_if_the_clock_is_set_back(timing, clock):
    timing.send(b"a", 1000)
    timing.send(b"z", 10 * DAY)
    clock.now += 365 * DAY
    timing.run()
    assert timing.bodies() == [b"a", b"z"]
    clock.now -= 365 * DAY
    timing.send(b"b", 2000)
    timing.run()
    assert timing.bodies() == [b"a", b"z"]
    assert timing.next_due() == clock.now + 2000
    clock.now += 1999
    timing.run()
    assert timing.bodies() == [b"a", b"z"]
    clock.now += 1
    timing.run()
    assert timing.bodies() == [b"a", b"z", b"b"]
    clock.now += 365 * DAY
    assert timing.run() == 0


def test_another_process_detects_that_the_clock_was_set_back(path, clock):
    with Timing(path, clock) as one, Timing(path, clock) as other:
        one.send(b"a", 1000)
        one.send(b"b", 5000)
        other.run()
        assert other.next_due() == clock.now + 1000
        clock.now += 6000
        one.run()
        clock.now -= 3000
        one.run()
        other.run()
        clock.now += 3000
        assert other.run() == 0
        assert one.bodies() == [b"a", b"b"]


def test_delivery_does_not_wait_for_write_lock(path, clock):
    with Timing(path, clock) as one, Timing(path, clock) as other:
        one.send(b"x", 1)
        clock.now += 1
        with one.writer.exclusive(), pytest.raises(Exception, match="LOCK_TIMEOUT"):
            other.service.deliver_due(other.writer, clock.now)
        other.run()
        assert one.bodies() == [b"x"]


def test_a_deleted_log_file_loses_only_the_timers_that_it_contained(timing, clock, caplog):
    timing.send(b"lost" * 200, 10)
    while len(list((timing.store.path / "commitlog").iterdir())) < 3:
        timing.store.append_batch(batch([b"." * 900], 1), topic="t")
    timing.send(b"kept", 20)
    timing.run()
    min((timing.store.path / "commitlog").iterdir()).unlink()
    clock.now += 20
    timing.run()
    assert [body for _, body in scan(timing.store, "t", 0)] == [b"kept"]
    assert "were not delivered" in caplog.text


def test_damaged_timer_does_not_delay_others(timing, clock, caplog):
    for number in range(3):
        timing.send(b"%d" % number, 10 + number)
    timing.run()
    entry = inner(timing.store).reader.files.queues.get(TIMER, 0).entries(1, 2)[0]
    file = min((timing.store.path / "commitlog").iterdir())
    overwrite(file, b"\xff" * 8, int(entry["physical_offset"]) - int(file.name))
    clock.now += 20
    timing.run()
    assert timing.bodies() == [b"0", b"2"]
    assert "damaged" in caplog.text


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(-5, 4000), st.integers(0, 1)),
        st.tuples(st.just("far"), st.integers(0, 4 * HOUR), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.just("wait"), st.integers(1, 3 * HOUR)),
        st.tuples(st.just("back"), st.integers(1, 3000)),
        st.tuples(st.just("run"), st.integers(0, 1)),
        st.tuples(st.just("reopen"), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(
    deadline=None,
    max_examples=20 * TIMES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_each_timer_is_delivered_once_and_never_early(tmp_path_factory, steps):
    clock, path = FakeClock(), tmp_path_factory.mktemp("timing") / "s"
    processes = [Timing(path, clock), Timing(path, clock)]
    dues, seen = {}, set()
    try:
        for number, (kind, *given) in enumerate(steps):
            if kind in ("send", "far"):
                body = b"%d" % number
                dues[body] = clock.now + given[0]
                processes[given[1]].send(body, given[0])
            elif kind == "wait":
                clock.now += given[0]
            elif kind == "back":
                clock.now -= given[0]
            elif kind == "run":
                processes[given[0]].run()
            else:
                processes[given[0]].close()
                processes[given[0]] = Timing(path, clock)
            new = set(processes[0].bodies()) - seen
            seen |= new
            assert all(dues[body] <= clock.now for body in new)
            if kind == "run":
                assert all(dues[body] > clock.now for body in dues.keys() - seen)
        clock.now += 10 * HOUR
        processes[0].run()
        assert sorted(processes[0].bodies()) == sorted(dues)
    finally:
        for process in processes:
            process.close(clean=False)


def test_a_timer_far_ahead_is_indexed_within_seconds(timing, clock):
    timing.send(b"x", 30 * DAY)
    assert timing.cursor()[0] == 0
    assert timing.writer.page[NEXT_DUE] == clock.now + 5000
    clock.now += 5000
    timing.store.append(message(b"y"))
    assert timing.cursor()[0] == 1
    assert timing.writer.page[NEXT_DUE] == clock.now + 30 * DAY - 5000
