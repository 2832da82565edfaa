"""Bodies decoded into columns and columns encoded as bodies, through Spark, in batches and in
streams.
"""

import json
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.errors import PyrocketError
from support.direct import read

JSON = {"valueFormat": "json", "valueSchema": "id BIGINT, at TIMESTAMP, tags_ ARRAY<STRING>"}
ORDER = '{"id":7,"at":"2024-01-02T03:04:05Z","tags_":["a","b"],"more":{"x":1}}'


def values(box, schema=None, **options):
    return [tuple(row.values()) for row in read(box.options, schema, **options)]


def test_all_system_fields_can_be_read_as_columns(box):
    properties = pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string()))
    box.create(queues=1).send("x", queue=0, tags=pa.array(["T"]), keys=pa.array([["k1", "k2"]]))
    box.send("y", queue=0, properties=properties)
    first, second = read(
        box.options,
        "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, msgId STRING, "
        "tags STRING, keys ARRAY<STRING>, bornTimestamp TIMESTAMP, storeTimestamp TIMESTAMP, "
        "bornHost STRING, storeHost STRING, flag INT, sysFlag INT, reconsumeTimes INT, "
        "physicalOffset BIGINT, storeSize INT, preparedTransactionOffset BIGINT, "
        "systemProperties MAP<STRING,STRING>",
    )
    with Store.open(box.path, read_only=True) as store:
        stored = store.read("t", 0, 0, 2)
    for row, message in zip((first, second), stored, strict=True):
        assert (row["queueId"], row["queueOffset"]) == (0, message.queue_offset)
        assert row["msgId"] == message.msg_id
        assert row["storeTimestamp"].timestamp() * 1000 == message.store_timestamp
    assert (first["tags"], first["keys"]) == ("T", ["k1", "k2"])
    assert (second["tags"], second["keys"]) == (None, [])
    assert (first["reconsumeTimes"], first["flag"], first["topic"]) == (0, 0, "t")
    assert first["physicalOffset"] + first["storeSize"] == second["physicalOffset"]


@pytest.mark.parametrize("mode", ["rocketmq", "kafka"])
def test_properties_can_be_read_as_a_map_column(box, mode):
    """The headers, which are optional in Kafka mode, are always available."""
    properties = pa.array([[("a", "1"), ("b", "2")]], pa.map_(pa.string(), pa.string()))
    box.send("x", properties=properties)
    ((read_back,),) = values(box, "properties MAP<STRING,STRING>", schemaMode=mode)
    assert dict(read_back) == {"a": "1", "b": "2"}


def test_options_select_how_bodies_are_decoded(box):
    box.create(queues=1).send(ORDER, '{"id":8}', queue=0)
    first, second = read(box.options, **JSON)
    assert "body" not in first
    names = [*first]
    assert names.index("id") == names.index("keys") + 1
    assert first["at"] == datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert (first["id"], first["tags_"], first["queueOffset"]) == (7, ["a", "b"], 0)
    assert [second[name] for name in ("id", "at", "tags_", "queueOffset")] == [8, None, None, 1]
    assert [row["body"] for row in read(box.options, valueFormat="string")] == [ORDER, '{"id":8}']


POISON = ["{", '{"id":"seven","at":"2024-01-01"}', b'{"id":"\xff"}', '{"id":9}']


def poisoned(box):
    bodies = [each.encode() if isinstance(each, str) else each for each in POISON]
    box.create(queues=1).send(*bodies, queue=0)
    with box.store() as store:
        store.topics.create("sound")
    return box


def bad_messages(box, topic="bad"):
    with Store.open(box.path, read_only=True) as store:
        found = [
            message
            for queue, offsets in store.offsets(topic).items()
            for message in store.read(topic, queue, 0, offsets.maximum)
        ]
    return sorted(found, key=lambda message: message.properties["originQueueOffset"])


def test_permissive_mode_fills_the_corrupt_column_and_the_bad_records_topic(box):
    poisoned(box)
    options = {**JSON, "valueSchema": "id BIGINT, at DATE, _corrupt_record STRING"}
    schema = "queueOffset BIGINT, id BIGINT, at DATE, _corrupt_record STRING"
    for _ in range(2):  # Reading the messages again does not send the bad records again.
        assert values(box, schema, badRecordsTopic="bad", **options) == [
            (0, None, None, "{"),
            (1, None, date(2024, 1, 1), POISON[1]),
            (2, None, None, '{"id":"�"}'),
            (3, 9, None, None),
        ]
    sent = bad_messages(box)
    assert [message.body for message in sent] == [POISON[0].encode(), POISON[1].encode(), POISON[2]]
    assert [message.properties["originQueueOffset"] for message in sent] == ["0", "1", "2"]
    assert {message.properties["originTopic"] for message in sent} == {"t"}
    assert [message.properties["reason"].split(":")[0] for message in sent] == [
        "it is not JSON",
        "id is seven, not bigint",
        "it is not UTF-8",
    ]
    assert sent[1].keys == ("t/0/1",)


def test_poison_records_do_not_stop_the_pipeline(spark, box, stream):
    poisoned(box)
    stream.schema = "topic STRING, queueId INT, queueOffset BIGINT, id BIGINT"
    options = {**JSON, "mode": "DROPMALFORMED", "badRecordsTopic": "bad"}
    stream.drain(maxOffsetsPerTrigger=2, **options)
    assert len(bad_messages(box)) == 3
    box.send("{}", "}", queue=0)
    # Simulate that the driver died before the commit: the replayed batch sends nothing again.
    stream.forget_commit(stream.batches()[-1])
    stream.drain()
    assert len(bad_messages(box)) == 4
    assert stream.output() == [("t", 0, 3, 9), ("t", 0, 4, None)]


def test_each_mode_handles_a_body_that_is_not_utf_8(box):
    box.create(queues=1).send(b"a", b"\xff", queue=0)
    schema = "body STRING, _corrupt_record STRING"
    options = {"valueFormat": "string", "mode": "permissive"}
    assert values(box, schema, **options) == [("a", None), (None, "�")]
    options["mode"] = "dropmalformed"
    assert values(box, "body STRING", **options) == [("a",)]
    with pytest.raises(PyrocketError, match=r"BODY_NOT_UTF8.*offset 1"):
        read(box.options, valueFormat="string")


def test_bodies_are_decoded_without_a_schema_registry(box, caplog):
    box.create(queues=2).send('{"id":1,"when":{"day":"x"}}', queue=0)
    box.send('{"id":2.5,"ok":true}', queue=1)
    pasted = "id DOUBLE, when STRUCT<day: STRING>, ok BOOLEAN"
    rows = read(box.options, valueFormat="json")
    assert rows == read(box.options, valueFormat="json", valueSchema=pasted)
    assert [(row["id"], row["ok"], row["when"]) for row in rows] == [
        (1.0, None, {"day": "x"}),
        (2.5, True, None),
    ]
    assert f"to read of t: {pasted}" in caplog.text


def test_any_dataframe_can_be_written_as_json(spark, box):
    frame = spark.sql(
        "SELECT 'T' AS tags, concat('k', id) AS key, id, id / 2 AS half, "
        "CASE id WHEN 1 THEN named_struct('at', DATE'2024-01-02', 'xs', array(1.5D)) END AS r, "
        "timestamp_seconds(id) AS timestamp FROM range(2)"
    )
    writer = frame.write.format("pyrocket").mode("append").options(**box.options)
    writer.option("valueFormat", "json").save()
    stored = sorted(box.read("body", "tags", "keysText"))
    assert [json.loads(body) for body, *_ in stored] == [
        {"id": 0, "half": 0.0, "timestamp": "1970-01-01T00:00:00.000000Z"},
        {
            "id": 1,
            "half": 0.5,
            "r": {"at": "2024-01-02", "xs": [1.5]},
            "timestamp": "1970-01-01T00:00:01.000000Z",
        },
    ]
    assert [rest for _, *rest in stored] == [["T", "k0"], ["T", "k1"]]


def test_a_struct_column_survives_a_round_trip(spark, box):
    frame = spark.sql(
        "SELECT named_struct('topic', 'a', 'key', 1, 'body', X'00ff', 'm', map('x', 1.25BD)) "
        "AS payload"
    )
    options = {**box.options, "valueFormat": "json", "valueColumn": "payload"}
    frame.write.format("pyrocket").mode("append").options(**options).save()
    ddl = "topic STRING, key INT, body BINARY, m MAP<STRING,DECIMAL(3,2)>"
    back = spark.read.format("pyrocket").options(**options, valueSchema=ddl).load()
    assert back.select("payload.*").collect() == frame.select("payload.*").collect()


@pytest.mark.heavy
def test_strings_with_a_collation_are_written_and_read(spark, box):
    rows = spark.sql("SELECT 'Ab' COLLATE UTF8_LCASE AS s, array('x' COLLATE UNICODE_CI) AS a")
    rows.write.format("pyrocket").mode("append").options(**box.options, valueFormat="json").save()
    schema = "s STRING COLLATE UTF8_LCASE, a ARRAY<STRING COLLATE UNICODE_CI>"
    read = spark.read.format("pyrocket").options(**box.options, valueFormat="json")
    found = read.option("valueSchema", schema).load().where("s = 'aB' AND a[0] = 'X'")
    assert [tuple(row) for row in found.select("s", "a").collect()] == [("Ab", ["x"])]
    plain = spark.sql("SELECT 'body' COLLATE UTF8_LCASE AS body, 'K' COLLATE UNICODE_CI AS key")
    plain.write.format("pyrocket").mode("append").options(**box.other("u").options).save()
    assert box.other("u").read("body", "keys") == [(b"body", ["K"])]
