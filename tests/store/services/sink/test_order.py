"""The order of the writes of a publication, of which readers never see a part."""

import os

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import NEVER, NEXT_DUE, PUBLISHED
from pyrocket.errors import StoreFailedError
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from support.inner import inner
from support.sinks import numbered, publish, stage, stage_tasks
from support.stores import SMALL, before_publishing, bodies, log_files, reboot, words

ROWS = [b"%03d" % number + b"." * 300 for number in range(40)]
"""More than three log files."""

MAGIC = b"\xda\xa3\x20\xa7"


@pytest.fixture
def journal(monkeypatch):
    """The operations on the log and on the field `published`, in order."""
    steps = []

    def instead(name, real):
        def operation(descriptor, *rest):
            file = os.readlink(f"/proc/self/fd/{descriptor}")
            if "commitlog" in file:
                steps.append((name, bytes(rest[0]) if rest else os.path.basename(file)))
            return real(descriptor, *rest)

        return operation

    for name in ("write_at", "sync"):
        monkeypatch.setattr(io, name, instead(name, getattr(io, name)))
    before_publishing(monkeypatch, lambda value: steps.append(("published", value)))
    return steps


@pytest.fixture
def checkpoints_at_the_word(path, journal, monkeypatch):
    """The content of both checkpoint files, each time just before `published` moves."""
    seen = []
    before_publishing(monkeypatch, lambda value: seen.append(checkpoints(path)))
    return seen


def checkpoints(path):
    files = path / "checkpoint", path / "pyrocket" / "checkpoint"
    return [file.read_bytes() if file.exists() else None for file in files]


def test_head_is_written_last_between_two_fsyncs_then_published(
    store, journal, checkpoints_at_the_word
):
    """No checkpoint is written before the head; otherwise a recovery would start after it."""
    before, one = checkpoints(store.path), numbered(0)
    staged = stage_tasks(store, one, ROWS)
    journal.clear()
    store.sink.publish(one, staged)
    assert checkpoints_at_the_word == [before]
    assert checkpoints(store.path) != before, "it was due"
    heads = [at for at, (_, what) in enumerate(journal) if is_head(what)]
    names = [name for name, _ in journal]
    (head,) = heads
    (first,) = [what for _, what in journal if isinstance(what, bytes) and b'"batch": 0' in what]
    assert first[:8] == bytes(8)
    assert names[head - 1] == "sync"
    assert names[head : head + 3] == ["write_at", "sync", "published"]
    assert names.count("published") == 1
    assert "write_at" not in names[head + 1 :]
    synced = {what for name, what in journal[:head] if name == "sync"}
    assert {file.name for file in log_files(store.path)} <= synced


def is_head(what):
    return isinstance(what, bytes) and len(what) == 8 and what[4:] == MAGIC


def test_a_failed_fsync_publishes_nothing_and_stops_the_store(path, store, monkeypatch):
    publish(store, 0, [b"first"])
    one = numbered(1)
    staged = stage_tasks(store, one, [b"second"])
    page, real = words(path), io.sync
    before = page[PUBLISHED]

    def fail(descriptor):
        if "commitlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(io, "sync", fail)
        with pytest.raises(StoreFailedError, match="fsync of the log"):
            store.sink.publish(one, staged)
    assert page[PUBLISHED] == before
    page.close()
    with pytest.raises(StoreFailedError):
        publish(store, 1, [b"second"])


def test_published_rows_can_be_delayed(path, store, clock, monkeypatch):
    """Delayed rows are not visible yet, and `next_due` is set for the services."""
    one = numbered(0)
    staged = [
        stage(store, one, [b"now"], queue_id=0),
        stage(store, one, [b"level"], 1, queue_id=0, delayLevel=pa.array([3], pa.int32())),
        stage(store, one, [b"timer"], 2, queue_id=1, delay=pa.array(["5s"])),
    ]
    clock.now += 1000
    page = words(path)
    page[NEXT_DUE] = NEVER
    seen = []
    with monkeypatch.context() as patch:
        before_publishing(patch, lambda value: seen.append(page[NEXT_DUE]))
        store.sink.publish(one, staged)
    assert seen == [clock.now + 4000]
    page.close()
    assert bodies(store) == {0: [b"now"], 1: []}
    queues = (
        inner(store).reader.system_offsets(SCHEDULE_TOPIC, 2),
        inner(store).reader.system_offsets(TIMER_TOPIC, 0),
    )
    assert [known.maximum for known in queues] == [1, 1]
    (level,) = inner(store).reader.records(SCHEDULE_TOPIC, 2, 0, 1)
    assert level.tags_codes.tolist() == [clock.now + 10_000], "its delay starts at its publication"
    assert {SCHEDULE_TOPIC, TIMER_TOPIC} <= set(store.topics.all())


def test_published_entries_equal_those_that_recovery_writes(path, store, clock, tmp_path):
    """Compares them with the queues rebuilt from the log in a copy without queues."""
    one = numbered(0)
    rows = stage(store, one, ROWS, tags=pa.array(["a", "b"] * 20))
    late = stage(store, one, ROWS, 1, delayLevel=pa.array([2, 4] * 20, pa.int32()))
    store.sink.publish(one, [rows, late])
    store.close()
    files = sorted((path / "consumequeue").rglob("0*"))
    known = {file: file.read_bytes() for file in files if file.is_file()}
    for file in known:
        file.unlink()
    (path / "abort").touch()
    reboot(path)
    Store.open(path, config=SMALL, clock=clock).close()
    assert {file: file.read_bytes() for file in known} == known
