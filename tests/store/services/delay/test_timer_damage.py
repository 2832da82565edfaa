"""If the timer index is damaged, it is rebuilt from the log; each timer is delivered once."""

import os
import shutil

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.services.delay import timer_index
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.shares import share
from support.stores import reboot
from support.timing import HOUR, Timing, park

WAITING, DELIVERED = 10, 4


def flip(folder):
    file = buckets_of(folder)[1]
    data = bytearray(file.read_bytes())
    data[50] ^= 1
    with file.open("r+b") as out:
        out.write(data)


def cut(folder):
    os.truncate(buckets_of(folder)[1], 100)


def cut_at_an_entry(folder):
    os.truncate(buckets_of(folder)[1], 96)


def empty(folder):
    os.truncate(buckets_of(folder)[1], 0)


def remove(folder):
    buckets_of(folder)[1].unlink()


def remove_the_last(folder):
    buckets_of(folder)[-1].unlink()


def zero(folder):
    file = buckets_of(folder)[1]
    with file.open("r+b") as out:
        out.write(bytes(file.stat().st_size))


def extend(folder):
    with buckets_of(folder)[1].open("ab") as out:
        out.write(b"\xa5" * 77)


def shift(folder):
    file = buckets_of(folder)[1]
    file.write_bytes(b"x" + file.read_bytes())


def remove_all(folder):
    shutil.rmtree(folder)


def remove_the_tally(folder):
    (folder / "tally").unlink()


def cut_the_tally(folder):
    os.truncate(folder / "tally", 79)


def flip_the_tally(folder):
    data = bytearray((folder / "tally").read_bytes())
    data[16] ^= 1
    (folder / "tally").write_bytes(data)


HARMFUL = [flip, cut, cut_at_an_entry, empty, remove, remove_the_last, zero, shift, remove_all]
DAMAGES = [*HARMFUL, extend, remove_the_tally, cut_the_tally, flip_the_tally]


def buckets_of(folder):
    return sorted(folder.glob("0*"))


@pytest.fixture
def path(path, clock):
    """A store with five timers per hour, of which the first few are delivered."""
    with Timing(path, clock) as timing:
        for number in range(DELIVERED + WAITING):
            timing.send(b"%d" % number, (number + 1) * HOUR // 5)
        clock.now += DELIVERED * HOUR // 5
        timing.run()
        timing.close()
    return path


def all_bodies(timing, clock):
    for _ in range(6):
        clock.now += HOUR
        timing.run()
    return timing.bodies()


WANTED = [b"%d" % number for number in range(DELIVERED + WAITING)]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("then", share(["power", "same boot", "next boot", "copy"], 1))
def test_no_timer_is_lost_or_delivered_twice(path, clock, tmp_path, damage, then):
    damage(path / "pyrocket" / "timers")
    if then == "copy":
        path = shutil.copytree(path, tmp_path / "copy")
    elif then in ("next boot", "power"):
        reboot(path)
    if then == "power":
        (path / "abort").touch()
    with Timing(path, clock) as again:
        assert all_bodies(again, clock) == WANTED
        assert again.timers.count() == 0


@pytest.mark.parametrize("damage", share(HARMFUL, 2))
def test_damaged_index_is_rebuilt_while_the_store_is_open(path, clock, damage, caplog):
    with Timing(path, clock) as timing, Timing(path, clock) as other:
        timing.next_due()
        other.next_due()
        damage(path / "pyrocket" / "timers")
        assert other.timers.count() == WAITING
        assert all_bodies(timing, clock) == WANTED
        assert other.run() == 0
    assert "rebuilt from the log" in caplog.text


@pytest.mark.parametrize("damage", HARMFUL[::3])
def test_pending_timers_are_listed_even_if_the_index_is_damaged(path, clock, damage):
    damage(path / "pyrocket" / "timers")
    with Store.open(path, read_only=True, clock=clock) as store:
        assert store.timers.count() == WAITING


def test_a_cancellation_stays_valid_after_the_index_is_damaged(path, clock):
    with Timing(path, clock) as timing:
        sent = timing.send(b"gone", 2 * HOUR)
        timing.run()
        remove(path / "pyrocket" / "timers")
        assert timing.timers.cancel("t", sent.msg_id)
        remove(path / "pyrocket" / "timers")
        assert all_bodies(timing, clock) == WANTED


def test_pending_timers_with_a_due_time_before_the_cursor_are_not_lost(path, clock, monkeypatch):
    """By their due times alone, they would be considered delivered."""
    with Timing(path, clock) as timing:
        clock.now += HOUR
        timing.run()
        done, cursor = timing.bodies(), timing.cursor()
        late = {"REAL_TOPIC": "t", "REAL_QID": "0", "TIMER_OUT_MS": str(cursor[1] - 2000)}
        with monkeypatch.context() as patch:
            patch.setattr(timing.service, "_deliver", lambda *_: 0)
            park(timing, late, b"late")
            timing.run()
        assert timing.cursor() == (cursor[0] + 1, *cursor[1:])
        shutil.rmtree(path / "pyrocket" / "timers")
        with Timing(path, clock) as other:
            other.run()
            assert other.bodies() == [*done, b"late"]


def test_timers_delivered_before_the_clock_was_set_back_are_not_delivered_again(path, clock):
    with Timing(path, clock) as timing:
        clock.now += 2 * HOUR
        timing.run()
        done = timing.bodies()
        clock.now -= 2 * HOUR
        timing.send(b"new", 4 * HOUR)
        timing.run()
        assert timing.cursor()[1] == clock.now
        shutil.rmtree(path / "pyrocket" / "timers")
        clock.now += HOUR
        with Timing(path, clock) as other:
            other.run()
            assert other.bodies() == done


def test_torn_entries_after_a_crash_are_not_damage(path, clock, caplog):
    with Timing(path, clock) as timing:
        with buckets_of(path / "pyrocket" / "timers")[1].open("ab") as out:
            out.write(bytes(48) + b"torn" * 20)
        with (path / "pyrocket" / "timers" / "tally").open("ab") as out:
            out.write(b"torn" * 31)
        timing.send(b"24", 25 * HOUR // 5)
        assert all_bodies(timing, clock) == [*WANTED, b"24"]
    assert not caplog.text


@pytest.mark.parametrize("damage", [*share(HARMFUL, 2), remove_the_tally])
def test_verify_reports_a_damaged_timer_index_and_repair_rebuilds_it(path, clock, damage):
    assert verify(path).ok
    damage(path / "pyrocket" / "timers")
    assert [one.code for one in verify(path).findings] == ["TIMERS_DAMAGED"]
    repair(path)
    assert verify(path).ok
    with Timing(path, clock) as timing:
        assert all_bodies(timing, clock) == WANTED


def test_verify_accepts_a_snapshot_and_a_copied_directory(path, tmp_path, clock):
    with Store.open(path, clock=clock) as store:
        store.snapshot(tmp_path / "snapshot")
    assert verify(tmp_path / "snapshot").ok
    shutil.copytree(path, tmp_path / "copy")
    assert verify(tmp_path / "copy").ok


def test_the_tally_file_stays_short(path, clock, monkeypatch):
    monkeypatch.setattr(timer_index, "_FEW_ROWS", 10)
    with Timing(path, clock) as timing:
        for number in range(60):
            timing.send(b"-", 20 * HOUR + number)
            timing.run()
        tally = TimerIndex(Layout(path).timers).tally
        assert tally.path.stat().st_size < 60 * 40
        timing.store.flush()
        timing.close()
    assert verify(path).ok
