"""The tasks of an at-least-once sink: fsyncs, and rows that are stored but not yet visible."""

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.errors import MessageError
from pyrocket.index.queues.dispatcher import Dispatcher
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink import task_rows
from pyspark_pyrocket.sink.prepare import prepare_sink
from pyspark_pyrocket.sink.writer import append_rows

SCHEMA = StructType([StructField("body", StringType())])


@pytest.mark.parametrize(("flush", "fsyncs"), [("task", 1), ("sync", 3), ("async", 0)])
def test_flush_determines_the_number_of_fsyncs_of_a_task(tmp_path, monkeypatch, flush, fsyncs):
    options = {"path": str(tmp_path / "store"), "topic": "t", "flush": flush}
    options["delivery"] = "at-least-once"
    sink = prepare_sink(Request(options, str(tmp_path)), SCHEMA, overwrite=False)
    batches = [pa.record_batch({"body": ["a", "b", "c", "d"]}) for _ in range(3)]
    append_rows(sink, iter(batches))  # The first append creates the files and syncs each once.
    synced, sync = [], io.sync
    monkeypatch.setattr(io, "sync", lambda descriptor: synced.append(sync(descriptor)))
    append_rows(sink, iter(batches))
    assert len(synced) == fsyncs


def test_a_task_does_not_fail_for_rows_that_are_stored_but_not_yet_visible(tmp_path, monkeypatch):
    options = {"path": str(tmp_path / "store"), "topic": "t", "delivery": "at-least-once"}
    sink = prepare_sink(Request(options, str(tmp_path)), SCHEMA, overwrite=False)
    real, failures = Dispatcher.put, [OSError(28, "No space left on device")]

    def put(*arguments):
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr(Dispatcher, "put", put)
    batches = [pa.record_batch({"body": [body]}) for body in "ab"]
    assert append_rows(sink, iter(batches)).rows == 2
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert sorted(one.body for one in store.messages("t")) == [b"a", b"b"]


def test_an_arrow_batch_is_appended_in_parts(tmp_path, monkeypatch):
    """An error names the row in the Arrow batch, and the number of rows that were appended."""
    monkeypatch.setattr(task_rows, "_PART_BYTES", 40)
    options = {"path": str(tmp_path / "store"), "topic": "t", "delivery": "at-least-once"}
    schema = StructType([*SCHEMA, StructField("queueId", IntegerType())])
    sink = prepare_sink(Request(options, str(tmp_path)), schema, overwrite=False)
    bodies = [f"body of {number}" for number in range(8)]
    batch = pa.record_batch({"body": bodies, "queueId": pa.array([0] * 7 + [99], pa.int32())})
    with pytest.raises(MessageError, match=r"Arrow batch 0.* row 7 .*the 6 rows before it were"):
        append_rows(sink, iter([batch]))
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert [one.body.decode() for one in store.messages("t")] == bodies[:6]
