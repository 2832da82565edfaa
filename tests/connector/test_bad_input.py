"""Invalid input raises an error with a code on the driver before any task runs.

How Spark reports such an error is tested in test_boundary.py.
"""

import fcntl
import os
from pathlib import Path

import pytest
from pyrocket import Store
from pyrocket.errors import PyrocketError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from pyspark.sql.utils import AnalysisException
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.transport.path import forget
from support.machines import SOURCE_RUNNER, pass_for

READS = [
    # what, changed options (None removes one), schema, error
    ("no target", {"path": None}, None, "OPTION_MISSING.*PYROCKET_STORE"),
    (
        "a name server that is not running",
        {"path": None, "namesrv": "127.0.0.1:1", "endpoint.timeout": "1s"},
        None,
        "TRANSPORT_FAILED",
    ),
    (
        "a broker that is not running",
        {"path": None, "endpoint": "127.0.0.1:1", "endpoint.timeout": "1s"},
        None,
        "TRANSPORT_FAILED.*127.0.0.1:1.*doctor --endpoint",
    ),
    (
        "a directory that does not exist",
        {"path": "/no/such/store"},
        None,
        "STORE_NOT_FOUND.*/no/such/store",
    ),
    ("a path of a file", {"path": __file__}, None, "STORE_NOT_A_DIRECTORY"),
    (
        "a directory that is not a store",
        {"path": str(Path(__file__).parent)},
        None,
        "not a store: it contains",
    ),
    (
        "a topic that does not exist",
        {"topic": "tt"},
        None,
        "TOPIC_NOT_FOUND.*'tt'.*Did you mean 't'",
    ),
    ("an illegal topic name", {"topic": "a b"}, None, "TOPIC_NOT_FOUND.*'a b'"),
    ("an unknown option", {"startingOffset": "latest"}, None, "OPTION_UNKNOWN.*startingOffsets"),
    (
        "offsets that lack a queue",
        {"startingOffsets": '{"t":{"0":0}}'},
        "body BINARY",
        "not name the queue 1",
    ),
    (
        "an offset out of range",
        {"startingOffsets": '{"t":{"0":99,"1":0}}'},
        "body BINARY",
        "OFFSET_OUT_OF_RANGE.*queue 0.*99",
    ),
    ("an unknown column", {}, "bodi BINARY", "COLUMN_UNKNOWN.*'bodi'.*'body'"),
]
ONLY_BATCH = [
    (
        "a start after the end",
        {"startingOffsets": '{"t":{"0":2,"1":0}}', "endingOffsets": '{"t":{"0":1,"1":0}}'},
        "body BINARY",
        r"START_BEYOND_END.*queue 0: 2 > 1",
    ),
]
ONLY_STREAM = [
    ("an end of a stream", {"endingOffsets": "latest"}, "body BINARY", "batch queries"),
]
WRITES = [
    ("no target", {"path": None}, "'x' AS body", "OPTION_MISSING.*PYROCKET_STORE"),
    (
        "a cluster of RocketMQ",
        {"path": None, "namesrv": "h:1"},
        "'x' AS body",
        "OPTION_UNSUPPORTED.*delivery=at-least-once",
    ),
    ("a path of a file", {"path": __file__}, "'x' AS body", "STORE_NOT_A_DIRECTORY"),
    ("an illegal topic name", {"topic": "a b"}, "'x' AS body", "TOPIC_ILLEGAL"),
    ("a system topic", {"topic": "SCHEDULE_TOPIC_XXXX"}, "'x' AS body", "TOPIC_ILLEGAL"),
    ("an unknown option", {"topics": "t"}, "'x' AS body", "OPTION_UNKNOWN.*'topic"),
    ("no body column", {}, "'x' AS tags", "BODY_COLUMN_MISSING"),
    (
        "neither a topic option nor a topic column",
        {"topic": None},
        "'x' AS body",
        "TOPIC_COLUMN_MISSING",
    ),
]


def named(cases):
    return pytest.mark.parametrize(
        ("changed", "given", "error"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


def options_of(box, changed):
    options = {**box.options, **changed}
    return {key: value for key, value in options.items() if value is not None}


WITH_SCHEMA = [(*case[:2], case[2] or "body BINARY", case[3]) for case in READS]


def struct(given):
    name, kind = given.split()
    return StructType().add(name, {"INT": "integer"}.get(kind, kind.lower()))


@named(READS + ONLY_BATCH)
def test_the_planner_of_a_batch_reports_invalid_input(box, changed, given, error):
    box.create(queues=2).send("x", "y", queue=0)
    source = DefaultSource(options_of(box, changed))

    def ask():
        if not given:
            source.schema()
        source.reader(struct(given or "body BINARY")).partitions()

    with pytest.raises(PyrocketError, match=rf"(?s){error}"):
        ask()


@named(WITH_SCHEMA + ONLY_STREAM)
def test_the_planner_of_a_stream_reports_invalid_input(box, monkeypatch, changed, given, error):
    """Spark's first call raises the error, so Spark reports it."""
    box.create(queues=2).send("x", "y", queue=0)
    pass_for(monkeypatch, SOURCE_RUNNER)
    reader = DefaultSource(options_of(box, changed)).streamReader(struct(given or "body BINARY"))

    def ask():
        reader.prepareForTriggerAvailableNow()
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    with pytest.raises(PyrocketError, match=rf"(?s){error}"):
        ask()
    forget(box.path)


def writer(options, given="'x' AS body"):
    """Ask for the writer of rows with these columns, as Spark does on the driver."""
    schema = StructType()
    for value, name in (column.split(" AS ") for column in given.split(", ")):
        schema.add(name, "string" if value == "'x'" else "integer")
    return DefaultSource(options).writer(schema, overwrite=False)


@named(WRITES)
def test_the_planner_of_a_write_reports_invalid_input(box, changed, given, error):
    with pytest.raises(PyrocketError, match=rf"(?s){error}"):
        writer(options_of(box, changed), given)
    assert not os.path.exists(box.path) or box.rows() == 0


def test_reads_never_create_anything(tmp_path):
    path = tmp_path / "store"
    source = DefaultSource({"path": str(path), "topic": "t"})
    for prepare in (bool, Path.mkdir):
        prepare(path)
        with pytest.raises(PyrocketError, match="STORE_NOT_FOUND"):
            source.schema()
    assert not list(path.iterdir())


@pytest.mark.parametrize("exists", [False, True])
def test_a_write_without_create_if_missing_creates_nothing(box, exists):
    if exists:
        Store.open(box.path, create=True).close()
    with pytest.raises(PyrocketError, match="TOPIC_NOT_FOUND" if exists else "STORE_NOT_FOUND"):
        writer({**box.options, "createIfMissing": "false"})
    assert os.path.exists(box.path) == exists


def test_a_directory_with_other_files_does_not_become_a_store(tmp_path, box):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").touch()
    with pytest.raises(PyrocketError, match=r"STORE_DIRECTORY_NOT_EMPTY.*thesis\.tex"):
        writer(box.options)
    assert os.listdir(box.path) == ["thesis.tex"]


@pytest.mark.parametrize(("perm", "code"), [(4, "TOPIC_NOT_WRITABLE"), (2, "TOPIC_NOT_READABLE")])
def test_a_topics_permissions_are_respected(box, perm, code):
    box.create()
    with Store.open(box.path) as store:
        store.topics.update("t", perm=perm)
    with pytest.raises(PyrocketError, match=code):
        writer(box.options) if perm == 4 else DefaultSource(box.options).schema()


def test_a_store_held_by_a_broker_is_reported_before_any_task_runs(box):
    box.send("kept")
    with open(f"{box.path}/lock", "r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # Like a FileChannel of a broker.
        with pytest.raises(PyrocketError, match="STORE_IN_USE"):
            writer(box.options)
    assert box.bodies() == [b"kept"]


def test_several_paths_are_rejected(spark, box):
    with pytest.raises(AnalysisException, match="Several paths"):
        spark.read.format("pyrocket").option("topic", "t").load([box.path, "/other"])
