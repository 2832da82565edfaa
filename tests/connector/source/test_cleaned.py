"""Messages that are deleted between the plan of a read and its tasks."""

import pyarrow as pa
import pytest
from pyrocket.errors import OffsetOutOfRangeError
from pyspark.sql.types import StructType
from pyspark_pyrocket import DefaultSource
from support.direct import read
from support.stores import SMALL, set_disk_usage


@pytest.fixture
def small(box, monkeypatch):
    """A store of small files on a disk with free space: only `clean` deletes files."""
    set_disk_usage(monkeypatch, 100)
    box.recreate(SMALL)
    return box.create(queues=1)


def texts(first, count):
    return [f"{number:06}".ljust(200, ".") for number in range(first, first + count)]


def clean(box):
    """Delete all log files except the last; return the first remaining offset."""
    with box.store() as store:
        assert store.clean(hours=0).removals
        return store.min_offset("t", 0)


@pytest.mark.parametrize("selected", [{}, {"keys": "k"}], ids=["range", "look-up"])
def test_messages_deleted_between_plan_and_tasks_are_an_error(small, selected):
    rows = {"queueId": pa.array([0] * 60, pa.int32()), "keys": pa.array([["k"]] * 60)}
    with small.store() as store:
        texts_and_keys = pa.record_batch({"body": pa.array(texts(0, 60)), **rows})
        store.append_batch(texts_and_keys, topic="t")
    columns = StructType().add("queueOffset", "long")
    found = {**small.options, **selected}
    asked = [DefaultSource(found | more).reader(columns) for more in ({}, {"onDataLoss": "skip"})]
    (strict,), (lenient,) = (reader.partitions() for reader in asked)
    first = clean(small)
    with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired.*onDataLoss"):
        list(asked[0].read(strict))
    left = [at for batch in asked[1].read(lenient) for at in batch.column(0).to_pylist()]
    assert left == list(range(first, 60))
    # A new DataFrame starts at the first existing message.
    assert len(read(found)) == 60 - first
