"""Stores of earlier releases and of RocketMQ's brokers have the same content over `endpoint` as in
their directory: rows, offsets, views, lookups and errors.
"""

import json
import shutil
import time
from dataclasses import dataclass
from functools import partial

import pytest
from golden.java import CLEAN, GOLDEN, TXCHECK
from pyrocket import Store
from pyrocket.errors import PyrocketError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import COLUMNS
from pyspark_pyrocket.columns.views import columns_besides
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.batch_reader import default_schema
from support.broker import served
from support.name_server import wait_until
from support.shares import share
from support.stores import FakeClock
from support.transports import disconnect

OLD = (TXCHECK, "stores/de38b47/clean", CLEAN, "stores/de38b47/unclean", "java550-clean")
BEFORE_ALL_DUE_MS = 1_500_000_000_000
MESSAGES, TABLES = ("scheduled", "half", "commitlog", "retry", "dlq"), ("groups", "topics")
OF_VIEWS = {each.name for view in MESSAGES for each in columns_besides(view)}
KEYS = "o-0,o-11,K2,ORDER3"
ERRORS = {
    "TOPIC_NOT_FOUND": {"topic": "orderz"},
    "GROUP_NOT_FOUND": {"view": "groups", "group": "nobody"},
    "OFFSET_OUT_OF_RANGE": {"assign": '{"%s": [0]}', "startingOffsets": '{"%s": {"0": 99999}}'},
}


@dataclass
class Old:
    """The topics of a store that have messages, and the options that select the store's directory
    or its broker.
    """

    names: list
    path: dict
    endpoint: dict

    @property
    def topics(self):
        return ",".join(self.names)


@pytest.fixture(scope="module", params=share(OLD, 2))
def old(request, tmp_path_factory):
    """A copy of a store, served by a broker.

    By the clock, some pending messages are later than their delay levels allow. Like RocketMQ, the
    broker delivers those at once.
    """
    root = shutil.copytree(GOLDEN / request.param, tmp_path_factory.mktemp("old") / "store")
    store = Store.open(root, clock=FakeClock(BEFORE_ALL_DUE_MS))
    readable = [name for name, topic in store.topics.all().items() if topic.readable]
    names = [name for name in readable if any(len(set(has)) > 1 for has in ranges(store, name))]
    with served(store) as address:
        wait_until(partial(is_unchanged, store, names))
        yield Old(names, {"path": str(root)}, {"endpoint": address})
        disconnect()


def is_unchanged(store, topics):
    """Whether no message has been delivered for half a second."""
    before = [ranges(store, topic) for topic in topics]
    time.sleep(0.5)
    return before == [ranges(store, topic) for topic in topics]


def ranges(store, topic):
    return [(has.minimum, has.maximum) for has in store.offsets(topic).values()]


def rows_of(reader, tasks):
    found = [row for task in tasks for part in reader.read(task) for row in part.to_pylist()]
    return sorted(map(repr, found))


def batch(options):
    """Return the rows of a batch with all columns."""
    schema = default_schema(Request(options, "/", ""))
    if "view" not in options:
        schema = StructType(
            [
                StructField(name, each[0].spark_type)
                for name, each in COLUMNS.items()
                if name not in OF_VIEWS
            ]
        )
    reader = DefaultSource(options).reader(schema)
    return rows_of(reader, reader.partitions())


def test_every_batch_has_the_same_rows(old):
    for options in ({"subscribe": old.topics}, {"subscribe": old.topics, "keys": KEYS}):
        by_path = batch({**old.path, **options})
        assert batch({**old.endpoint, **options}) == by_path
        assert by_path or "keys" in options


def test_every_view_has_the_same_rows(old):
    for view in (*MESSAGES, *TABLES):
        assert batch({**old.endpoint, "view": view}) == batch({**old.path, "view": view}), view


def test_every_error_has_the_same_code(old):
    for code, options in ERRORS.items():
        asked = {
            name: value.replace("%s", old.topics.split(",")[0]) for name, value in options.items()
        }
        for target in (old.path, old.endpoint):
            with pytest.raises(PyrocketError) as caught:
                batch({**target, **asked})
            assert caught.value.code == code


def stream(options):
    query = DefaultSource(options).streamReader(schema=default_schema(Request(options, "/", "")))
    start = query.initialOffset()
    end = json.loads(json.dumps(query.latestOffset(start, ReadAllAvailable())))
    return start, end, rows_of(query, query.partitions(start, end))


def test_a_stream_has_the_same_offsets_and_rows(old):
    asked = {"subscribe": old.topics, "startingOffsets": "earliest"}
    by_path = stream({**old.path, **asked})
    assert stream({**old.endpoint, **asked}) == by_path
    assert by_path[2]
