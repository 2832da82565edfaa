"""Each process caches open stores, and detects another store at the same path."""

import gc
import pickle
import shutil

import pytest
from pyrocket.errors import StoreNotFoundError, StoreNotSharedError
from pyspark.sql.datasource import InputPartition
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.source.partitions import Ranges, ReadPartition
from pyspark_pyrocket.source.task import read_partition
from pyspark_pyrocket.transport import path as stores
from pyspark_pyrocket.transport.path import PathTarget, forget
from support.offsets import as_asked, span

PROJECTION = Projection.of(default_columns(kafka=False, headers=False, text=False))


@pytest.fixture(autouse=True)
def nothing_left_open(box):
    yield
    for path in list(stores._open):
        forget(path)


def test_a_store_is_opened_once(box):
    box.create()
    assert PathTarget(box.path).open_source() is PathTarget(box.path).open_source()


def test_a_replaced_directory_is_opened_again(box):
    box.create()
    first = PathTarget(box.path).open_source()
    shutil.rmtree(box.path)
    box.create()
    assert PathTarget(box.path).open_source().store_id != first.store_id


def test_a_deleted_directory_is_reported(box):
    box.create()
    PathTarget(box.path).open_source()
    shutil.rmtree(box.path)
    with pytest.raises(StoreNotFoundError):
        PathTarget(box.path).open_source()


def test_only_a_few_stores_stay_open(box):
    for number in range(12):
        other = type(box)(f"{box.path}-{number}").create()
        PathTarget(other.path).open_source()
    assert len(stores._open) == 8


def test_a_task_that_finds_another_store_fails(box):
    box.create()
    with pytest.raises(StoreNotSharedError, match=r"not another.*same one for the driver"):
        PathTarget(box.path, "another").open_source()


def test_a_task_that_finds_no_store_fails(box):
    with pytest.raises(StoreNotSharedError, match="there is no store"):
        PathTarget(box.path, "another").open_source()


def test_a_store_without_an_id_is_accepted_unchecked(box):
    box.create()
    assert PathTarget(box.path, "").open_source()


def read(box, *ranges):
    partition = ReadPartition(PathTarget(box.path).open_source().target, Ranges(ranges))
    partition = pickle.loads(pickle.dumps(partition))
    batches = list(read_partition(partition, PROJECTION, as_asked(verify_crc=True)))
    return [body for batch in batches for body in batch.column("body").to_pylist()]


def test_a_task_reads_exactly_its_ranges_in_their_order(box):
    box.create(queues=2)
    box.send("a", "b", "c", queue=0)
    box.send("d", "e", queue=1)
    assert read(box, span("t", 1, 0, 1), span("t", 0, 1, 3)) == [b"d", b"b", b"c"]


def test_a_partition_that_spark_creates_itself_is_empty():
    assert list(read_partition(InputPartition(None), PROJECTION, as_asked(verify_crc=False))) == []


def test_loaded_objects_are_frozen_once_per_process(box, monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr("pyspark_pyrocket.worker._frozen", False)
    box.create()
    read(box)
    read(box)
    assert frozen == [1]
