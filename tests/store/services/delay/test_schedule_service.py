"""Messages of a delay level are delivered once, in order, and not before they are due."""

from dataclasses import replace

import pytest
from pyrocket.disk.shared_state import NEVER
from support.delivering import LEVELS_MS, Driver, bodies_of, delay, level_batch, waiting
from support.stores import SMALL, message


@pytest.fixture
def driven(open_store):
    """A store with topic t, and a driver that delivers when called."""
    store = open_store()
    store.topics.create("t", read_queues=2, write_queues=2)
    return store, Driver(store)


@pytest.mark.parametrize("level", [1, 2, 5])
def test_a_message_is_delivered_when_it_is_due_and_not_before(driven, clock, level):
    store, driver = driven
    sent = clock.now
    delay(store, level, b"x")
    assert driver.all() == 0
    clock.now = sent + LEVELS_MS[level - 1] - 1
    assert driver.all() == 0
    assert bodies_of(store) == []
    clock.now += 1
    assert driver.all() == 1
    assert bodies_of(store) == [b"x"]
    clock.now += 10**9
    assert driver.all() == 0


def test_a_message_with_a_level_above_the_maximum_has_the_delay_of_the_maximum(open_store, clock):
    store = open_store(config=replace(SMALL, delay_levels="1s 7s"))
    driver = Driver(store)
    delay(store, 40, b"x")
    clock.now += 6999
    assert driver.all() == 0
    clock.now += 1
    assert driver.all() == 1


def test_each_message_is_delivered_to_its_topic_and_queue_in_order(driven, clock):
    store, driver = driven
    store.topics.create("u", read_queues=1, write_queues=1)
    for number in range(30):
        topic, queue_id = [("t", 0), ("u", 0), ("t", 1)][number % 3]
        delay(store, 1, b"%d" % number, topic=topic, queue_id=queue_id)
        clock.now += 1
    clock.now += 1000
    assert driver.all() == 30
    for first, (topic, queue_id) in enumerate([("t", 0), ("u", 0), ("t", 1)]):
        expected = [b"%d" % number for number in range(first, 30, 3)]
        assert bodies_of(store, topic, queue_id) == expected
    delivered = [
        (one.physical_offset, int(one.body))
        for topic, queue_id in [("t", 0), ("u", 0), ("t", 1)]
        for one in store.read(topic, queue_id, 0, 100)
    ]
    assert [number for _, number in sorted(delivered)] == list(range(30)), (
        "in the order of the schedule topic"
    )


def test_due_messages_of_several_levels_are_delivered_by_one_append(driven, clock):
    store, driver = driven
    for level in (3, 1, 2):
        delay(store, level, b"%d" % level)
    clock.now += 10_000
    assert driver.once() == 3
    assert sorted(bodies_of(store)) == [b"1", b"2", b"3"]
    assert [driver.cursor(level) for level in (1, 2, 3, 4)] == [1, 1, 1, 0]


def test_the_next_due_time_is_updated(driven, clock):
    store, driver = driven
    driver.all()
    assert driver.next_due == NEVER
    delay(store, 2, b"x")
    assert driver.next_due == clock.now + 5000
    delay(store, 1, b"y")
    assert driver.next_due == clock.now + 1000
    clock.now += 1000
    driver.all()
    assert driver.next_due == clock.now + 4000
    clock.now += 4000
    driver.all()
    assert driver.next_due == NEVER


def test_a_large_batch_is_delivered_in_parts(driven, clock):
    store, driver = driven[0], Driver(driven[0], messages=7)
    rows = [b"%d" % number for number in range(20)]
    store.append_batch(level_batch(rows), topic="t")
    clock.now += 1000
    assert [driver.once() for _ in range(4)] == [7, 7, 6, 0]
    assert bodies_of(store) == rows


def test_busy_level_does_not_delay_other_levels(driven, clock):
    store, driver = driven[0], Driver(driven[0], messages=5)
    store.append_batch(level_batch([b"much"] * 40), topic="t")
    delay(store, 2, b"2")
    delay(store, 3, b"3")
    clock.now += 10_000
    assert driver.once() + driver.once() == 10
    assert {b"2", b"3"} < set(bodies_of(store))
    assert driver.all() == 32


@pytest.mark.parametrize("limit", [1, 700, 2000])
def test_a_part_has_limited_bytes_but_at_least_one_message(driven, clock, limit):
    store, driver = driven[0], Driver(driven[0], bytes=limit)
    rows = [b"%04d" % number + b"x" * 300 for number in range(10)]
    store.append_batch(level_batch(rows), topic="t")
    clock.now += 1000
    parts = []
    while done := driver.once():
        parts.append(done)
    assert sum(parts) == 10
    assert max(parts) <= max(1, limit // 300)
    assert bodies_of(store) == rows


def test_messages_of_alternating_topics_are_delivered_by_several_appends(driven, clock):
    store, driver = driven[0], Driver(driven[0], batches=3)
    store.topics.create("u", read_queues=1, write_queues=1)
    for number in range(8):
        delay(store, 1, b"%d" % number, topic="tu"[number % 2])
    clock.now += 1000
    assert [driver.once() for _ in range(4)] == [3, 3, 2, 0]
    assert bodies_of(store, "t") == [b"0", b"2", b"4", b"6"]
    assert bodies_of(store, "u") == [b"1", b"3", b"5", b"7"]


def test_a_cursor_outside_the_range_of_its_queue_is_moved_into_the_range(driven, clock):
    store, driver = driven
    delay(store, 1, b"x")
    driver.set_cursor(1, 10)
    clock.now += 1000
    assert driver.all() == 0, "the cursor was moved to the end of the queue"
    driver.set_cursor(1, -5)
    driver.runner = Driver(store).runner
    driver.writer.page.lower_due(0)
    assert driver.all() == 1


def test_setting_the_clock_back_delays_no_message_beyond_its_level(driven, clock):
    store, driver = driven
    delay(store, 2, b"x")
    assert driver.all() == 0
    clock.now -= 3_600_000
    assert driver.all() == 1, "as in RocketMQ: level 2 is never due later than in five seconds"
    assert bodies_of(store) == [b"x"]


def test_message_sent_after_clock_was_set_back_stays_pending(driven, clock):
    """Store times never decrease, so the due time in the entry is an hour from now."""
    store, driver = driven
    store.append(message(b"now"))
    clock.now -= 3_600_000
    delay(store, 2, b"x")
    assert driver.all() == 0
    clock.now += 4999
    assert driver.all() == 0
    clock.now += 101
    assert driver.all() == 1
    assert bodies_of(store) == [b"now", b"x"]


def test_messages_of_deleted_topic_are_dropped_and_delay_no_others(driven, clock, caplog):
    store, driver = driven
    store.topics.create("gone")
    delay(store, 1, b"1")
    delay(store, 1, b"lost", topic="gone")
    delay(store, 1, b"2")
    store.topics.delete("gone")
    clock.now += 1000
    assert driver.all() == 3
    assert bodies_of(store) == [b"1", b"2"]
    assert driver.cursor(1) == 3
    assert "1 delayed messages are dropped" in caplog.text
    assert "topic 'gone'" in caplog.text
    assert "gone" not in store.topics.all()


def test_cursor_moves_past_dropped_messages(driven, clock):
    store, driver = driven
    delay(store, 1, b"lost")
    store.topics.delete("t")
    clock.now += 1000
    assert driver.all() == 1
    assert driver.cursor(1) == 1
    assert driver.next_due == NEVER
    assert waiting(store, 1) == [b"lost"], "the record is kept, and the cursor moves past it"
