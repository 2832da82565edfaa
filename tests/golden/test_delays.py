"""pyrocket delivers the delayed messages of RocketMQ's brokers with exactly the bytes that the
brokers delivered.
"""

import shutil

import pytest
from golden.java import CLEAN, GOLDEN, LOG_END
from pyrocket import Store
from pyrocket.formats.record_decode import decode_record
from support.stores import FakeClock

JAVA5 = "java550-clean"
PARKED = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def clock():
    """A clock long after the fixtures were made, so that everything is due."""
    return FakeClock(2_000_000_000_000)


def records(root, start=0):
    """Return log offset → raw bytes of every record of a log, starting at an offset."""
    found = {}
    for file in sorted((root / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while data[at + 4 : at + 6] == b"\xda\xa3":
            size = int.from_bytes(data[at : at + 4], "big")
            found[int(file.name) + at] = data[at : at + size]
            at += size
    return {place: raw for place, raw in found.items() if place >= start}


def essence(raw):
    """Return a record without queue offset, log offset and store time, which differ between
    stores."""
    return raw[:20] + raw[36:56] + raw[64:]


def delivered(found):
    """Return the records that were delivered after a delay, as (topic, id) → bytes."""
    kept = {}
    for raw in found.values():
        message = decode_record(raw).to_message()
        own = message.properties
        if "DELAY" in own and own["REAL_TOPIC"] == message.topic:
            kept[message.topic, own["UNIQ_KEY"]] = essence(raw)
    return kept


@pytest.mark.parametrize(("name", "count"), [(CLEAN, 1), (JAVA5, 3)])
def test_the_delivered_bytes_equal_those_of_rocketmq(tmp_path, clock, name, count):
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    java = delivered(records(root))
    end = max(records(root))
    for file in (root / "config").glob("delayOffset*"):
        file.unlink()  # As if the broker had stopped before the delivery.
    with Store.open(root, clock=clock) as store:
        assert store.deliver_due()
    ours = delivered(records(root, end + 1))
    assert len(ours) == count
    assert ours == java


@pytest.mark.parametrize("name", [CLEAN, JAVA5])
def test_a_message_that_rocketmq_has_delivered_is_not_delivered_again(tmp_path, clock, name):
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    before = records(root)
    with Store.open(root, clock=clock) as store:
        assert store.views.pending("scheduled") == []
        store.deliver_due()
    assert records(root) == before


def test_a_pending_message_of_rocketmq_is_shown_and_delivered_when_it_is_due(tmp_path):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)
    parked = decode_record(records(root)[4444])
    for file in (root / "config").glob("delayOffset*"):
        file.unlink()
    clock = FakeClock(parked.store_timestamp + 999)
    with Store.open(root, clock=clock) as store:
        (part,) = store.views.pending("scheduled")
        (batch,) = store.views.scan_pending(
            part, ["TopicTest"], ["dueTimestamp", "body", "queueId"]
        )
        (row,) = batch.to_pylist()
        assert round(row["dueTimestamp"].timestamp() * 1000) == parked.store_timestamp + 1000
        assert (row["body"], row["queueId"]) == (b"delayed", 1)
        assert not store.deliver_due()
        clock.now = parked.store_timestamp + 1100
        assert store.deliver_due()
        assert store.read("TopicTest", 1, 13)[0].body == b"delayed"
    assert min(records(root, LOG_END)) >= LOG_END
