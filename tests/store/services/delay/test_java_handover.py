"""After a clean shutdown, RocketMQ 5's files contain exactly the pending timers."""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.formats import java_timers
from pyrocket.formats.java_timers import (
    TimerCheck,
    encode_timer_check,
)
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.shares import TIMES, share
from support.stores import SMALL, FakeClock, message, reboot
from support.timing import DAY, HOUR, TIMER, Timing
from support.wheel import FILE_BYTES, Wheel, units_in


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr("pyrocket.services.delay.java_handover.FILE_BYTES", FILE_BYTES)


def places(timing):
    """The bodies of all messages of the timer topic by CommitLog offset."""
    known = inner(timing.store).reader.system_offsets(TIMER)
    queue = inner(timing.store).reader.files.queues.get(TIMER, 0)
    found = {}
    for entry in queue.entries(known.minimum, known.maximum):
        place, size = int(entry["physical_offset"]), int(entry["size"])
        record = inner(timing.store).reader.log.read(place, size)
        found[place] = record[88 : 88 + int.from_bytes(record[84:88], "big")]
    return found


def test_a_broker_continues_with_pending_and_unindexed_timers(path, clock):
    clock.now += 500
    timing = Timing(path, clock)
    timing.send(b"soon", 1500)
    gone = timing.send(b"gone", 1500)
    for number, after in enumerate([HOUR, 100, 1700, 40 * DAY - 1, 2 * DAY + 10 * HOUR, 200]):
        timing.send(b"%d" % number, after)
    assert timing.timers.cancel("t", gone.msg_id)
    clock.now += 200
    timing.run()
    found, now = places(timing), clock.now
    timing.close()
    wheel = Wheel(path)
    assert wheel.check.queue_offset == 9
    second = now - now % 1000
    come = [(slot - second, found[at], magic) for slot, at, magic in wheel.dequeued()]
    assert come == [
        (1000, b"soon", 1),
        (2000, b"2", 1),
        (HOUR, b"0", 1),
        (DAY, b"4", 3),
        (2 * DAY, b"3", 3),
    ]


def test_the_slot_of_a_timer_ends_within_a_second_after_its_due_time(path, clock):
    clock.now += 123
    timing = Timing(path, clock)
    afters = [1, 876, 877, 878, 1876, 1877, 1878, 5000, 59_877]
    for after in afters:
        timing.send(b"%d" % after, after)
    found, now = places(timing), clock.now
    timing.close()
    come = {found[at]: slot for slot, at, _ in Wheel(path).dequeued()}
    assert len(come) == len(afters)
    for after in afters:
        over = come[b"%d" % after] + 1000
        assert now + after <= over <= now + after + 1000


def test_the_last_unit_of_the_timer_log_is_of_the_last_message_of_the_timer_topic(path, clock):
    """A broker continues after this message, even if it has been delivered."""
    timing = Timing(path, clock)
    timing.send(b"pending", HOUR)
    timing.send(b"delivered", 1)
    clock.now += 1
    timing.run()
    found = places(timing)
    timing.close()
    *_, (_, last) = units_in(path)
    assert found[int(last["physical_offset"])] == b"delivered"
    assert b"delivered" not in [found[at] for _, at, _ in Wheel(path).dequeued()]


def test_a_store_without_timers_has_no_timer_files(path, clock):
    Timing(path, clock).close()
    assert not (path / "config" / "timercheck").exists()
    assert not (path / "timerlog").exists()


def test_many_units_fill_several_files(path, clock):
    timing = Timing(path, clock)
    for number in range(25):
        timing.send(b"%d" % number, HOUR + number % 3 * 1000)
    found = places(timing)
    timing.close()
    assert len(list((path / "timerlog").iterdir())) == 3
    come = [found[at] for _, at, _ in Wheel(path).dequeued()]
    assert come == [b"%d" % n for first in range(3) for n in range(first, 25, 3)]


def test_units_are_durable_after_a_clean_shutdown(path, clock, monkeypatch):
    timing, real, durable = Timing(path, clock), io.sync, {}
    for number in range(25):
        timing.send(b"%d" % number, HOUR)

    def sync(descriptor):
        real(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            durable[status.st_ino] = os.pread(descriptor, FILE_BYTES, 0)

    monkeypatch.setattr(io, "sync", sync)
    timing.close()
    files = [*(path / "timerlog").iterdir()]
    assert len(files) == 3
    for file in files:
        assert durable[file.stat().st_ino] == file.read_bytes()


def test_a_file_of_the_timer_log_has_rocketmqs_size(path, clock, monkeypatch):
    rocketmqs = java_timers.FILE_BYTES
    monkeypatch.setattr("pyrocket.services.delay.java_handover.FILE_BYTES", rocketmqs)
    timing = Timing(path, clock)
    timing.send(b"", HOUR)
    timing.close()
    (file,) = (path / "timerlog").iterdir()
    assert file.stat().st_size == 104_857_600


def test_each_clean_shutdown_updates_the_files(path, clock):
    timing = Timing(path, clock)
    timing.send(b"a", HOUR)
    timing.send(b"b", 2 * HOUR)
    timing.send(b"c", 30 * DAY)
    ends = []
    for hours in (0, 1, 1, 20, 20):
        clock.now += hours * HOUR
        timing.run()
        found = places(timing)
        timing.store.append(message(b"more"))
        timing.close()
        ends.append({found[at] for _, at, _ in Wheel(path).dequeued()})
        timing = Timing(path, clock)
    timing.close(clean=False)
    assert ends == [{b"a", b"b", b"c"}, {b"b", b"c"}, {b"c"}, {b"c"}, {b"c"}]


def test_units_of_new_timers_follow_the_units_of_an_earlier_handover(path, clock):
    timing = Timing(path, clock)
    for number in range(7):
        timing.send(b"%d" % number, HOUR)
    timing.close()
    first = path / "timerlog" / f"{0:020d}"
    before = first.stat().st_ino, first.read_bytes()[: 7 * 52]
    clock.now += 5000
    timing = Timing(path, clock)
    for number in range(7, 14):
        timing.send(b"%d" % number, HOUR - 5000)
    found = places(timing)
    timing.close()
    assert (first.stat().st_ino, first.read_bytes()[: 7 * 52]) == before
    assert [found[at] for _, at, _ in Wheel(path).dequeued()] == [b"%d" % n for n in range(14)]


END = ("end", None)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 9000)),
        st.tuples(st.just("send"), st.integers(1, 60 * HOUR)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 5000)),
        st.tuples(st.just("wait"), st.integers(1, 20 * HOUR)),
        st.tuples(st.just("run"), st.none()),
        st.just(END),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=20 * TIMES)
@given(STEPS)
@example([("send", 1), ("send", 1), ("cancel", 0), ("wait", HOUR)])
@example([("send", 2 * HOUR), ("send", 1), ("wait", 1), ("run", None), ("wait", 4 * HOUR)])
@example([("send", 1), END, ("wait", 1), ("send", 1000), ("wait", 1999), END, ("send", 1)])
def test_clean_shutdown_hands_over_exactly_the_pending_timers(steps):
    with tempfile.TemporaryDirectory() as folder:
        path, clock = Path(folder) / "s", FakeClock()
        timing, ids, pending = Timing(path, clock), {}, {}
        for number, (kind, value) in enumerate([*steps, END]):
            if kind == "send":
                body = b"%d" % number
                ids[body], pending[body] = timing.send(body, value).msg_id, clock.now + value
            elif kind == "cancel" and value < len(ids):
                body = list(ids)[value]
                if timing.timers.cancel("t", ids[body]):
                    del pending[body]
            elif kind == "wait":
                clock.now += value
            elif kind == "run":
                timing.run()
            elif kind == "end":
                found = places(timing)
                delivered = set(timing.bodies())
                timing.close()
                wheel = Wheel(path)
                come = [found[at] for _, at, _ in wheel.dequeued()]
                assert sorted(come) == sorted(pending.keys() - delivered)
                over = {found[at]: slot + 1000 for slot, at, m in wheel.dequeued() if m == 1}
                assert all(pending[body] <= end for body, end in over.items())
                timing = Timing(path, clock)
        timing.close()


@pytest.mark.parametrize("step", share(range(0, 60, 2), 5))
def test_crash_during_close_loses_no_timer(path, clock, monkeypatch, step):
    """In the worst case, a broker then reads the whole queue again."""
    timing = Timing(path, clock)
    timing.send(b"a", HOUR)
    timing.close()
    timing = Timing(path, clock)
    timing.send(b"b", 2 * HOUR)
    timing.send(b"c", 5)
    clock.now += 5
    timing.run()
    found = places(timing)
    with monkeypatch.context() as patch:
        DyingAt(patch, step, half=False)
        with contextlib.suppress(DeathError):
            timing.close()
    wheel = Wheel(path)
    offset = wheel.check.queue_offset
    come = {found[at] for _, at, _ in wheel.dequeued()}
    assert come >= set([b"a", b"b"][:offset])


def test_failed_handover_does_not_prevent_clean_shutdown(path, clock, caplog):
    timing = Timing(path, clock)
    timing.send(b"a", HOUR)
    timing.store.flush()
    (path / "timerlog").write_bytes(b"in the way")
    timing.close()
    assert "twice" in caplog.text
    assert not (path / "abort").exists()
    clock.now += HOUR
    with Timing(path, clock) as again:
        again.run()
        assert again.bodies() == [b"a"]


def test_timers_delivered_by_a_broker_are_not_delivered_again(path, clock):
    timing = Timing(path, clock)
    for number, after in enumerate([1000, 5000, HOUR]):
        timing.send(b"%d" % number, after)
    timing.close()
    clock.now += 4000
    check = TimerCheck(clock.now - clock.now % 1000, 0, 3)
    (path / "config" / "timercheck").write_bytes(encode_timer_check(check))
    reboot(path)
    with Timing(path, clock) as again:
        clock.now += 2 * HOUR
        again.run()
        assert again.bodies() == [b"1", b"2"]


def test_listing_pending_messages_of_a_broker_store_writes_nothing(path, clock):
    timing = Timing(path, clock)
    for number, after in enumerate([1000, 5000, HOUR]):
        timing.send(b"%d" % number, after)
    timing.close()
    shutil.rmtree(path / "pyrocket")
    check = TimerCheck(clock.now + 4000, 0, 2)
    (path / "config" / "timercheck").write_bytes(encode_timer_check(check))
    with Store.open(path, read_only=True, config=SMALL, clock=clock) as store:
        assert [one.due_ms - clock.now for one in store.timers.pending()] == [5000, HOUR]


def test_blank_units_have_the_bytes_that_rocketmq_writes():
    """`TimerLog.BLANK_MAGIC_CODE` is -875286124."""
    magic = (-875286124).to_bytes(4, "big", signed=True)
    assert java_timers.encode_timer_blank(68) == bytes([0, 0, 0, 68]) + bytes(8) + magic
