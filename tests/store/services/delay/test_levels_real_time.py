"""A background thread delivers delayed messages on time, measured by the wall clock."""

import statistics
import sys
import time

import pytest
from pyrocket import Store
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from support.delivering import delay
from support.inner import inner

COUNT = 30


def dues(store, level):
    """The due times of a level's messages, in order."""
    pieces = inner(store).reader.records(SCHEDULE_TOPIC, level - 1, 0, COUNT)
    return [int(due) for piece in pieces for due in piece.tags_codes]


@pytest.mark.alone
def test_levels_one_and_two_are_delivered_on_time(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store, store.run_services():
        for topic in ("one", "two"):
            store.topics.create(topic, read_queues=1, write_queues=1)
        for number in range(COUNT):
            delay(store, 1, b"%d" % number, topic="one")
            delay(store, 2, b"%d" % number, topic="two")
            time.sleep(0.05)
        until = time.monotonic() + 20
        while store.max_offset("two", 0) < COUNT and time.monotonic() < until:
            time.sleep(0.05)
        for level, topic in ((1, "one"), (2, "two")):
            messages = store.read(topic, 0, 0, 100)
            assert [one.body for one in messages] == [b"%d" % number for number in range(COUNT)]
            came = [one.store_timestamp for one in messages]
            late = [at - due for at, due in zip(came, dues(store, level), strict=True)]
            assert min(late) >= 0
            sys.stdout.write(
                f"level {level}: median {statistics.median(late)} ms late, at most {max(late)}\n"
            )
            assert statistics.median(late) < 200
