"""Opening a store never removes a complete durable message, and damage affects no other message."""

import errno
import itertools
import shutil
import subprocess
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.log import salvage
from pyrocket.log.salvage import cut_messages
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.damage import readable
from support.shares import FEW_STEPS, share
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    next_boot,
    numbered,
    overwrite,
    reboot,
)

DURABLE, MORE, BODY_AT = 100, 30, 88


def files_of(path):
    """Return the contents of all files that a failed recovery must not change."""
    changing = {"state", "mutex", "turnstile", "flush", "tmp", "unclean.json"}
    return {
        file.relative_to(path): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not changing & {*file.relative_to(path).parts}
    }


def place_of(path, offset):
    with Store.open(path, read_only=True) as store:
        return store.read("t", 0, offset, 1)[0].physical_offset


def damage(path, *offsets, at=BODY_AT):
    """Flip a bit in each of the messages with these queue offsets."""
    for place in [place_of(path, offset) for offset in offsets]:
        file = next(each for each in log_files(path) if int(each.name) == place - place % 4096)
        overwrite(file, bytes([file.read_bytes()[place % 4096 + at] ^ 1]), place % 4096 + at)


def kill(path):
    """Append more messages, and leave the store as if the process were killed."""
    store = Store.open(path, config=SMALL)
    store.append_batch(batch(numbered(MORE, first=DURABLE), 0), topic="t")
    store.close(clean=False)


def same_boot(path):
    return path


def other_boot(path):
    reboot(path)
    return path


def copied(path):
    target = path.with_name("copy")
    subprocess.run(["cp", "-a", path, target], check=True)
    return target


def after_java(path):
    """Change the lock file and write a checkpoint for all flushed messages, like a broker."""
    lock = path / "lock"
    lock.unlink()
    lock.write_bytes(b"lock")
    with Store.open(path, read_only=True) as store:
        last = store.read("t", 0, store.max_offset("t", 0) - 1)[0].store_timestamp
    times = encode_checkpoint(Checkpoint(last + 4000, last + 4000, last + 4000))
    (path / "checkpoint").write_bytes(times)
    Layout(path).own_checkpoint.unlink()
    return path


@pytest.fixture
def path(tmp_path, clock):
    """A store of a hundred durable messages that was shut down cleanly."""
    store = filled(tmp_path / "store", count=DURABLE, clock=clock)
    clock.now += 60_000
    store.close()
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("boot", "end"),
    [
        (same_boot, "clean"),
        (same_boot, "killed"),
        (other_boot, "killed"),
        (after_java, "clean"),
        (after_java, "killed"),
    ],
)
def test_damage_before_the_durable_end_loses_no_other_message(path, end, boot):
    if end == "killed":
        kill(path)
    everything = readable(path)
    damage(path, DURABLE - 10)
    if boot is same_boot and end == "clean":
        next_boot(path)
    path = boot(path)
    left = {at: body for at, body in everything.items() if at != DURABLE - 10}
    assert readable(path) == left
    before = files_of(path)
    if boot is same_boot or (boot is after_java and end == "killed"):
        # The shared state is valid, or the checkpoint covers the file: the damage is not checked.
        Store.open(path).close()
    else:
        for _ in range(2):
            with pytest.raises(StoreDamagedError) as caught:
                Store.open(path)
            assert caught.value.code == "LOG_DAMAGED"
            assert f"{len(everything) - DURABLE + 9} complete records" in caught.value.message
            assert "checksum mismatch of the body" in caught.value.message
            assert "pyrocket repair" in caught.value.remedy
            assert files_of(path) == before
    assert readable(path) == left
    repair(path)
    assert readable(path) == left
    assert [*verify(path).counts] == ["LOG_PLACEHOLDER"]
    reboot(path)
    with Store.open(path) as store:
        assert store.append(message(b"on")).queue_offset == len(everything)
    assert readable(path) == {**left, len(everything): b"on"}


@pytest.mark.parametrize("boot", [copied, after_java])
def test_damage_after_the_durable_end_is_truncated_and_the_tail_is_saved(path, boot, caplog, clock):
    kill(path)
    damage(path, DURABLE + 10)
    path = boot(path)
    if boot is after_java:
        times = encode_checkpoint(Checkpoint(clock.now - 10_000, clock.now - 10_000, 0))
        (path / "checkpoint").write_bytes(times)
    with Store.open(path, clock=clock) as store:
        assert bodies(store)[0] == numbered(DURABLE + 10)
        assert store.history.epoch == 1
        assert store.history.cut_since(0, "t", 0) == DURABLE + 10
    (kept,) = (path / "pyrocket").glob("cut-*")
    assert [each.body for each in cut_messages(kept)] == numbered(MORE - 11, first=DURABLE + 11)
    assert f"{MORE - 11} complete records that were not durable yet" in caplog.text
    assert "that were durable are missing" not in caplog.text
    assert verify(path).ok


def test_a_tail_that_a_full_disk_cannot_hold_is_truncated(path, monkeypatch, caplog):
    """The tail was never acknowledged as durable, and only the recovery can free space."""
    kill(path)
    damage(path, DURABLE + 10)
    reboot(path)

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(salvage, "keep_cut", full)
        with Store.open(path, config=SMALL) as store:
            assert bodies(store)[0] == numbered(DURABLE + 10)
    assert "could not be saved" in caplog.text
    assert not [*(path / "pyrocket").glob("cut-*")]


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_missing_durable_bytes_are_logged_and_start_an_epoch(path, end, caplog):
    """The disk lost its last pages, or the log of a copy is older than its `ends.json`."""
    if end == "killed":
        (path / "abort").touch()
    with Store.open(path, read_only=True) as store:
        last = store.read("t", 0, DURABLE - 1)[0]
    lost = last.physical_offset + last.store_size - place_of(path, 80)
    end_of_log = place_of(path, 80)
    for file in log_files(path):
        kept = max(0, min(4096, end_of_log - int(file.name)))
        file.write_bytes(file.read_bytes()[:kept].ljust(4096, b"\0"))
    reboot(path)
    (finding,) = [each for each in verify(path).findings if each.code == "LOG_ENDS_EARLY"]
    assert f"{lost} bytes are missing" in finding.what
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(80)
        assert store.history.epoch == 1
        assert store.history.cut_since(0, "t", 0) == 80
        assert store.append(message(b"on")).queue_offset == 80
    (error,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert f"{lost} bytes that were durable are missing" in error.message
    assert verify(path).ok


def test_a_copy_taken_during_appends_can_be_opened_whatever_was_copied_first(path, clock):
    """The log may be copied before an append and `ends.json` after it, or the other way round."""
    older = shutil.copytree(path, path.with_name("older"))
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.append_batch(batch(numbered(MORE, first=DURABLE), 0), topic="t")
        store.flush()
        clock.now += 120_000
        store.append(message(b"last"))
        store.flush()
        newer = shutil.copytree(path, path.with_name("newer"))
    for log, own in itertools.permutations((older, newer)):
        mixed = shutil.copytree(log, path.with_name(f"mixed-{log.name}"), symlinks=True)
        shutil.rmtree(mixed / "pyrocket")
        subprocess.run(["cp", "-a", own / "pyrocket", mixed / "pyrocket"], check=True)
        (mixed / "abort").touch()
        with Store.open(mixed, config=SMALL) as store:
            assert bodies(store)[0][:DURABLE] == numbered(DURABLE)
        assert verify(mixed).ok


def test_records_that_a_broker_left_after_the_end_of_its_log_do_not_prevent_writing(path):
    """A broker does not overwrite the rest of a log that it truncates."""
    cut, file_bytes = place_of(path, 50), SMALL.log_file_bytes
    later = path.with_name("later")
    with filled(later, count=1) as store:
        placed = store.read("t", 0, 0)[0]
    record = bytearray(log_files(later)[0].read_bytes()[: placed.store_size])
    record[20:28] = (50).to_bytes(8, "big")
    record[28:36] = cut.to_bytes(8, "big")
    record[56:64] = (2_000_000_000_000).to_bytes(8, "big")
    file = next(each for each in log_files(path) if int(each.name) == cut - cut % file_bytes)
    overwrite(file, record[:-1] + b"\0" * 9, cut % file_bytes)
    overwrite(file, record, cut % file_bytes)
    for queue_file in (path / "consumequeue/t/0").iterdir():
        if int(queue_file.name) >= 50 * 20:
            queue_file.unlink()
    for later_file in log_files(path)[log_files(path).index(file) + 1 :]:
        later_file.unlink()
    after_java(path)
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert store.max_offset("t", 0) == 51


@pytest.mark.parametrize("step", [1000, -1000], ids=["clock goes on", "clock is set back"])
def test_only_the_newest_tails_are_kept(path, clock, step, monkeypatch):
    monkeypatch.setattr(salvage, "MAX_TAILS", 2)
    for number in range(4):
        store = Store.open(path, config=SMALL, clock=clock)
        end = store.max_offset("t", 0)
        store.append_batch(batch(numbered(3, first=number), 0), topic="t")
        store.close(clean=False)
        damage(path, end + 1)
        reboot(path)
        clock.now += step
    Store.open(path, config=SMALL, clock=clock).close()
    kept = sorted((path / "pyrocket").glob("cut-*"))
    assert len(kept) == 2
    newest = numbered(3, first=3)[2]
    assert newest in [message.body for each in kept for message in cut_messages(each)]
    assert all(len([*cut_messages(each)]) == 1 for each in kept)


def test_messages_around_an_invalid_size_and_before_a_torn_end_are_read(path):
    start, places = int(log_files(path)[0].name), [place_of(path, at) for at in range(4)]
    data = bytearray(log_files(path)[0].read_bytes()[: places[3] + 60 - start])
    data[places[1] - start : places[1] - start + 4] = bytes(4)
    kept = path / "pyrocket" / f"cut-1700000000000-{start}.tail"
    kept.write_bytes(data)
    assert [each.body for each in cut_messages(kept)] == [numbered(3)[0], numbered(3)[2]]


def test_groups_do_not_skip_messages_that_are_stored_after_a_repair_truncated_the_log(path):
    with Store.open(path, config=SMALL) as store:
        store.groups.commit("g", "t", {0: DURABLE})
    damage(path, 10)
    repair(path, cut=True)
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(DURABLE), 0), topic="t")
        assert store.groups.committed("g", "t") == {0: 10}


def test_messages_with_a_wrong_queue_are_replaced(path):
    """The checksum does not cover the queue id, but the entries of the queue show it."""
    wrong = range(10, 13)
    damage(path, *wrong, at=15)
    reboot(path)
    assert repair(path).after.ok
    assert verify(path).ok
    everything = dict(enumerate(numbered(DURABLE)))
    assert readable(path) == {at: body for at, body in everything.items() if at not in wrong}


@pytest.mark.parametrize("queues", ["kept", "lost"])
@pytest.mark.parametrize(
    "lost", share([range(10, 11), range(10, 30), range(60, 100), range(3)], 2), ids=str
)
@pytest.mark.parametrize("property_crc", [False, True])
def test_a_repair_skips_many_damaged_messages_with_and_without_the_files_of_their_queue(
    tmp_path, clock, queues, lost, property_crc
):
    """Without queue files, gaps in the log show which messages are lost if the last is complete."""
    path, config = tmp_path / "many", replace(SMALL, property_crc=property_crc)
    filled(path, count=DURABLE, config=config, clock=clock).close()
    start, end = place_of(path, lost.start), place_of(path, min(lost.stop, DURABLE - 1))
    for file in log_files(path):
        first = int(file.name)
        low, high = max(start, first), min(end, first + 4096)
        if low < high:
            overwrite(file, b"\xab" * (high - low), low - first)
    if queues == "lost":
        shutil.rmtree(path / "consumequeue")
    reboot(path)
    left = {at: body for at, body in enumerate(numbered(DURABLE)) if at not in lost}
    left[DURABLE - 1] = numbered(DURABLE)[-1]
    if queues == "lost" and not lost.start:
        return  # There is no evidence that the first messages of a queue existed.
    repair(path)
    assert verify(path).ok
    assert readable(path) == left
    with Store.open(path, config=SMALL) as store:
        assert store.append(message(b"on")).queue_offset == DURABLE
    shutil.rmtree(path / "consumequeue")
    reboot(path)
    Store.open(path).close()
    assert readable(path) == {**left, DURABLE: b"on"}


@pytest.mark.parametrize("every", FEW_STEPS)
def test_a_repair_that_is_killed_while_it_skips_damage_is_repeated(path, monkeypatch, every):
    damage(path, 10, 40)
    reboot(path)
    left = readable(path)
    image = shutil.copytree(path, path.with_name("image"))
    from pyrocket.disk import io

    for step in itertools.count(0, every):
        shutil.rmtree(path)
        shutil.copytree(image, path)
        count = itertools.count()
        with monkeypatch.context() as patch:
            real = io.write_at

            def write_at(descriptor, data, offset, real=real, count=count, step=step):
                if next(count) == step:
                    real(descriptor, bytes(data)[: len(data) // 2], offset)
                    raise ZeroDivisionError
                real(descriptor, data, offset)

            patch.setattr(io, "write_at", write_at)
            try:
                repair(path)
            except ZeroDivisionError:
                done = False
            else:
                done = True
        repair(path)
        assert verify(path).ok
        assert readable(path) == left
        if done:
            assert step > 4
            return
