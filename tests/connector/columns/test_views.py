"""Views of a store: the log, retries, dead letters, groups and topics as DataFrames."""

import logging
import shutil

import pytest
from golden.java import CLEAN, GOLDEN, listing
from pyrocket import VIEW_COLUMNS, Store
from pyrocket.errors import GroupNotFoundError, OptionError, SchemaError, StoreDamagedError
from pyspark.sql.types import StructType
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import ROCKETMQ_DEFAULT
from pyspark_pyrocket.columns.views import columns_besides, table_schema
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source import planner
from pyspark_pyrocket.source.batch_reader import default_schema
from support.direct import read
from support.stores import filled, log_files, numbered, overwrite

JAVA5 = "java550-clean"


def schema_of(path, **options):
    return default_schema(Request({"path": str(path), **options}, "/", ""))


def rows(path, schema=None, **options):
    return read({"path": str(path)}, schema, **options)


def parse(view, **options):
    return ReadOptions.parse(Request({"path": "/s", "view": view, **options}, "/", ""), "batch")


@pytest.fixture
def java5(tmp_path):
    return shutil.copytree(GOLDEN / JAVA5, tmp_path / "copy")


def test_views_of_a_copied_store_can_be_queried_with_sql(spark, java5):
    before = listing(java5)
    for view in ("commitlog", "topics"):
        frame = spark.read.format("pyrocket").options(path=str(java5), view=view).load()
        frame.createOrReplaceTempView(view)
    unread = """
        SELECT c.topic, count(*) AS records, t.kind FROM commitlog c JOIN topics t USING (topic)
        WHERE t.kind <> 'user' GROUP BY ALL ORDER BY topic"""
    assert [tuple(row) for row in spark.sql(unread).collect()] == [
        ("%DLQ%workers", 1, "dead-letter"),
        ("%RETRY%workers", 1, "retry"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 3, "system"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, "system"),
        ("SCHEDULE_TOPIC_XXXX", 3, "system"),
    ]
    queues = """
        SELECT queue.queueId, queue.maxOffset FROM
        (SELECT explode(queues) AS queue FROM topics WHERE topic = 'TopicTest')"""
    assert [tuple(row) for row in spark.sql(queues).collect()] == [(0, 13), (1, 12)]
    assert listing(java5) == before, "nothing has been written"


def test_dead_letters_and_groups_of_a_copied_store_are_read(java5):
    before = listing(java5)
    (dead,) = rows(java5, view="dlq")
    assert (dead["consumerGroup"], dead["originTopic"]) == ("workers", "work")
    assert (dead["body"], dead["reconsumeTimes"]) == (b"bad", 2)
    lags = {(row["topic"], row["lag"]) for row in rows(java5, view="groups", group="workers")}
    assert lags == {("work", 0), ("%RETRY%workers", 0)}
    assert listing(java5) == before, "nothing has been written"


@pytest.mark.parametrize("view", ["commitlog", "retry", "dlq", "groups", "topics"])
def test_every_column_of_a_view_can_be_read(java5, view):
    schema = schema_of(java5, view=view)
    assert rows(java5, view=view)
    names = set(VIEW_COLUMNS[view]) - {"keysText", "bodyText"}
    if view in ("groups", "topics"):
        assert schema.names == [*VIEW_COLUMNS[view]]
        return
    assert schema.names == [*ROCKETMQ_DEFAULT, *(field.name for field in columns_besides(view))]
    for name in sorted(names):
        (field,) = [one for one in [*schema, *columns_besides(view)] if one.name == name][:1] or [
            None
        ]
        if field is not None:
            assert len(rows(java5, StructType([field]), view=view)) == len(rows(java5, view=view))


def test_the_log_is_split_by_its_files(java5, monkeypatch):
    def tasks():
        reader = DefaultSource({"path": str(java5), "view": "commitlog"}).reader(
            StructType().add("topic", "string")
        )
        return [len(task.work.parts) for task in reader.partitions()]

    assert tasks() == [4]
    monkeypatch.setattr(planner, "VIEW_TASK_BYTES", 8192)
    assert tasks() == [2, 2]


def test_the_log_of_some_topics(java5):
    found = rows(java5, view="commitlog", subscribe="work,%DLQ%workers,never-was")
    assert [row["topic"] for row in found] == ["work", "work", "%DLQ%workers"]


def test_corrupt_ranges_of_the_log_are_reported_or_skipped(tmp_path, caplog):
    store = filled(tmp_path / "store", count=60)
    bad = store.read("t", 0, 30)[0].physical_offset
    store.close()
    file = next(one for one in log_files(store.path) if 0 <= bad - int(one.name) < 4096)
    overwrite(file, b"!", bad % 4096 + 95)
    with pytest.raises(StoreDamagedError, match=f"log offsets {bad} to"):
        rows(store.path, view="commitlog")
    expected = numbered(60)
    del expected[30]
    with caplog.at_level(logging.WARNING):
        found = rows(store.path, view="commitlog", onDamage="skip")
    assert [row["body"] for row in found] == expected
    assert "skipped: log offsets" in caplog.text


@pytest.mark.parametrize("view", ["retry", "dlq", "groups"])
def test_the_option_group_selects_one_group(java5, view):
    assert {row["consumerGroup"] for row in rows(java5, view=view, group="workers")} == {"workers"}
    with pytest.raises(GroupNotFoundError, match="Did you mean 'workers'"):
        rows(java5, view=view, group="worker")


def test_pending_messages_of_all_topics_can_be_read(tmp_path):
    root = shutil.copytree(GOLDEN / JAVA5, tmp_path / "copy")
    for file in (root / "config").glob("delayOffset*"):
        file.unlink()
    waiting = rows(root, view="scheduled")
    assert sorted(row["topic"] for row in waiting) == ["%RETRY%workers", "late", "late"]
    assert [row["topic"] for row in rows(root, view="half")] == ["paid"]


def test_a_schema_selects_the_columns_of_a_table_view(java5):
    schema = StructType().add("maxOffset", "long").add("topic", "string")
    found = rows(java5, schema, view="groups", group="workers")
    assert {"maxOffset": 2, "topic": "work"} in found
    assert set(found[0]) == {"maxOffset", "topic"}


@pytest.mark.parametrize(
    ("field", "remedy"),
    [(("topik", "string"), "Did you mean 'topic'"), (("lag", "string"), "Its type is bigint")],
)
def test_a_column_that_a_table_does_not_have_is_rejected(java5, field, remedy):
    with pytest.raises(SchemaError) as caught:
        rows(java5, StructType().add(*field), view="groups")
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("view", "column"), [("messages", "inQueue"), ("scheduled", "inQueue"), ("half", "consumed")]
)
def test_a_column_of_another_view_is_rejected(java5, view, column):
    schema = StructType().add(column, "boolean")
    with pytest.raises(SchemaError, match="Only messages of view="):
        rows(java5, schema, view=view, topic="work")


@pytest.mark.parametrize(
    ("view", "given"),
    [
        ("commitlog", {"startingOffsets": "earliest"}),
        ("commitlog", {"subscribePattern": ".*"}),
        ("commitlog", {"group": "g"}),
        ("retry", {"subscribe": "t"}),
        ("retry", {"onDamage": "skip"}),
        ("topics", {"group": "g"}),
        ("topics", {"topic": "t"}),
        ("groups", {"startingTimestamp": "-1h"}),
        ("scheduled", {"lastN": "1"}),
        ("messages", {"topic": "t", "onDamage": "skip"}),
    ],
)
def test_an_option_that_conflicts_with_a_view_is_rejected(view, given):
    with pytest.raises(OptionError, match=f"view={view}") as caught:
        parse(view, **given)
    assert caught.value.code == "OPTION_CONFLICT"


def test_on_damage_is_fail_or_skip():
    assert parse("commitlog", onDamage="skip").skips_damage
    assert not parse("commitlog").skips_damage
    with pytest.raises(OptionError, match="'onDamage' is 'ignore'"):
        parse("commitlog", onDamage="ignore")


def test_tables_have_the_types_of_the_store():
    lag = table_schema("groups")["lag"]
    assert (lag.dataType.simpleString(), lag.nullable) == ("bigint", True)
    assert (
        table_schema("topics")["queues"]
        .dataType.simpleString()
        .startswith("array<struct<queueId:int")
    )


def test_a_view_of_a_store_in_use_shows_the_state_at_planning_time(box):
    box.create(queues=1)
    box.send("a")
    reader = DefaultSource({**box.target, "view": "commitlog"}).reader(
        StructType().add("body", "binary")
    )
    (task,) = reader.partitions()
    box.send("b")
    assert [body for batch in reader.read(task) for body in batch.column(0).to_pylist()] == [b"a"]


def test_topics_of_a_store_written_by_rocketmq_are_listed_without_selecting_one():
    with Store.open(GOLDEN / CLEAN, read_only=True) as store:
        known = set(store.topics.all())
    listed = {row["topic"]: row for row in rows(GOLDEN / CLEAN, view="topics")}
    assert known < listed.keys(), "4.9 has half messages in topics that are not in its table"
    assert listed["RMQ_SYS_TRANS_HALF_TOPIC"]["readQueues"] is None
    assert listed["RMQ_SYS_TRANS_HALF_TOPIC"]["messages"] == 1
