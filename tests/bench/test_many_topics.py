"""The cost of 10,000 topics for a process that uses one of them: creating, opening, planning,
descriptors.
"""

import os
import time
from statistics import median

import pyarrow as pa
from pyrocket import Store, StoreConfig, TopicConfig
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.stores import next_boot

QUEUES, FEW = 4, 10
CONFIG = StoreConfig(
    log_file_bytes=64 << 20, queue_file_entries=10, index_slots=1000, index_items=4000
)


def ms(function, *arguments, **options):
    start = time.perf_counter()
    done = function(*arguments, **options)
    return done, 1000 * (time.perf_counter() - start)


def named(count):
    return [f"topic-{number:05}" for number in range(count)]


def one_each(names):
    """Return a batch with a message for each queue of each topic."""
    places = [(name, queue) for name in names for queue in range(QUEUES)]
    columns = {
        "topic": [name for name, _ in places],
        "queueId": pa.array([queue for _, queue in places], pa.int32()),
        "body": [b"x"] * len(places),
    }
    return pa.record_batch(columns)


def planning(path, topic, times):
    """Return the median time in ms of planning a micro-batch of one topic, after the table has been
    loaded.
    """
    options = {"path": str(path), "topic": topic, "startingOffsets": "earliest"}
    schema = default_columns(kafka=False, headers=False, text=False)
    reader = DefaultSource(options).streamReader(schema=schema)
    at, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    spent = [
        ms(lambda: reader.partitions(at, reader.latestOffset(at, limit))) for _ in range(times)
    ]
    forget(str(path))
    return median(one for _, one in spent)


def opened(path, **options):
    store, spent = ms(Store.open, path, **options)
    return spent, store


def test_the_cost_of_one_topic_among_many(fast_disk, large, report):
    count, times = (10_000, 20) if large else (50, 2)
    path, names = fast_disk / "many", named(count)
    with Store.open(fast_disk / "few", create=True, config=CONFIG) as few:
        few.topics.create_many([TopicConfig(name, QUEUES, QUEUES) for name in named(FEW)])
        few.append_batch(one_each(named(FEW)))
    with Store.open(path, create=True, config=CONFIG) as store:
        topics = [TopicConfig(name, QUEUES, QUEUES) for name in names]
        made, every = ms(store.topics.create_many, topics)
        assert [topic.name for topic in made] == names
        one = median([ms(store.topics.create, f"more-{n}")[1] for n in range(times)])
        store.append_batch(one_each(names))
    first, store = opened(path, read_only=True)
    first += ms(store.topics.all)[1]
    later = median([ms(store.topics.all)[1] for _ in range(100)])
    for name in names:
        assert len(store.offsets(name)) == QUEUES
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    store.close()
    same_boot, store = opened(path)
    store.append_batch(one_each(names[:1]))
    _, closing = ms(store.close)
    next_boot(path)
    other_boot, store = opened(path)
    store.close()
    plans = [planning(fast_disk / "few", named(1)[0], times), planning(path, names[0], times)]
    report.line(
        f"{count:,} topics x {QUEUES} queues: create_topic {one:.0f} ms (aim <= 100),"
        f" create_topics of all {every:.0f} ms (<= 2,000), first open and list of all topics"
        f" {first:.0f} ms (<= 120), later lists of all topics {later:.3f} ms (<= 0.1), open for"
        f" writing after a clean shutdown {other_boot:.0f} ms (<= 1,000), in the same boot"
        f" {same_boot:.0f} ms (<= 50),"
        f" a clean shutdown after an append to one topic {closing:.0f} ms,"
        f" a plan of one topic {plans[1]:.2f} ms, at {FEW} topics {plans[0]:.2f} ms (<= 1.2 times),"
        f" {descriptors} open descriptors (<= 256)"
    )
