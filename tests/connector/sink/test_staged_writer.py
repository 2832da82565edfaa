"""The two phases of an exactly-once write, called as by Spark, without Spark."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import SinkBatch, Store
from pyrocket.disk import io
from pyrocket.errors import InvalidInputError, SinkError, StoreNotSharedError
from pyrocket.testing import FileClock
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink.batch_identity import agreed, batch_of_task
from pyspark_pyrocket.sink.writer import batch_writer, stream_writer
from pyspark_pyrocket.transport.path import PathTarget
from support.dying import STEPS

SCHEMA = StructType([StructField("body", StringType())])
QUERY, RUN = "5f0e", "77aa"


@pytest.fixture
def request_to(box):
    def request(**options):
        return Request({**box.options, **options}, "/")

    return request


@pytest.fixture
def in_task(monkeypatch):
    """Set the properties that Spark passes to a task of a micro-batch."""

    def enter(batch=0, run=RUN, query=QUERY):
        # The constructor sets the context for the whole process; a session cannot be created in a
        # task.
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        context = TaskContext()
        context._partitionId, context._attemptNumber = 0, 0
        context._localProperties = {
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": None if batch is None else str(batch),
            "spark.jobGroup.id": run,
        }
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    return enter


def rows(*bodies):
    return iter([pa.record_batch({"body": pa.array(bodies, pa.string())})])


def through_spark(messages):
    return [pickle.loads(pickle.dumps(message)) for message in messages]


def test_rows_are_invisible_until_commit_makes_all_visible(box, request_to):
    writer = batch_writer(request_to(), SCHEMA, overwrite=False)
    messages = through_spark([writer.write(rows("a", "b")), writer.write(rows("c"))])
    assert box.rows() == 0
    writer.commit(messages)
    assert box.bodies() == [b"a", b"b", b"c"]


def test_a_micro_batch_is_published_by_commit_and_dropped_when_repeated(box, request_to, in_task):
    for _ in range(2):
        in_task(batch=0)
        staged = through_spark(
            [stream_writer(request_to(), SCHEMA, overwrite=False).write(rows("a", "b"))]
        )
        in_task(batch=None)  # Spark passes no identity to the driver.
        stream_writer(request_to(), SCHEMA, overwrite=False).commit(staged, 0)
        assert box.bodies() == [b"a", b"b"]


def test_an_uncommitted_task_attempt_is_not_published(box, request_to, in_task):
    in_task(batch=0)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    writer.write(rows("a"))
    (won,) = through_spark([writer.write(rows("a"))])
    writer.commit([won], 0)
    assert box.bodies() == [b"a"]


def test_an_abort_deletes_staged_rows(box, request_to):
    writer = batch_writer(request_to(), SCHEMA, overwrite=False)
    messages = [writer.write(rows("a")), None, writer.write(iter([]))]
    writer.abort(messages)
    with pytest.raises(StoreNotSharedError, match="staged file"):
        writer.commit(messages)
    assert box.rows() == 0


def test_a_failing_abort_raises_no_error(box, request_to, tmp_path):
    writer = batch_writer(request_to(), SCHEMA, overwrite=False)
    message = writer.write(rows("a"))
    Store.open(box.path).path.rename(tmp_path / "elsewhere")
    writer.abort([message])


def test_a_later_run_of_a_query_fences_an_earlier_run(box, request_to, in_task):
    def run(name, batch, body):
        in_task(batch=batch, run=name)
        writer = stream_writer(request_to(), SCHEMA, overwrite=False)
        writer.commit([writer.write(rows(body))], batch)

    run("earlier", 0, "a")
    run("later", 1, "b")
    with pytest.raises(SinkError, match="SINK_FENCED"):
        run("earlier", 2, "c")
    run("later", 2, "d")
    assert box.bodies() == [b"a", b"b", b"d"]


def test_a_fenced_run_fails_even_without_rows(box, request_to, in_task):
    for name, batch in (("earlier", 0), ("later", 1)):
        in_task(batch=batch, run=name)
        writer = stream_writer(request_to(), SCHEMA, overwrite=False)
        writer.commit([writer.write(rows("x"))], batch)
    in_task(batch=2, run="earlier")
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    with pytest.raises(SinkError, match="SINK_FENCED"):
        writer.commit([writer.write(iter([]))], 2)


def test_a_micro_batch_without_rows_is_one_small_write_without_a_flush(
    box, request_to, in_task, monkeypatch
):
    in_task(batch=0)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    writer.commit([writer.write(rows("x"))], 0)
    in_task(batch=1)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([]))], 1)
    changes = []
    for name in {*STEPS, "sync"} - {"make_directory"}:  # It creates only missing files.
        monkeypatch.setattr(io, name, lambda *given, name=name: changes.append(name))
    in_task(batch=2)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([])), writer.write(rows())], 2)
    assert changes == ["write_at"]


@pytest.mark.parametrize("missing", [{"batch": None}, {"query": None}, {"run": ""}])
def test_a_micro_batch_without_an_identity_is_rejected(in_task, missing):
    in_task(**missing)
    with pytest.raises(SinkError, match=r"SINK_NO_IDENTITY.*txnAppId.*at-least-once"):
        batch_of_task("t")


def test_a_write_outside_of_a_task_has_no_identity(monkeypatch):
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    with pytest.raises(SinkError, match="SINK_NO_IDENTITY"):
        batch_of_task("t")


@pytest.mark.parametrize("numbers", [[], [3], [4, 3]])
def test_tasks_of_another_micro_batch_are_not_published(numbers):
    batches = [SinkBatch(identity="q", target="t", batch=number, run="r") for number in numbers]
    with pytest.raises(SinkError, match=r"SINK_NO_IDENTITY.*commits micro-batch 4"):
        agreed(batches, 4)


def test_tasks_of_one_micro_batch_have_one_identity():
    batch = SinkBatch(identity="q", target="t", batch=4, run="r")
    assert agreed(through_spark([batch, batch]), 4) == batch


def test_the_first_task_determines_the_start_time_of_a_micro_batch():
    """A late retry of a task must not make an earlier run appear as the later one."""
    first, later = (SinkBatch(identity="q", target="t", batch=4, run="r") for _ in range(2))
    assert agreed(through_spark([later, first]), 4).began == first.began


def test_a_task_rejects_another_store_at_the_path(box, request_to, tmp_path):
    writer = batch_writer(request_to(), SCHEMA, overwrite=False)
    Store.open(box.path, read_only=True).path.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreNotSharedError):
        writer.write(rows("a"))
    box.create()
    with pytest.raises(StoreNotSharedError):
        writer.write(rows("a"))


def test_delayed_rows_are_published_and_dropped_like_others(box, request_to, in_task):
    schema = StructType([*SCHEMA, StructField("delayLevel", IntegerType())])
    clock = FileClock(box.path)
    clock.set(1_700_000_000_000)
    for _ in range(2):
        in_task(batch=0)
        writer = stream_writer(request_to(), schema, overwrite=False)
        batch = pa.record_batch({"body": ["now", "later"], "delayLevel": pa.array([0, 1], "int32")})
        writer.commit([writer.write(iter([batch]))], 0)
        assert box.bodies() == [b"now"]
    clock.advance(1_000)
    with Store.open(box.path) as store:
        store.deliver_due()
    assert box.bodies() == [b"later", b"now"]


def checkpoint_at(tmp_path, batch):
    """Return a checkpoint in which Spark has planned this micro-batch."""
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).touch()
    return {"checkpointLocation": (tmp_path / "checkpoint").as_uri()}


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("known", [True, False], ids=["checkpoint known", "not known"])
def test_only_the_first_micro_batch_creates_a_store(
    box, request_to, in_task, tmp_path, known, delivery
):
    in_task(batch=5)
    options = checkpoint_at(tmp_path, 5) if known else {}
    request = request_to(delivery=delivery, **options)
    with pytest.raises(SinkError, match=r"SINK_STORE_CHANGED.*there is no store"):
        stream_writer(request, SCHEMA, False).write(rows("a"))
    assert not Path(box.path).exists()


def test_a_later_micro_batch_without_rows_creates_no_store(box, request_to, in_task):
    in_task(batch=5)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    with pytest.raises(SinkError, match=r"SINK_STORE_CHANGED.*there is no store"):
        writer.commit([writer.write(iter([]))], 5)
    assert not Path(box.path).exists()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("bodies", [("a",), ()], ids=["rows", "no rows"])
def test_the_first_micro_batch_creates_a_store_if_the_checkpoint_is_unknown(
    box, request_to, in_task, bodies, delivery
):
    in_task(batch=0)
    request = request_to(delivery=delivery)
    messages = [stream_writer(request, SCHEMA, False).write(rows(*bodies) if bodies else iter([]))]
    in_task(batch=None)
    stream_writer(request, SCHEMA, False).commit(through_spark(messages), 0)
    assert box.bodies() == [body.encode() for body in bodies]


def test_a_task_on_another_machine_creates_no_store(box, request_to, in_task, monkeypatch):
    in_task(batch=0)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    with pytest.raises(StoreNotSharedError, match="there is no store") as refused:
        writer.write(rows("a"))
    assert ".." not in str(refused.value)
    assert not Path(box.path).exists()


def test_a_store_missing_in_a_task_is_reported_in_complete_sentences(tmp_path):
    with pytest.raises(StoreNotSharedError, match="STORE_NOT_SHARED") as refused:
        PathTarget(str(tmp_path / "store"), "the driver's").open_source()
    assert "there is no store" in refused.value.message
    assert f"{tmp_path / 'store'}. The directory has to be" in str(refused.value)


@pytest.mark.parametrize("there", ["nothing", "another store"])
def test_a_store_deleted_while_a_query_runs_is_reported(box, request_to, in_task, tmp_path, there):
    in_task(batch=0)
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    box.create()
    writer = stream_writer(request_to(), SCHEMA, overwrite=False)
    message = writer.write(rows("a"))
    Path(box.path).rename(tmp_path / "elsewhere")
    if there == "another store":
        box.create()
    for step in (lambda: writer.write(rows("a")), lambda: writer.commit([message], 0)):
        with pytest.raises(SinkError, match="SINK_STORE_CHANGED"):
            step()


def test_the_checkpoint_of_a_query_contains_its_target_store(box, request_to, in_task, tmp_path):
    def run(batch, **options):
        in_task(batch=batch)
        request = request_to(**checkpoint_at(tmp_path, batch), **options)
        writer = stream_writer(request, SCHEMA, overwrite=False)
        writer.commit([writer.write(rows(str(batch)))], batch)

    run(0)
    first = Path(box.path).rename(tmp_path / "first")
    box.create()
    with Store.open(box.path) as other:
        uuid = other.uuid
    with pytest.raises(SinkError, match=f"SINK_STORE_CHANGED.*now there is the store {uuid}"):
        run(1)
    assert box.bodies() == []
    run(1, onBatchGap="accept")
    assert box.bodies() == [b"1"]
    run(2, path=box.path)
    with pytest.raises(SinkError, match="SINK_STORE_CHANGED"):
        run(3, path=str(first))


def test_an_unreadable_sink_file_in_the_checkpoint_is_reported(box, request_to, in_task, tmp_path):
    options = checkpoint_at(tmp_path, 0)
    (tmp_path / "checkpoint" / "pyrocket-sink.json").write_text('{"version": 2}')
    box.create()
    with pytest.raises(InvalidInputError, match=r"CHECKPOINT_DAMAGED.*pyrocket-sink\.json"):
        stream_writer(request_to(**options), SCHEMA, overwrite=False)
