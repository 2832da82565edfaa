"""Compares the offsets and timestamps at which RocketMQ's push consumer starts with pyrocket's."""

import os
import time
from itertools import product
from random import Random

import pytest
from interop.programs import run
from pyrocket.client.consume_from import ConsumeFrom, OffsetQuery, consume_timestamp, start_offset

WHERE = {
    "CONSUME_FROM_LAST_OFFSET": ConsumeFrom.LAST,
    "CONSUME_FROM_FIRST_OFFSET": ConsumeFrom.FIRST,
    "CONSUME_FROM_TIMESTAMP": ConsumeFrom.TIMESTAMP,
}
QUERIES = {OffsetQuery.MAXIMUM: 1000, OffsetQuery.BY_TIMESTAMP: 2000}
ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"]
TOPICS = ["orders", "%RETRY%g", "%RETRYg", "a%RETRY%g", "%DLQ%g"]


def test_consumption_starts_at_rocketmqs_offset(java_version):
    lines, own = [], []
    for where, topic, committed in product(WHERE, TOPICS, [-1, 0, 1, 77, 1 << 40]):
        lines.append(f"start {where} {topic} {committed}")
        start = start_offset(topic, None if committed < 0 else committed, WHERE[where])
        own.append(QUERIES.get(start, start))
    assert list(map(int, run(java_version.classes, "ConsumeFrom", lines))) == own


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
            lines.append(f"time {zone} {text}")
            own.append(consume_timestamp(text, 0))
    assert list(map(int, run(java_version.classes, "ConsumeFrom", lines))) == own
