"""Filters in the source, compared with reading all messages and filtering in Spark."""

import os
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bench.data import MAP
from bench.pairs import measure
from pyrocket import MessageFilter, Store

ROWS, BODY, AT_ONCE, QUEUES = 4_000_000, 1024, 10_000, 2
COLUMNS = ("queueOffset", "tags", "body")
SCHEMA = "queueOffset BIGINT, tags STRING, body BINARY"
SQL = "price BETWEEN 7 AND 7 AND region = 'EU'"
"""True for one message in a hundred, like the tag `rare`."""


def one_percent(rows):
    """Return rows of which one in a hundred has the tag `rare`, and one in a hundred the price
    7."""
    noise = os.urandom(rows * BODY)
    return pa.record_batch(
        {
            "body": pa.array([noise[at : at + BODY] for at in range(0, rows * BODY, BODY)]),
            "tags": ["rare" if row % 100 == 50 else f"common{row % 7}" for row in range(rows)],
            "keys": [f"k{row}" for row in range(rows)],
            "properties": pa.array(
                [[("price", str(row % 100)), ("region", "EU")] for row in range(rows)], MAP
            ),
        }
    )


def fill(path, rows):
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=QUEUES, write_queues=QUEUES)
        one = one_percent(min(rows, AT_ONCE))
        for first in range(0, rows, AT_ONCE):
            store.append_batch(one, topic="T", first_queue=first // AT_ONCE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that is deleted after these tests, because it is large."""
    one = tmp_path_factory.mktemp("filters")
    yield one
    shutil.rmtree(one)


@pytest.fixture
def filled(folder, large):
    rows = ROWS if large else 2_000
    path = folder / str(rows)
    if not path.exists():
        fill(path, rows)
    return path, rows


@pytest.mark.parametrize(("option", "value"), [("tags", "rare"), ("sql", SQL)])
def test_a_filtered_spark_read_of_one_percent(spark, filled, large, report, option, value):
    path, rows = filled

    def frame(**options):
        read = spark.read.format("pyrocket").option("topic", "T").options(**options)
        return read.schema(
            f"{SCHEMA}, properties MAP<STRING, STRING>" if option == "sql" else SCHEMA
        )

    condition = "tags = 'rare'"
    if option == "sql":
        condition = "cast(properties['price'] AS INT) = 7 AND properties['region'] = 'EU'"
    ours = frame(**{option: value}).load(str(path)).select("queueOffset", "tags", "body")
    every = frame().load(str(path)).filter(condition).select("queueOffset", "tags", "body")
    assert ours.count() == every.count() == rows // 100

    def to_nowhere(frame):
        frame.write.format("noop").mode("overwrite").save()

    rounds = 5 if large else 1
    pair = measure(lambda: to_nowhere(ours), lambda: to_nowhere(every), rounds)
    name = f"Spark batch read of 1 % by {option}, {rows:,} messages of 1 KiB"
    report.line(
        f"{name}: {pair.ours:.2f} s; reading all and filtering in Spark {pair.reference:.2f} s;"
        f" {pair.ratio:.1f} times faster" + (" (hoped for: 10)" if option == "tags" else "")
    )


def scanned(path, where, condition=None, columns=COLUMNS):
    """Return the number of messages that a filtered scan of all queues returns."""
    left = 0
    with Store.open(path, read_only=True) as store:
        for queue, offsets in store.offsets("T").items():
            span = ("T", queue, 0, offsets.maximum, columns)
            for part in store.scan(*span, where=where):
                left += (part.filter(condition(part)) if condition else part).num_rows
    return left


@pytest.mark.parametrize("kind", ["tags", "sql"])
def test_a_filtered_scan_of_one_percent(filled, large, report, kind):
    path, rows = filled
    where = MessageFilter.parse(**{kind: {"tags": "rare", "sql": SQL}[kind]})

    def ours():
        assert scanned(path, where) == rows // 100

    def reference():
        every = scanned(path, None, lambda part: pc.equal(part["tags"], "rare"))
        assert every == rows // 100

    pair = measure(ours, reference, 5 if large else 1)
    speed = f"{pair.ours:.2f} s, {rows / pair.ours / 1e6:.1f} M messages/s examined"
    report.line(
        f"scan of 1 % by {kind}: {speed}; scanning all and filtering tags {pair.reference:.2f} s;"
        f" {pair.ratio:.1f} times faster"
    )
