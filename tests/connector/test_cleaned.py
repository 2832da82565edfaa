"""Messages that were cleaned away before Spark read them are a loss, and named so."""

import shutil

import pytest
from pyrocket import Store
from pyspark.errors import PySparkException
from stores import SMALL


@pytest.fixture
def small(box):
    """A store of small files: cleaning has something to remove."""
    Store.open(box.path, create=True, config=SMALL).close()
    return box.create(queues=1)


def texts(first, count):
    return [f"{number:06}".ljust(200, ".") for number in range(first, first + count)]


def clean(box):
    """Leave the last log file; returns the first offset that is still there."""
    with Store.open(box.path) as store:
        assert store.clean(hours=0).removals
        return store.min_offset("t", 0)


def test_a_stream_that_was_too_slow_is_told(small, stream):
    small.send(*texts(0, 10), queue=0)
    assert stream.drain() == [10]
    small.send(*texts(10, 60), queue=0)
    first = clean(small)
    with pytest.raises(PySparkException, match=rf"OFFSET_OUT_OF_RANGE.*offset 10 .*{first} to 70"):
        stream.drain()
    assert len(stream.bodies()) == 10


def test_a_replay_of_what_is_gone_is_told(small, stream):
    small.send(*texts(0, 60), queue=0)
    stream.drain()
    stream.forget_commit(stream.batches()[-1])
    shutil.rmtree(stream.folder / "out")  # The sink remembers what it has written, too.
    clean(small)
    with pytest.raises(PySparkException, match=r"OFFSET_OUT_OF_RANGE.*cleaned away"):
        stream.drain()


def test_a_frame_whose_messages_went_is_told(spark, small):
    small.send(*texts(0, 60), queue=0)
    reader = spark.read.format("pyrocket").options(**small.options)
    frame = reader.schema("queueOffset BIGINT").load()
    assert frame.count() == 60
    first = clean(small)
    with pytest.raises(PySparkException, match=r"OFFSET_OUT_OF_RANGE.*cleaned away"):
        frame.collect()
    # A frame of its own begins at what is there.
    again = reader.schema("queueOffset BIGINT").load().collect()
    assert [row.queueOffset for row in again] == list(range(first, 60))
