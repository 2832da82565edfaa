"""Kafka's null values and binary keys: written if an option is set, and read back unchanged."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyrocket import SinkBatch, Store
from pyrocket.errors import MessageError, OptionError, SchemaError
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from pyspark_pyrocket.arrow_types import map_with_entry
from pyspark_pyrocket.columns.messages import HEADERS, default_columns
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.payload import (
    BASE64,
    DROP,
    DROPMALFORMED,
    EMPTY,
    FAIL,
    FAILFAST,
    PERMISSIVE,
    TEXT_KEY,
    Payload,
)
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions
from pyspark_pyrocket.sink.columns import plan_columns, plan_json, send_batch
from pyspark_pyrocket.sink.kafka_rows import rows_with_body
from pyspark_pyrocket.sink.prepare import SinkPlan, prepare_sink
from pyspark_pyrocket.sink.staged_writer import StagedWriter, publish, stage_rows
from pyspark_pyrocket.sink.task_rows import send_rows
from support.shares import TIMES

STRINGS = pa.map_(pa.string(), pa.string())
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
READ = Payload(kafka_columns=True, include_headers=True)
BYTES = st.one_of(
    st.none(),
    st.sampled_from(
        [b"", b" ", b"  ", b"a b", b"\xff\xfe", b"\0", b"\x01\x02", "é".encode(), b"k"]
    ),
    st.binary(max_size=9),
    st.text(max_size=5).map(str.encode),
)
HEADER = st.dictionaries(st.sampled_from(["h", "i"]), st.just(b"v"), min_size=1, max_size=2)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.one_of(st.none(), HEADER)), min_size=1, max_size=12)


def kafka_batch(rows):
    """Return rows of (key, value, headers) as Spark passes them."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[2] = [
        headers and [{"key": name, "value": value} for name, value in headers.items()]
        for headers in columns[2]
    ]
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)],
        schema=ARROW,
    )


def sent(rows, **forms):
    return send_batch(kafka_batch(rows), plan_columns(KAFKA, "t"), **forms)


def read(store, topic, schema=KAFKA, payload=READ, start=0):
    """Read one queue as a query does; return plain rows."""
    projection = Projection.of(schema, payload)
    end = store.offsets(topic)[0].maximum
    found = []
    for batch in projection.apply_all(store.scan(topic, 0, start, end, projection.scan)):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


FEW = settings(max_examples=10 * TIMES)
"""Each example appends to a store, twice."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.open(tmp_path_factory.mktemp("kafka") / "store", create=True) as store:
        yield store


@FEW
@given(ROWS)
@example(
    [(None, None, None), (b"", b"", None), (b" ", None, {"h": b"v"}), (b"\xff", b"\xff", None)]
)
def test_rows_of_kafka_survive_a_round_trip_exactly(store, rows):
    topic = store.topics.create("exact", read_queues=1, write_queues=1)
    start = store.offsets(topic.name)[0].maximum
    store.append_batch(sent(rows, null_body=EMPTY, key_encoding=BASE64), topic=topic.name)
    expected = kafka_batch(rows).to_pylist()
    assert read(store, topic.name, start=start) == expected
    # Repeat the round trip with the rows that were read.
    copy = store.topics.create("copy", read_queues=1, write_queues=1)
    start = store.offsets(copy.name)[0].maximum
    again = pa.RecordBatch.from_pylist(expected, ARROW)
    again = send_batch(again, plan_columns(KAFKA, "t"), null_body=EMPTY, key_encoding=BASE64)
    store.append_batch(again, topic=copy.name)
    assert read(store, copy.name, start=start) == expected


@FEW
@given(ROWS)
def test_kafka_rows_copied_through_rocketmqs_columns_are_unchanged(store, rows):
    schema = default_columns(kafka=False, headers=False, text=False)
    names = ["tags", "keys", "body", "properties"]
    plain = StructType([schema[name] for name in names])
    first = store.topics.create("first", read_queues=1, write_queues=1)
    start = store.offsets(first.name)[0].maximum
    store.append_batch(sent(rows, null_body=EMPTY, key_encoding=BASE64), topic=first.name)
    projection = Projection.of(plain)
    end = store.offsets(first.name)[0].maximum
    second = store.topics.create("second", read_queues=1, write_queues=1)
    begin = store.offsets(second.name)[0].maximum
    for batch in projection.apply_all(store.scan(first.name, 0, start, end, projection.scan)):
        store.append_batch(send_batch(batch, plan_columns(plain, "t")), topic=second.name)
    assert read(store, second.name, start=begin) == kafka_batch(rows).to_pylist()


def test_one_topic_may_mix_both_encodings_of_keys(store):
    store.topics.create("mixed", read_queues=1, write_queues=1)
    store.append_batch(sent([(b"eA==", b"1", None)]), topic="mixed")
    store.append_batch(sent([(b"x y", b"2", None)], key_encoding=BASE64), topic="mixed")
    store.append_batch(sent([(None, b"3", None)], key_encoding=BASE64), topic="mixed")
    assert [row["key"] for row in read(store, "mixed")] == [b"eA==", b"x y", None]
    assert [message.body for message in store.lookup.query("mixed", "eCB5")] == [b"2"]


def test_properties_for_kafkas_nulls_and_keys_are_ignored_if_body_or_key_contradict_them(store):
    store.topics.create("marks", read_queues=1, write_queues=1)
    properties = [[("pyrocketNull", "body"), ("pyrocketKey", "base64")]] * 2
    batch = {
        "body": pa.array([b"x", b""]),
        "keys": pa.array(["%%%", "eA=="]),
        "properties": pa.array(properties, STRINGS),
    }
    store.append_batch(pa.record_batch(batch), topic="marks")
    assert [(row["key"], row["value"]) for row in read(store, "marks")] == [
        (b"%%%", b"x"),
        (b"x", None),
    ]


def test_rocketmqs_columns_show_the_stored_form_of_kafka_rows(store):
    store.topics.create("plain", read_queues=1, write_queues=1)
    forms = {"null_body": EMPTY, "key_encoding": BASE64}
    store.append_batch(sent([(b"x y", None, {"h": b"v"})], **forms), topic="plain")
    schema = StructType(
        [StructField("key", BinaryType()), StructField("value", BinaryType()), KAFKA["headers"]]
    )
    (row,) = read(store, "plain", schema, Payload())
    assert (row["key"], row["value"]) == (b"eCB5", b"")
    marks = {"h": b"v", "pyrocketKey": b"base64", "pyrocketNull": b"body"}
    assert {each["key"]: each["value"] for each in row["headers"]} == marks


def test_keys_and_values_may_be_read_as_text(store):
    store.topics.create("text", read_queues=1, write_queues=1)
    forms = {"null_body": EMPTY, "key_encoding": BASE64}
    schema = StructType([StructField("key", StringType()), StructField("value", StringType())])
    payload = Payload(kafka_columns=True, value_format="string")
    store.append_batch(sent([("é ".encode(), None, None), (b"", b"", None)], **forms), topic="text")
    assert read(store, "text", schema, payload) == [
        {"key": "é ", "value": None},
        {"key": "", "value": ""},
    ]
    store.append_batch(sent([(b"\xff", b"", None)], **forms), topic="text")
    with pytest.raises(SchemaError, match="not UTF-8") as info:
        read(store, "text", schema, payload)
    assert info.value.code == "KEY_NOT_UTF8"


@pytest.mark.parametrize("mode", [PERMISSIVE, DROPMALFORMED, FAILFAST])
def test_a_tombstone_is_not_a_bad_record(store, mode):
    topic = f"json-{mode}"
    store.topics.create(topic, read_queues=1, write_queues=1)
    rows = [(b"a", b'{"id":1}', None), (b"b", None, None)]
    store.append_batch(sent(rows, null_body=EMPTY), topic=topic)
    fields = StructType([StructField("id", StringType())])
    payload = Payload(kafka_columns=True, value_format="json", value_schema=fields, mode=mode)
    assert read(store, topic, fields, payload) == [{"id": "1"}, {"id": None}]
    text = Payload(kafka_columns=True, value_format="string", mode=mode)
    schema = StructType([StructField("value", StringType())])
    assert [row["value"] for row in read(store, topic, schema, text)] == ['{"id":1}', None]


def test_a_null_value_is_rejected_with_row_key_and_remedy():
    with pytest.raises(MessageError, match="row 1, with the key 'k', has a null body") as info:
        sent([(b"j", b"x", None), (b"k", None, None)])
    assert info.value.code == "BODY_NULL"
    assert "nullBody=empty" in info.value.remedy
    assert "nullBody=drop" in info.value.remedy


@pytest.mark.parametrize("key", [b"a b", b" ", b"\xff", b"a\x01", b"\x02"])
def test_a_key_that_rocketmq_cannot_store_is_rejected_with_the_remedy(key):
    with pytest.raises(MessageError, match=r"row 1 has .* as its key") as info:
        sent([(b"j", b"x", None), (key, b"x", None)])
    assert info.value.code == "MESSAGE_ILLEGAL"
    assert "keyEncoding=base64" in info.value.remedy


def test_a_null_struct_is_a_null_body(store):
    store.topics.create("struct", read_queues=1, write_queues=1)
    inside = StructType([StructField("id", StringType())])
    columns, body = plan_json(StructType([StructField("v", inside)]), "t", "v")
    values = pa.array([{"id": "1"}, None], pa.struct([("id", pa.string())]))
    batch = pa.record_batch({"v": values})
    with pytest.raises(MessageError, match="row 1 has a null body"):
        send_batch(batch, columns, body)
    store.append_batch(send_batch(batch, columns, body, null_body=EMPTY), topic="struct")
    value = StructType([StructField("value", BinaryType())])
    assert [row["value"] for row in read(store, "struct", value)] == [b'{"id":"1"}', None]


MAPS = st.lists(
    st.one_of(st.none(), st.dictionaries(st.text("ab", max_size=2), st.text("xy"), max_size=3)),
    max_size=8,
)


@given(MAPS, st.data())
def test_a_map_entry_is_added_to_flagged_rows_only(maps, data):
    entries = pa.array([each and list(each.items()) for each in maps], STRINGS)
    first = data.draw(st.integers(0, len(maps)))
    flags = data.draw(st.lists(st.booleans(), min_size=len(maps), max_size=len(maps)))[first:]
    found = map_with_entry(entries[first:], pa.array(flags, pa.bool_()).to_numpy(False), "new", "1")
    found.validate(full=True)
    expected = [
        [*(each or {}).items(), *([("new", "1")] if flag else [])]
        for each, flag in zip(maps[first:], flags, strict=True)
    ]
    assert found.to_pylist() == expected


def sink(path, **options):
    request = Request({"path": str(path), "topic": "t", **options}, "/")
    return prepare_sink(request, KAFKA, overwrite=False)


def test_dropped_rows_are_counted_in_the_task_and_in_the_publication(tmp_path):
    writer = StagedWriter(sink(tmp_path / "s", nullBody="drop"))
    rows = [(b"a", b"1", None), (b"b", None, None), (b"c", b"3", None), (b"d", None, None)]
    message = writer.write(iter([kafka_batch(rows), kafka_batch(rows[1:2]), kafka_batch(rows)]))
    assert (message.staged.rows, message.staged.left_out) == (4, 5)
    nothing = writer.write(iter([kafka_batch(rows[1:2])]))
    assert (nothing.staged.rows, nothing.staged.left_out) == (0, 1)
    with Store.open(tmp_path / "s") as store:
        published = store.sink.publish_anonymous([message.staged, nothing.staged])
        assert (published.rows, published.left_out) == (4, 6)
        published = store.sink.publish_anonymous([nothing.staged])
        assert (published.rows, published.left_out) == (0, 1)
        bodies = [message.body for message in store.messages("t")]
    assert sorted(bodies) == [b"1", b"1", b"3", b"3"]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_logs_the_number_of_dropped_rows(tmp_path, caplog, delivery):
    from pyspark_pyrocket.sink.writer import batch_writer

    options = {"path": str(tmp_path / "s"), "topic": "t", "nullBody": "drop", "delivery": delivery}
    writer = batch_writer(Request(options, "/"), KAFKA, overwrite=False)
    rows = [(b"a", b"1", None), (b"b", None, None)]
    writer.commit([writer.write(iter([kafka_batch(rows)])) for _ in range(3)])
    assert [
        record.getMessage() for record in caplog.records if record.name == "pyspark_pyrocket"
    ] == ["rows without a body that were not written to t: 3 (nullBody=drop)"]


def test_the_row_number_of_a_bad_row_includes_dropped_rows(tmp_path):
    rows = [(b"a", b"1", None), (b"b", None, None), (b"c", None, None), (b"a b", b"3", None)]
    with pytest.raises(MessageError, match=r"Arrow batch 1, .* row 7 has b?'a b' as its key"):
        send_rows(
            sink(tmp_path / "s", nullBody="drop"),
            [kafka_batch([*rows[:3], rows[0]]), kafka_batch(rows)],
            lambda *_, **__: None,
            lambda _: "",
        )


def test_rows_are_not_listed_if_no_body_is_null():
    assert rows_with_body(kafka_batch([(None, b"", None)]), 1) is None
    assert rows_with_body(kafka_batch([(None, None, None), (None, b"", None)]), 1).tolist() == [1]


def test_unknown_values_of_null_body_and_key_encoding_are_rejected():
    assert WriteOptions.parse(Request({"path": "/s"}, "/")).null_body == FAIL
    assert WriteOptions.parse(Request({"path": "/s"}, "/")).key_encoding == TEXT_KEY
    assert WriteOptions.parse(Request({"path": "/s", "nullbody": "DROP"}, "/")).null_body == DROP
    for wrong in ({"nullBody": "null"}, {"keyEncoding": "hex"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            WriteOptions.parse(Request({"path": "/s", **wrong}, "/"))


def test_base64_applies_to_the_column_key_only(tmp_path):
    request = Request({"path": str(tmp_path / "s"), "topic": "t", "keyEncoding": "base64"}, "/")
    schema = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
    with pytest.raises(OptionError, match="column 'keys'") as info:
        prepare_sink(request, schema, overwrite=False)
    assert info.value.code == "OPTION_CONFLICT"
    assert isinstance(sink(tmp_path / "s", keyEncoding="base64"), SinkPlan)


def test_the_log_line_of_a_micro_batch_counts_dropped_rows(tmp_path, caplog):
    prepared = sink(tmp_path / "s", nullBody="drop")
    rows = [(b"a", b"1", None), (b"b", None, None)]
    for number, of_task in enumerate((rows, rows[1:])):
        batch = SinkBatch(identity="query", target="t", batch=number, run="run")
        staged = stage_rows(prepared, batch, iter([kafka_batch(of_task)])).staged
        publish(prepared, batch, [staged])
        assert caplog.records[-1].getMessage() == (
            f"micro-batch {number}: rows without a body that were not written to t: 1 "
            "(nullBody=drop)"
        )
