"""After a power failure with old cursors, messages with a delivered copy in the log are skipped."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from support.delivering import Driver, bodies_of, delay, level_batch
from support.inner import inner
from support.stores import SMALL, reboot

MANUAL = replace(SMALL, flush="manual")


@pytest.fixture
def store(path, clock):
    """A store that is never flushed, so no cursors are saved."""
    store = Store.open(path, create=True, config=MANUAL, clock=clock)
    store.topics.create("t", read_queues=1, write_queues=1)
    inner(store).services.hooks.after_section.clear()
    return store


def lose_power(store):
    """Return the store opened after a power failure that nothing but the files survived."""
    store.close(clean=False)
    reboot(store.path)
    again = Store.open(store.path, config=MANUAL, clock=inner(store).engine.clock)
    inner(again).services.hooks.after_section.clear()
    return again


def park_again(store, level=1, **properties):
    """Schedule a copy of the first message of level 1, as RocketMQ does for a failed consumer."""
    (piece,) = inner(store).reader.records(SCHEDULE_TOPIC, 0, 0, 1)
    own = store.read(SCHEDULE_TOPIC, 0, 0)[0].properties | properties
    block = pa.array([encode_properties(own)], pa.binary())
    queue = np.array([level - 1], np.int32)
    changes = Changes(properties=block)
    batch = copy_records(piece.records, np.array([0]), SCHEDULE_TOPIC, queue, changes)
    with inner(store).writer.exclusive():
        inner(store).writer.append([replace(batch, delays=np.array([1000]))])


def test_the_delivered_part_of_an_append_is_not_delivered_again(store, clock):
    bodies = [b"%d" % number for number in range(10)]
    store.append_batch(level_batch(bodies), topic="t")
    clock.now += 1000
    assert Driver(store, messages=4).once() == 4
    again = lose_power(store)
    driver = Driver(again, messages=4)
    assert driver.cursor(1) == 4
    assert driver.all() == 6
    assert bodies_of(again) == bodies
    again.close()


def test_a_dropped_message_between_delivered_messages_is_skipped(store, clock):
    store.topics.create("gone", read_queues=1, write_queues=1)
    delay(store, 1, b"1")
    delay(store, 1, b"dropped", topic="gone")
    delay(store, 1, b"2")
    store.topics.delete("gone")
    clock.now += 1000
    assert Driver(store).all() == 3
    again = lose_power(store)
    assert Driver(again).cursor(1) == 3
    assert Driver(again).all() == 0
    again.close()


@pytest.mark.parametrize("level", [1, 3])
def test_message_scheduled_again_after_delivery_is_delivered_again(store, clock, level):
    delay(store, 1, b"x")
    clock.now += 1000
    assert Driver(store).all() == 1
    park_again(store, level, DELAY=str(level))
    again = lose_power(store)
    clock.now += 10_000
    assert Driver(again).all() == 1
    assert bodies_of(again) == [b"x", b"x"]
    again.close()


def test_the_second_of_two_equal_messages_is_delivered_if_only_the_first_was_delivered(
    store, clock
):
    delay(store, 1, b"x")
    clock.now += 1
    park_again(store)
    clock.now += 999
    assert Driver(store).all() == 1
    again = lose_power(store)
    clock.now += 1000
    assert Driver(again).all() == 1
    assert bodies_of(again) == [b"x", b"x"]
    again.close()


def test_messages_without_id_are_recognized_by_content(store, clock):
    delay(store, 1, b"x")
    clock.now += 1000
    Driver(store).all()
    park_again(store, UNIQ_KEY="")
    clock.now += 1000
    assert Driver(store).all() == 1
    again = lose_power(store)
    assert Driver(again).cursor(1) == 2
    again.close()


def test_a_clean_shutdown_saves_the_exact_cursors(store, clock, monkeypatch):
    delay(store, 1, b"x")
    clock.now += 1000
    Driver(store).all()
    store.close()
    reboot(store.path)
    monkeypatch.setattr(
        "pyrocket.services.delay.skip_delivered._pending", lambda *_: pytest.fail("not needed")
    )
    with Store.open(store.path, config=MANUAL, clock=clock) as again:
        assert Driver(again).cursor(1) == 1
