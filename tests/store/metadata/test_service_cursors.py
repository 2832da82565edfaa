"""The services' cursors survive reboots, and never exceed the durable ends of their queues."""

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    CHECKPOINT_TIME,
    HALF_CURSOR,
    NEVER,
    NEXT_DUE,
    TIMER_READ_TIME,
    level_field,
)
from pyrocket.engine.parts.topic_admin import TopicConfig
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.service_cursors import DelayOffsets, restore_cursors, save_cursors
from support.inner import inner
from support.stores import BY_HAND, SMALL, batch, filled, message, numbered, reboot, words

LEVEL_2 = level_field(2)


def with_delayed(path, count=5, **options):
    """A store with messages in the queue of delay level 2."""
    store = filled(path, 3, **options)
    for topic in (SCHEDULE_TOPIC, HALF_TOPIC):
        inner(store).reader.topics.put(TopicConfig(topic, 2, 2))
        inner(store).writer.structure_changed()
        inner(store).sender.append_batch(
            batch(numbered(count), 1 if topic == SCHEDULE_TOPIC else 0),
            topic,
            0,
        )
    return store


def move(store, moves):
    with inner(store).writer.exclusive():
        inner(store).writer.move(moves)


def value(path, word):
    page = words(path)
    try:
        return page[word]
    finally:
        page.close()


@pytest.fixture(autouse=True)
def _system_topics_may_be_written(monkeypatch):
    monkeypatch.setattr("pyrocket.engine.sender.check_topic_name", lambda name: None)


def test_delay_offsets_are_saved_for_rocketmq_every_ten_seconds(tmp_path, clock):
    """After a crash of pyrocket, a broker then repeats no more than after a crash of its own."""
    store = with_delayed(tmp_path, clock=clock, config=BY_HAND)
    saved = []
    for after_ms, delivered in ((0, 1), (9_999, 2), (1, 3), (5_000, 4), (5_000, 5)):
        clock.now += after_ms
        move(store, {LEVEL_2: delivered})
        store.append(message())
        store.flush()
        saved.append(DelayOffsets(Layout(tmp_path)).read().get(2))
    assert saved == [1, 1, 3, 3, 5]
    store.close(clean=False)


def test_cursors_survive_a_clean_shutdown_and_a_reboot(tmp_path):
    with with_delayed(tmp_path) as store:
        move(store, {LEVEL_2: 3, HALF_CURSOR: 2, TIMER_READ_TIME: 1_700_000_000_123})
    assert DelayOffsets(Layout(tmp_path)).read() == {2: 3}
    assert GroupOffsets(Layout(tmp_path)).of(TRANSACTION_GROUP, HALF_TOPIC) == {0: 2}
    reboot(tmp_path)
    Store.open(tmp_path).close()
    assert value(tmp_path, LEVEL_2) == 3
    assert value(tmp_path, HALF_CURSOR) == 2
    assert value(tmp_path, TIMER_READ_TIME) == 1_700_000_000_123


def test_later_cursors_of_a_broker_are_adopted(tmp_path):
    with with_delayed(tmp_path) as store:
        move(store, {LEVEL_2: 2})
    DelayOffsets(Layout(tmp_path)).save({2: 4})
    reboot(tmp_path)
    Store.open(tmp_path).close()
    assert value(tmp_path, LEVEL_2) == 4


def test_a_cursor_is_never_after_the_end_of_its_queue(tmp_path):
    with with_delayed(tmp_path, 5):
        pass
    DelayOffsets(Layout(tmp_path)).save({2: 99})
    reboot(tmp_path)
    Store.open(tmp_path).close()
    assert value(tmp_path, LEVEL_2) == 5


def test_a_checkpoint_saves_the_cursors_as_they_were_before_the_flush(tmp_path, monkeypatch):
    store = with_delayed(tmp_path)
    move(store, {LEVEL_2: 1})
    store.append(message(b"more"))
    page = words(tmp_path)
    page[CHECKPOINT_TIME] = 0
    page.close()
    real = inner(store).writer.files.log.run.sync

    def move_during_the_fsync(start, end):
        real(start, end)
        move(store, {LEVEL_2: 4})

    monkeypatch.setattr(inner(store).writer.files.log.run, "sync", move_during_the_fsync)
    store.flush()
    assert DelayOffsets(Layout(tmp_path)).read() == {2: 1}
    assert value(tmp_path, LEVEL_2) == 4
    store.close(clean=False)


def test_a_recovery_resets_the_next_due_time(tmp_path):
    store = with_delayed(tmp_path)
    page = words(tmp_path)
    page[NEXT_DUE] = NEVER
    store.close(clean=False)
    reboot(tmp_path)
    Store.open(tmp_path).close(clean=False)
    assert value(tmp_path, NEXT_DUE) == 0


def test_a_snapshot_has_the_cursors_of_its_source(tmp_path):
    with with_delayed(tmp_path / "a") as store:
        move(store, {LEVEL_2: 3, HALF_CURSOR: 1})
        store.snapshot(tmp_path / "b")
    with Store.open(tmp_path / "b", config=SMALL):
        assert value(tmp_path / "b", LEVEL_2) == 3
        assert value(tmp_path / "b", HALF_CURSOR) == 1


@pytest.mark.parametrize("content", [b"{", b'{"timed": 9223372036854775808}', b'{"timed": 1e999}'])
def test_corrupt_cursors_are_reported(tmp_path, content):
    with with_delayed(tmp_path) as store:
        move(store, {LEVEL_2: 3})
    layout = Layout(tmp_path)
    layout.cursors.write_bytes(content)
    page = words(tmp_path)
    with pytest.raises(StoreDamagedError, match=r"cursors\.json"):
        restore_cursors(layout, page, None)
    page.close()


def test_unchanged_cursors_are_not_written_again(tmp_path):
    with with_delayed(tmp_path) as store:
        move(store, {LEVEL_2: 3})
    layout = Layout(tmp_path)
    before = layout.cursors.stat().st_mtime_ns
    save_cursors(layout, {LEVEL_2: 3})
    assert layout.cursors.stat().st_mtime_ns == before
