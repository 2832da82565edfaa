"""After a power failure or in a copy, each timer is delivered once, whatever state was saved."""

import random

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.formats.checked_json import decode_own
from pyrocket.services.delay.timer_index import TimerIndex
from support.inner import inner
from support.stores import reboot
from support.timing import DAY, HOUR, Timing


def numbered(timing, afters):
    """Send timers with the numbers 0, 1, … as bodies."""
    for number, after in enumerate(afters):
        timing.send(b"%d" % number, after)


def lose_power(timing):
    """Lose the shared state; everything written to files is kept."""
    timing.close(clean=False)
    reboot(timing.store.path)


def checkpoint(timing):
    """Write a checkpoint."""
    timing.clock.now += 60_000
    timing.send(b"-", 0)
    timing.store.flush()


@pytest.fixture
def timing(path, clock):
    return Timing(path, clock)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_pending_timers_are_delivered_after_recovery(timing, path, clock, indexed, saved):
    numbered(timing, [70_000, DAY, HOUR])
    if indexed:
        timing.run()
    if saved:
        checkpoint(timing)
    lose_power(timing)
    with Timing(path, clock) as again:
        clock.now += DAY
        again.run()
        assert [body for body in again.bodies() if body != b"-"] == [b"0", b"2", b"1"]


@pytest.mark.parametrize("saved", ["before all", "before the first", "between", "never"])
def test_messages_delivered_since_the_checkpoint_are_not_delivered_again(
    timing, path, clock, saved
):
    if saved == "before all":
        checkpoint(timing)
    numbered(timing, [100_000, 200_000, 300_000, DAY])
    timing.run()
    if saved == "before the first":
        checkpoint(timing)
    clock.now += 100_000
    timing.run()
    if saved == "between":
        checkpoint(timing)
    clock.now += 100_000
    timing.run()
    lose_power(timing)
    with Timing(path, clock) as again:
        again.run()
        clock.now += DAY
        again.run()
        assert [body for body in again.bodies() if body != b"-"] == [b"0", b"1", b"2", b"3"]
        assert again.run() == 0


def test_a_message_with_the_id_of_a_delivered_message_is_delivered(
    timing, path, clock, monkeypatch
):
    """A producer may send the same message twice with different due times."""
    ids = inner(timing.store).encoder._ids
    monkeypatch.setattr(ids, "one", lambda: "A" * 32)
    numbered(timing, [1000, 2000])
    clock.now += 1000
    timing.run()
    lose_power(timing)
    with Timing(path, clock) as again:
        clock.now += 1000
        again.run()
        assert again.bodies() == [b"0", b"1"]


def test_late_timers_that_were_delivered_are_not_delivered_again(timing, path, clock):
    numbered(timing, [5000])
    clock.now += 5000
    timing.run()
    clock.now -= 4000
    timing.send(b"b", 1)
    clock.now += 4000
    timing.run()
    lose_power(timing)
    with Timing(path, clock) as again:
        clock.now += DAY
        again.run()
        assert again.bodies() == [b"0", b"b"]


def test_entries_after_saved_queue_offset_are_erased(timing, path, clock):
    """The entries may belong to lost messages whose queue offsets were reassigned."""
    checkpoint(timing)
    numbered(timing, [HOUR, 2 * HOUR])
    timing.run()
    lose_power(timing)
    index = TimerIndex(Layout(path).timers)
    assert sum(len(part) for start in index.starts() for part in index.parts(start)) == 2
    with Store.open(path, clock=clock):
        left = [part for start in index.starts() for part in index.parts(start)]
        assert not any(map(len, left))


def test_an_intact_index_is_not_rebuilt(timing, path, clock, monkeypatch):
    numbered(timing, [HOUR, DAY])
    timing.run()
    lose_power(timing)
    monkeypatch.delattr(TimerIndex, "clear")
    with Timing(path, clock) as again:
        clock.now += DAY
        again.run()
        assert again.bodies() == [b"0", b"1"]


def test_queue_offset_is_saved_only_after_index_is_flushed(timing, monkeypatch):
    synced = []
    monkeypatch.setattr(TimerIndex, "sync", lambda self: synced.append(json_of(timing)))
    numbered(timing, [HOUR])
    timing.run()
    timing.close()
    assert "timed" not in synced[0]
    assert json_of(timing)["timed"] == 1


def json_of(timing):
    path = timing.store.path / "pyrocket" / "cursors.json"
    return decode_own(path, path.read_bytes()) if path.exists() else {}


def test_torn_entries_are_ignored_and_do_not_delay_other_timers(timing, path, clock):
    numbered(timing, [1000, 2000])
    timing.run()
    (file,) = (path / "pyrocket" / "timers").glob("0*")
    data = file.read_bytes()
    with file.open("ab") as out:
        out.write(data[:17])
    timing.send(b"2", 1500)
    timing.run()
    assert len(file.read_bytes()) == 3 * 48
    with file.open("ab") as out:
        out.write(random.Random(3).randbytes(96))
    timing.send(b"3", 1700)
    clock.now += 2000
    timing.run()
    assert timing.bodies() == [b"0", b"2", b"3", b"1"]
    timing.close(clean=False)
