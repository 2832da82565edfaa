"""Reading a hundred keys among ten million messages as a DataFrame, compared with reading all
messages and filtering.
"""

import random
import time
from statistics import median

import pyarrow as pa
from pyrocket import LookupRequest, Store, StoreSource
from pyspark.sql import functions as sql
from support.slices import decoded

TOPIC, WANTED = "orders", 100


def fill(path, rows, at_once):
    """Append messages to four queues, each with a unique key and a body of ten bytes."""
    with Store.open(path, create=True) as store:
        store.topics.create(TOPIC, read_queues=4, write_queues=4)
        for first in range(0, rows, at_once):
            numbers = range(first, first + at_once)
            columns = {
                "body": pa.array([b"%010d" % number for number in numbers], pa.binary()),
                "keys": pa.array([f"order-{number}" for number in numbers]),
            }
            store.append_batch(pa.record_batch(columns), topic=TOPIC)


def times(function, rounds):
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start)
    return spent


def test_a_hundred_keys_as_a_dataframe(spark, fast_disk, large, report):
    rows = 10**7 if large else 10**3
    path = str(fast_disk / "s")
    fill(path, rows, rows // 100)
    generator = random.Random(1)

    def keys():
        return [f"order-{number}" for number in generator.sample(range(rows), WANTED)]

    def look_up(**options):
        frame = spark.read.format("pyrocket").options(path=path, topic=TOPIC, **options)
        return frame.schema("keys ARRAY<STRING>, body STRING").load()

    def ours():
        asked = keys()
        found = look_up(keys=",".join(asked)).collect()
        assert sorted(row["keys"][0] for row in found) == sorted(asked)

    def reference():
        wanted = sql.array(*map(sql.lit, keys()))
        found = look_up().where(sql.arrays_overlap("keys", wanted)).collect()
        assert len(found) == WANTED

    ours()
    warm = times(ours, 5 if large else 1)
    whole = times(reference, 1)
    alone = times(lambda: locate(path, keys()), 3)
    report.line(
        f"{WANTED} keys in {rows:,} messages as a DataFrame, in a warm session: median"
        f" {median(warm):.2f} s, longest {max(warm):.2f} s (hoped for: < 1 s); reading all and"
        f" filtering in Spark {whole[0]:.1f} s, {whole[0] / median(warm):.0f} times as long;"
        f" without Spark, the store opened again, {median(alone) * 1e3:.0f} ms"
    )


def locate(path, keys):
    with Store.open(path, read_only=True) as store:
        located = store.lookup.locate(LookupRequest(topics=[TOPIC], keys=keys))
        read = [
            batch
            for places in located.locations
            for batch in decoded(StoreSource(store).slices_at(places))
        ]
    assert sum(batch.num_rows for batch in read) == WANTED
