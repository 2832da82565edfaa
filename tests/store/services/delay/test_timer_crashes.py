"""A crash at any step of indexing, delivering or cancelling timers loses no timer."""

import pytest
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreUnavailableError
from pyrocket.services.delay.timer_index import TimerIndex
from support.dying import DeathError, DyingAt
from support.shares import share
from support.stores import reboot
from support.timing import HOUR, Timing

FIRST = [b"0", b"2", b"1"]


@pytest.mark.parametrize("step", share(range(20), 4))
@pytest.mark.parametrize("after", ["kill", "power"])
@pytest.mark.parametrize("half", [False, True])
def test_crash_during_delivery_delivers_each_timer_once(
    path, clock, monkeypatch, step, after, half
):
    timing = Timing(path, clock)
    for number, late in enumerate([1000, 2 * HOUR, 1000, 3 * HOUR]):
        timing.send(b"%d" % number, late)
    clock.now += 2 * HOUR
    with monkeypatch.context() as patch:
        DyingAt(patch, step, half)
        try:
            timing.run()
        except DeathError:
            pass
        else:
            assert step > 4
    timing.close(clean=False)
    if after == "power":
        reboot(path)
    with Timing(path, clock) as again:
        again.run()
        assert again.bodies() == FIRST
        clock.now += HOUR
        again.run()
        assert again.bodies() == [*FIRST, b"3"]


@pytest.mark.parametrize("step", range(8))
def test_an_interrupted_cancellation_cancels_the_timer_or_changes_nothing(
    path, clock, monkeypatch, step
):
    timing = Timing(path, clock)
    gone = timing.send(b"gone", 1000)
    with monkeypatch.context() as patch:
        DyingAt(patch, step, half=False)
        try:
            cancelled = timing.timers.cancel("t", gone.msg_id)
        except DeathError:
            cancelled = None
    timing.close(clean=False)
    with Timing(path, clock) as again:
        pending = again.timers.count()
        assert cancelled is None or pending == 0
        clock.now += 1000
        again.run()
        assert len(again.bodies()) == pending


def test_full_disk_delays_delivery_and_loses_nothing(path, clock, monkeypatch):
    with Timing(path, clock) as timing:
        timing.send(b"x", 1000)
        clock.now += 1000

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(io, "write_at", full)
            with pytest.raises(StoreUnavailableError):
                timing.run()
        timing.run()
        assert timing.bodies() == [b"x"]


def test_index_files_are_deleted_after_their_deliveries_are_durable(path, clock):
    index = TimerIndex(Layout(path).timers)
    with Timing(path, clock) as timing:
        for hours in range(1, 6):
            timing.send(b"%d" % hours, hours * HOUR)
        timing.run()
        assert len(index.starts()) == 5
        for _ in range(4):
            clock.now += HOUR
            timing.run()
        assert len(index.starts()) == 5, "no delivery has been flushed"
        timing.store.flush()
        clock.now += HOUR
        timing.run()
        assert len(index.starts()) == 2
        timing.close()
        reboot(path)
    with Timing(path, clock) as again:
        assert again.run() == 0
        assert again.bodies() == [b"%d" % hours for hours in range(1, 6)]
