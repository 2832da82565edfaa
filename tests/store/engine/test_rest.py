"""After a clean shutdown a store opens without recovery, even after a reboot."""

import shutil
from itertools import product

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    APPEND_NS,
    APPENDS,
    DISPATCHED,
    FLUSHED,
    FLUSHED_APPENDS,
    GROUP,
    HALF_CURSOR,
    NEXT_DUE,
    PUBLISHED,
    RESERVED,
    REST_SUM,
    RESTED,
    STORE_TIME,
    SYNC_NS,
    SYNCING,
    TIMER_QUEUE_OFFSET,
    SharedState,
    level_field,
)
from pyrocket.errors import StoreDamagedError
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.metadata.queue_ends import Shortfall
from pyrocket.tools.verify.verify import verify
from support.shares import share
from support.stores import (
    SMALL,
    FakeClock,
    batch,
    bodies,
    filled,
    log_files,
    message,
    next_boot,
    numbered,
    overwrite,
    queue_files,
    words,
)


@pytest.fixture
def rested(tmp_path, recoveries):
    """A store of 40 messages that was closed cleanly, in an earlier boot."""
    path = tmp_path / "store"
    filled(path).close()
    next_boot(path)
    recoveries.clear()
    return path


def reopened(path):
    """Open for writing, check that all messages exist and appends continue, and close."""
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(40)
        assert store.append(message(b"next")).queue_offset == 40


def test_after_a_clean_shutdown_the_next_boot_does_not_recover(rested, recoveries):
    reopened(rested)
    assert recoveries == []


def test_an_unclean_shutdown_is_recovered_in_the_next_boot(rested, recoveries):
    store = Store.open(rested, config=SMALL)
    store.append(message(b"more"))
    page = words(rested)
    assert page[RESTED] == 0
    page.close()
    store.close(clean=False)
    next_boot(rested)
    Store.open(rested, config=SMALL).close()
    assert recoveries == [False]


@pytest.mark.parametrize("clean", [True, False])
def test_a_state_restored_from_an_older_copy_hides_no_messages(tmp_path, recoveries, clean):
    """The state file is overwritten in the same boot, and keeps its inode."""
    path = tmp_path / "store"
    filled(path, count=20).close(clean=clean)
    older = Layout(path).state.read_bytes()
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(20, first=20), 0), topic="t")
        store.close(clean=clean)
    Layout(path).state.write_bytes(older)
    recoveries.clear()
    reopened(path)
    assert recoveries == [clean]


def test_a_broker_that_ran_after_a_clean_shutdown_is_detected(rested, recoveries):
    Layout(rested).lock.write_bytes(b"lock")
    reopened(rested)
    assert recoveries == [True]


def test_a_copied_store_is_recovered_when_it_is_opened(rested, recoveries, tmp_path):
    shutil.copytree(rested, tmp_path / "copy")
    reopened(tmp_path / "copy")
    assert recoveries == [True]


def test_a_log_that_continues_after_a_clean_shutdown_is_recovered(rested, recoveries):
    page = words(rested)
    last = log_files(rested)[-1]
    overwrite(last, b"\x01", page[PUBLISHED] - int(last.name) + 3)
    page.close()
    reopened(rested)
    assert recoveries == [True]


def test_a_log_that_lost_its_last_file_was_not_shut_down_cleanly(rested, recoveries):
    log_files(rested)[-1].unlink()
    with pytest.raises(StoreDamagedError, match="STORE_FILE_MISSING"):
        Store.open(rested, config=SMALL)
    assert recoveries == [True]


def test_an_abort_file_takes_precedence_over_the_state(rested, recoveries):
    Layout(rested).abort.touch()
    reopened(rested)
    assert recoveries == [False]


def test_the_state_is_durable_before_it_is_marked_clean(tmp_path, monkeypatch):
    path, done = tmp_path / "store", []
    store = filled(path)
    rest = SharedState.mark_clean

    def record(page):
        done.append(Layout(path).abort.exists())
        rest(page)

    monkeypatch.setattr(SharedState, "mark_clean", record)
    store.close()
    assert done == [True]
    assert not Layout(path).abort.exists()


def test_a_store_time_in_the_far_future_is_not_used_for_later_records(tmp_path):
    """No checksum covers the store time: a flipped bit must not affect all later messages."""
    path, clock = tmp_path / "store", FakeClock()
    with filled(path, count=3, clock=clock) as store:
        place = store.read("t", 0, 2)[0].physical_offset
    last = log_files(path)[-1]
    overwrite(last, (clock.now << 12).to_bytes(8, "big"), place - int(last.name) + 56)
    Layout(path).abort.touch()
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.append(message(b"after"))
        assert store.read("t", 0, 3)[0].store_timestamp == clock.now


def test_a_writer_that_joins_others_does_not_recover(trusted, recoveries):
    with Store.open(trusted, config=SMALL) as first:
        first.append(message(b"next", queue_id=1))
        queue_files(trusted, queue_id=0)[-1].touch()
        Store.open(trusted, config=SMALL).close()
    assert recoveries == []


AT_REST = [
    PUBLISHED,
    DISPATCHED,
    RESERVED,
    FLUSHED,
    STORE_TIME,
    RESTED,
    TIMER_QUEUE_OFFSET,
    HALF_CURSOR,
    level_field(1),
    level_field(64),
    REST_SUM,
]


@pytest.mark.parametrize(
    ("trusted", "word"), share(product([next_boot, bool], AT_REST), 11), indirect=["trusted"]
)
@pytest.mark.parametrize("bit", share([0, 5, 62], 1))
def test_a_field_that_changed_after_a_clean_shutdown_is_detected(trusted, recoveries, word, bit):
    before = bodies_of(trusted)
    page = words(trusted)
    page[word] ^= 1 << bit
    page.close()
    assert "STATE_DAMAGED" in verify(trusted).counts
    assert bodies_of(trusted) == before
    reopened(trusted)
    assert recoveries == [True]
    assert verify(trusted).ok


def test_statistics_may_change_after_a_clean_shutdown(trusted, recoveries):
    """Opening a store resets them before its state is marked dirty."""
    page = words(trusted)
    for word in (APPENDS, FLUSHED_APPENDS, GROUP, SYNC_NS, APPEND_NS, SYNCING):
        page[word] ^= 1
    page.close()
    assert verify(trusted).ok
    reopened(trusted)
    assert recoveries == []


def bodies_of(path):
    with Store.open(path, read_only=True) as store:
        return bodies(store)


def test_due_messages_are_found_with_a_corrupt_next_due(tmp_path):
    path, clock = tmp_path / "store", FakeClock()
    with filled(path, clock=clock) as store:
        store.append(message(b"later", delay_level=1))
    page = words(path)
    page[NEXT_DUE] = 2**60
    page.close()
    clock.now += 60_000
    with Store.open(path, clock=clock) as store:
        store.append(message(b"now"))
        assert sorted(bodies(store)[0])[-2:] == [b"later", b"now"]


def warnings(caplog):
    return [one.getMessage() for one in caplog.records if one.name.startswith("pyrocket.metadata")]


@pytest.mark.parametrize("boot", ["same", "next"])
def test_a_reader_warns_of_a_queue_that_has_become_shorter(tmp_path, boot, caplog):
    path = tmp_path / "store"
    filled(path).close()
    if boot == "next":
        next_boot(path)
    with Store.open(path, read_only=True) as store:
        ends = {queue: known.maximum for queue, known in store.offsets("t").items()}
    assert warnings(caplog) == []
    queue_files(path)[-1].unlink()
    with Store.open(path, read_only=True) as store:
        for _ in range(3):
            assert store.offsets("t")[0].maximum < ends[0]
    (warning,) = warnings(caplog)
    assert f"queue 0 of 't' ends at offset {(ends[0] - 1) // 10 * 10}" in warning
    assert f"ended at {ends[0]}" in warning


def test_messages_appended_after_a_reader_mapped_the_state_are_not_missed(tmp_path, caplog):
    path = tmp_path / "store"
    with filled(path) as store:
        before, seen = store.max_offset("t", 0), store.position().dispatched
        store.append_batch(batch(numbered(30), 0), topic="t")
    shortfall = Shortfall(Layout(path))
    shortfall.check(("t", 0), before, seen, int)
    assert warnings(caplog) == []
    shortfall.check(("t", 0), before, WHOLE_LOG, int)
    assert len(warnings(caplog)) == 1


def test_a_reader_without_permission_for_ends_json_reads_the_store(tmp_path, caplog):
    path = tmp_path / "store"
    filled(path).close()
    (path / "pyrocket/ends.json").unlink()
    (path / "pyrocket/ends.json").mkdir()
    with Store.open(path, read_only=True) as store:
        assert store.offsets("t")[0].maximum == 40
    assert warnings(caplog) == []


def test_a_shorter_queue_causes_no_warning_if_ends_json_was_deleted(tmp_path, caplog):
    path = tmp_path / "store"
    filled(path).close()
    shortfall = Shortfall(Layout(path))
    shortfall.check(("t", 0), 40, WHOLE_LOG, int)
    (path / "pyrocket/ends.json").unlink()
    shortfall.check(("t", 0), 30, WHOLE_LOG, int)
    assert warnings(caplog) == []
