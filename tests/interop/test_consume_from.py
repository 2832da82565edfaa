"""RocketMQ's consumers read timestamps as pyrocket, and its broker corrects the same offsets."""

import os
import time
from random import Random

import pytest
from interop.programs import run
from interop.rocketmq import SMALL
from interop.stores_of_ours import SIZES
from pyrocket import Message, QueueOffsets, Store
from pyrocket.client.consume_from import consume_timestamp

ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"]


@pytest.fixture
def local_zone():
    before = os.environ.get("TZ")

    def change(zone):
        os.environ["TZ"] = zone
        time.tzset()

    yield change
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_timestamps_are_read_as_rocketmq_does(java_version, local_zone):
    random, lines, own = Random(18), [], []
    for zone in ZONES:
        local_zone(zone)
        for _ in range(2000):
            # Clocks change on a Sunday in one of these months.
            day = f"20{random.randrange(10, 30)}{random.choice([3, 4, 10, 11]):02}"
            hour = random.choice([0, 1, 1, 2, 2, 3, 12])
            text = f"{day}{random.randrange(1, 31):02}{hour:02}{random.randrange(60):02}07"
            lines.append(f"{zone} {text}")
            own.append(consume_timestamp(text, 0))
    assert list(map(int, run(java_version.classes, "ConsumeTimestamp", lines))) == own


def three_queues(path):
    """Fill three queues and return their offset ranges; messages are deleted only in queue 0, and
    queue 2 is empty.
    """
    with Store.open(path, create=True, config=SIZES) as store:
        store.topics.create("orders", read_queues=3, write_queues=3)
        for number in range(60):
            store.append(Message(topic="orders", body=b"x" * 3000, queue_id=number // 55))
        store.clean(total_bytes=100_000)
        return store.offsets("orders")


def test_invalid_offsets_are_corrected_as_by_rocketmqs_broker(java, store_path):
    ranges = three_queues(store_path)
    assert ranges[0].minimum > 5
    assert (ranges[1], ranges[2]) == (QueueOffsets(0, 5), QueueOffsets(0, 0))
    with java.broker(store_path, **SMALL) as broker:
        for queue_id, available in ranges.items():
            low, high = available.minimum, available.maximum
            for offset in {0, 1, max(low - 1, 0), low, high - 1, high, high + 1, high + 1000} - {
                -1
            }:
                pulled = broker.pull_once("orders", queue_id, offset)
                corrected = min(max(offset, low), high)
                illegal = pulled["status"] == "OFFSET_ILLEGAL"
                assert illegal == (corrected != offset), (queue_id, offset, pulled)
                found = pulled["status"] == "FOUND"
                assert pulled["next"] == corrected + found, (queue_id, offset, pulled)
