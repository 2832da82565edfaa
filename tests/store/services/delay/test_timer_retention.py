"""Log files with pending timers are deleted, and no timer is lost."""

from dataclasses import replace

import pytest
from pyrocket.base.config import Retention
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.shares import share
from support.slices import decoded
from support.stores import SMALL, batch, reboot
from support.timing import DAY, HOUR, TIMER, Timing


@pytest.fixture
def timing(path, clock):
    with Timing(path, clock) as timing:
        yield timing


def fill(timing, files=1):
    """Append until the log has `files` more files."""
    count = len(list((timing.store.path / "commitlog").iterdir())) + files
    while len(list((timing.store.path / "commitlog").iterdir())) < count:
        timing.store.append_batch(batch([b"." * 3000], 1), topic="t")


def parked(timing):
    """The properties of the messages in the timer topic."""
    known = inner(timing.store).reader.system_offsets(TIMER)
    return [
        row["properties"]
        for part in decoded(
            inner(timing.store).reader.records(TIMER, 0, known.minimum, known.maximum),
            ["properties"],
        )
        for row in part.to_pylist()
    ]


@pytest.mark.parametrize("indexed", [False, True])
def test_pending_timers_are_re_appended_before_files_are_deleted(timing, clock, indexed):
    for number in range(5):
        timing.send(b"%d" % number, DAY + number // 2)
    if indexed:
        timing.run()
    fill(timing, 3)
    first = inner(timing.store).reader.log.first_offset()
    timing.store.clean(total_bytes=4096)
    assert inner(timing.store).reader.log.first_offset() > first
    assert timing.timers.count() == 5
    assert len(parked(timing)) == 5, "each exists once"
    clock.now += DAY + 10
    timing.run()
    assert timing.bodies() == [b"%d" % number for number in range(5)]


def test_a_timer_a_month_ahead_survives_three_days_of_retention(path, clock):
    config = replace(SMALL, retention=Retention(hours=72, at_hours=tuple(range(24))))
    with Timing(path, clock, config) as timing:
        timing.send(b"month", 30 * DAY, keys=["k"], tags="red")
        for day in range(30):
            timing.run()
            assert timing.bodies() == []
            fill(timing)
            clock.now += DAY
            if day % 7 == 3:
                timing.close()
                timing = Timing(path, clock, config)
        oldest = inner(timing.store).reader.log.first_offset()
        assert oldest > 10 * 4096, "files were deleted"
        timing.run()
        (one,) = timing.store.read("t", 0, timing.store.min_offset("t", 0))
        assert (one.body, one.keys, one.tags) == (b"month", ("k",), "red")
        assert int(one.properties["TIMER_ROLL_TIMES"]) >= 7


def test_cancelled_timers_are_not_re_appended(timing, clock):
    gone, kept = timing.send(b"gone", DAY), timing.send(b"kept", DAY)
    assert timing.timers.cancel("t", gone.msg_id)
    fill(timing, 2)
    timing.store.clean(total_bytes=4096)
    assert len(parked(timing)) == 1
    assert timing.timers.cancel("t", kept.msg_id), "the copy can also be cancelled"
    clock.now += DAY
    timing.run()
    assert timing.bodies() == []


def test_delivered_timers_are_not_re_appended(timing, clock):
    timing.send(b"x", 1000)
    clock.now += 1000
    timing.run()
    fill(timing, 2)
    timing.store.clean(total_bytes=4096)
    assert parked(timing) == []


def test_message_without_room_for_roll_times_is_kept(timing, clock):
    timing.send(b"x", DAY, properties={"p": "v" * 3700})
    fill(timing, 2)
    timing.store.clean(total_bytes=4096)
    clock.now += DAY
    timing.run()
    (one,) = timing.store.read("t", 0, timing.store.min_offset("t", 0))
    assert one.body == b"x"


@pytest.mark.parametrize("step", share(range(24), 4))
@pytest.mark.parametrize("after", ["kill", "power"])
def test_crash_during_cleaning_delivers_each_timer_once(path, clock, monkeypatch, step, after):
    timing = Timing(path, clock)
    for number in range(4):
        timing.send(b"%d" % number, HOUR + number)
    gone = timing.send(b"gone", HOUR)
    fill(timing, 2)
    timing.timers.cancel("t", gone.msg_id)
    with monkeypatch.context() as patch:
        DyingAt(patch, step, half=step % 2)
        try:
            timing.store.clean(total_bytes=4096)
        except DeathError:
            pass
        else:
            assert step > 6
    timing.close(clean=False)
    if after == "power":
        reboot(path)
    with Timing(path, clock) as again:
        again.run()
        assert again.timers.count() == 4
        clock.now += HOUR + 10
        again.run()
        assert again.bodies() == [b"0", b"1", b"2", b"3"]
