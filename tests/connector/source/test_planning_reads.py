"""Planning reads only shared state and queues: its cost does not depend on message sizes.

A micro-batch also reads the header of one message, its log mark, to recognise the log later.
"""

import json
import mmap
import os
from collections import Counter

import pytest
from pyrocket.disk import io
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture
def log_is_closed(box, monkeypatch):
    """Fail the test if a file of the log is opened from now on; none is open yet."""
    box.create(queues=2)
    for body in ("x", "y" * 4_000):
        box.send(*[body] * 30, queue=0)
        box.send(body, queue=1)
    forget(box.path)
    real = io.open_file

    def guarded(path, flags):
        if "/commitlog/" in str(path):
            pytest.fail(f"opened {path}")
        return real(path, flags)

    monkeypatch.setattr(io, "open_file", guarded)
    yield monkeypatch
    forget(box.path)


@pytest.fixture
def headers_only(log_is_closed, monkeypatch):
    """Fail the test if more than a header of the log is read at once; count the reads."""
    log_is_closed.undo()
    real_open, real_pread, real_mmap = io.open_file, os.pread, mmap.mmap
    of_the_log, counts = {}, Counter()

    def noting_open(path, flags):
        descriptor = real_open(path, flags)
        of_the_log[descriptor] = "/commitlog/" in str(path)
        return descriptor

    def guarded_pread(descriptor, length, offset):
        if of_the_log.get(descriptor):
            assert length <= 103, f"read {length} bytes of the log"
            counts["headers"] += 1
        return real_pread(descriptor, length, offset)

    def guarded_mmap(descriptor, *more, **named):
        assert not of_the_log.get(descriptor), "mapped the log"
        return real_mmap(descriptor, *more, **named)

    monkeypatch.setattr(io, "open_file", noting_open)
    monkeypatch.setattr(os, "pread", guarded_pread)
    monkeypatch.setattr(mmap, "mmap", guarded_mmap)
    return counts


BATCHES = {
    "everything": {},
    "a span": {"startingOffsets": '{"t":{"0":3,"1":0}}', "endingOffsets": '{"t":{"0":50,"1":2}}'},
    "many tasks": {"minPartitions": "8"},
    "small tasks": {"maxBytesPerPartition": "20k", "coalesceQueues": "false"},
    "by tags": {"tags": "a"},
    "a pattern": {"topic": None, "subscribePattern": ".*"},
}


@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_planning_a_batch_reads_no_message(box, log_is_closed, options):
    given = {key: value for key, value in {**box.options, **options}.items() if value is not None}
    assert DefaultSource(given).reader(SCHEMA).partitions()


def through_spark(offset):
    return json.loads(json.dumps(offset))


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxBytes(20_000)], ids=["all", "20k"])
def test_planning_micro_batches_reads_no_message(box, headers_only, limit):
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": "20k"}
    reader = DefaultSource({**box.options, **options}).streamReader(SCHEMA)
    start, ends = through_spark(reader.initialOffset()), []
    for _ in range(20):
        end = through_spark(reader.latestOffset(start, limit))
        if end == start:
            break
        headers_only["planned"] += 1
        assert reader.partitions(start, end)
        ends.append(end["offsets"])
        start = end
    assert ends[-1] == reader.reportLatestOffset()["offsets"]
    assert ends[-1] == {"t": {"broker-a": {"0": 60, "1": 2}}}
    assert (len(ends) > 3) == isinstance(limit, ReadMaxBytes)
    # Before and after planning, the mark is compared with the log, and a new mark is read.
    assert 0 < headers_only["headers"] <= 3 * headers_only["planned"] + 1


def test_a_replayed_micro_batch_is_planned_without_reading_a_message(box, headers_only):
    first = DefaultSource({**box.options, "startingOffsets": "earliest"}).streamReader(SCHEMA)
    start = first.initialOffset()
    end = through_spark(first.latestOffset(start, ReadAllAvailable()))
    planned = first.partitions(start, end)
    forget(box.path)
    assert DefaultSource(box.options).streamReader(SCHEMA).partitions(start, end) == planned


def test_reading_a_batch_opens_the_log(box, log_is_closed):
    """This shows that the tests above can fail."""
    reader = DefaultSource(box.options).reader(SCHEMA)
    with pytest.raises(pytest.fail.Exception, match="commitlog"):
        list(reader.read(reader.partitions()[0]))
    log_is_closed.undo()
    assert sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each)) == 62


def test_reading_a_micro_batch_reads_more_than_headers(box, headers_only):
    reader = DefaultSource(box.options).reader(SCHEMA)
    with pytest.raises(AssertionError, match="the log"):
        list(reader.read(reader.partitions()[0]))
