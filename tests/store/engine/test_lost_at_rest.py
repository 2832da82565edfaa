"""Files lost or changed after a clean shutdown are detected by the next writer."""

import os
import shutil

import pytest
from pyrocket import QueueOffsets, Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.tools.verify.verify import verify
from support.sinks import publish
from support.stores import (
    SMALL,
    batch,
    bodies,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
)


def check_rebuilt(path, recoveries):
    with Store.open(path, config=SMALL) as store:
        assert bodies(store) == {0: numbered(40), 1: numbered(40)}
        assert store.append(message(b"next", queue_id=1)).queue_offset == 40
    assert len(recoveries) == 1
    Store.open(path, config=SMALL).close()
    assert len(recoveries) == 1


@pytest.mark.parametrize("abort", [False, True])
def test_a_lost_queue_is_rebuilt_before_its_offsets_are_reassigned(trusted, recoveries, abort):
    shutil.rmtree(trusted / "consumequeue/t/1")
    if abort:
        Layout(trusted).abort.touch()
    check_rebuilt(trusted, recoveries)


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_queue_of_a_system_topic_is_rebuilt_completely(open_store, path, clock, clean):
    """The topic is not in the table. Recovery reads only the last files of the log."""
    store = open_store()
    for number in range(8):
        publish(store, number, numbered(40))
        clock.now += 5000
        store.flush()
    store.close(clean=clean)
    shutil.rmtree(path / "consumequeue" / SINK_TOPIC)
    if not clean:
        reboot(path)
    with open_store() as store:
        assert store.queue_range(SINK_TOPIC, 0) == QueueOffsets(0, 8)
    assert verify(path).ok


def test_a_queue_that_lost_its_last_file_is_rebuilt(trusted, recoveries):
    queue_files(trusted, queue_id=1)[-1].unlink()
    check_rebuilt(trusted, recoveries)


@pytest.mark.parametrize("at", [60, 180])
def test_a_queue_whose_last_file_was_changed_is_repaired(trusted, recoveries, at):
    overwrite(queue_files(trusted, queue_id=1)[-1], bytes(20), at)
    check_rebuilt(trusted, recoveries)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"logEnd": 1, "queues": {"t/0": [-1]}}'])
def test_a_store_without_saved_queue_ends_is_recovered(trusted, recoveries, content):
    ends = Layout(trusted).queue_ends
    if content is None:
        ends.unlink()
    else:
        ends.write_bytes(content)
    check_rebuilt(trusted, recoveries)


@pytest.mark.parametrize("lost", [[0], [1, 2], [0, 2]], ids=str)
@pytest.mark.parametrize("abort", [False, True])
def test_a_queue_that_lost_earlier_files_is_rebuilt(trusted, recoveries, abort, lost):
    """The last file of the queue exists, so that its first messages appear to have expired."""
    for number in lost:
        queue_files(trusted, queue_id=1)[number].rename(trusted / f"lost{number}")
    if abort:
        Layout(trusted).abort.touch()
    check_rebuilt(trusted, recoveries)


def test_expired_messages_are_not_searched(trusted, recoveries):
    with Store.open(trusted, config=SMALL) as store:
        store.append_batch(batch(numbered(200), 1), topic="t")
        assert store.clean(total_bytes=9000).queue_files
        begun = store.min_offset("t", 1)
    assert begun > 10
    for _ in range(2):
        with Store.open(trusted, config=SMALL) as store:
            assert store.min_offset("t", 1) == begun
            store.append(message())
    assert recoveries == []


def cut_short(path):
    os.truncate(path, 1000)


def contents(path):
    return {file: file.read_bytes() for file in path.glob("commitlog/*")}


@pytest.mark.parametrize(
    ("which", "damage", "code"),
    [
        (-1, cut_short, "STORE_FILE_LENGTH"),
        (0, cut_short, "STORE_FILE_LENGTH"),
        (-1, os.remove, "STORE_FILE_MISSING"),
        (1, os.remove, "STORE_FILE_MISSING"),
    ],
)
@pytest.mark.parametrize("others", [False, True])
def test_nothing_is_appended_to_a_log_with_missing_or_short_files(
    trusted, recoveries, which, damage, code, others
):
    """The store was shut down cleanly, and in some runs another process has it open."""
    other = Store.open(trusted, config=SMALL) if others else None
    name = log_files(trusted)[which]
    damage(name)
    before = contents(trusted)
    with pytest.raises(StoreDamagedError, match=f"{code}.*Restore it from a backup"):
        Store.open(trusted, config=SMALL)
    assert contents(trusted) == before
    if other:
        other.close(clean=False)
