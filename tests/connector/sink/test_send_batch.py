"""Converting Arrow batches to the store's types does not change values."""

from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyrocket.errors import MessageError
from pyrocket.formats.send_columns import check_send_batch
from pyspark_pyrocket.sink.columns import SinkColumn, send_batch

TEXT, BYTES = pa.string(), pa.binary()
MOMENT = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", TEXT), ("value", BYTES)]))
PLANNED = {
    "body": ("body", BYTES),
    "tags": ("tags", TEXT),
    "keys": ("keys", pa.list_(TEXT)),
    "key": ("keys", BYTES),
    "properties": ("properties", pa.map_(TEXT, TEXT)),
    "headers": ("properties", HEADERS),
    "queueId": ("queueId", pa.int32()),
    "shardingKey": ("shardingKey", TEXT),
    "deliverTimestamp": ("deliverTimestamp", MOMENT),
}


def send(**columns):
    """Plan the columns as the sink does, convert them, and check that a store would accept them."""
    count = len(next(iter(columns.values())))
    columns = {"body": pa.array([b"x"] * count), **columns}
    planned = {
        PLANNED[name][0]: SinkColumn(name, position, PLANNED[name][1])
        for position, name in enumerate(columns)
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sent = send_batch(batch, planned)
    sent.validate(full=True)
    check_send_batch(sent)
    return {name: sent.column(name).to_pylist() for name in sent.schema.names}


@pytest.mark.parametrize(
    "tags",
    [
        pa.array(["a", None], pa.string()),
        pa.array(["a", None], pa.large_string()),
        pa.array(["a", None], pa.string_view()),
        pa.array(["a", None]).dictionary_encode(),
        pa.array(["x", "a", None])[1:],
    ],
)
def test_every_arrow_form_of_strings_is_accepted(tags):
    assert send(tags=tags)["tags"] == ["a", None]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view(), pa.binary(1), pa.binary()])
def test_every_arrow_form_of_bytes_is_accepted(kind):
    assert send(body=pa.array([b"a"], kind))["body"] == [b"a"]


def test_lists_and_maps_without_nulls_are_accepted():
    keys = pa.array([["a", "b"], None], pa.list_(pa.field("element", TEXT, nullable=False)))
    kind = pa.map_(TEXT, pa.field("value", TEXT, nullable=False))
    sent = send(keys=keys, properties=pa.array([[("a", "1")], None], kind))
    assert sent["keys"] == [["a", "b"], None]
    assert sent["properties"] == [[("a", "1")], None]


@pytest.mark.parametrize("kind", [pa.large_list(pa.large_string()), pa.list_(pa.large_string())])
def test_large_lists_are_accepted(kind):
    assert send(keys=pa.array([["a", "b"], []], kind))["keys"] == [["a", "b"], []]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_timestamp_does_not_depend_on_the_sessions_time_zone(zone):
    moment = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", zone))
    sent = send(deliverTimestamp=moment)["deliverTimestamp"]
    assert sent == [datetime.fromtimestamp(1_700_000_000, timezone.utc), None]


def test_headers_become_properties():
    rows = [
        [{"key": "skipped", "value": b"0"}],
        [{"key": "a", "value": b"1"}, {"key": "b", "value": "é".encode()}],
        [],
        None,
        [{"key": "c", "value": b"3"}],
    ]
    sent = send(headers=pa.array(rows, HEADERS)[1:])
    assert sent["properties"] == [[("a", "1"), ("b", "é")], [], [], [("c", "3")]]


def test_the_key_column_is_indexed_and_selects_the_queue():
    sent = send(key=pa.array([b"k1", None, "é".encode()], BYTES))
    assert sent["keys"] == ["k1", None, "é"]
    assert sent["shardingKey"] == ["k1", None, "é"]


def test_a_key_selects_the_queue_only_for_rows_without_a_queue():
    sent = send(key=pa.array([b"a", b"b"]), queueId=pa.array([None, 3], pa.int32()))
    assert sent["keys"] == ["a", "b"]
    assert sent["shardingKey"] == ["a", None]


def test_a_key_selects_the_queue_only_for_rows_without_a_sharding_key():
    sent = send(key=pa.array([b"a", b"b", b"c"]), shardingKey=pa.array([None, "s", ""], TEXT))
    assert sent["shardingKey"] == ["a", "s", "c"]


def test_the_keys_column_does_not_select_the_queue():
    assert "shardingKey" not in send(keys=pa.array([["a"]]))


def test_a_key_that_is_not_text_is_rejected_with_its_row():
    with pytest.raises(MessageError, match=r"row 2 has .* as its key"):
        send(key=pa.array([b"a", None, b"\xff", b"\xfe"]))


def test_a_header_that_is_not_text_is_rejected_with_its_row():
    rows = [[], [{"key": "a", "value": b"1"}, {"key": "b", "value": b"\xff"}]]
    with pytest.raises(MessageError, match="row 1 has a header that is not UTF-8"):
        send(headers=pa.array(rows, HEADERS))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_rejected_with_its_row(header):
    with pytest.raises(MessageError, match="row 1 has a header without a key"):
        send(headers=pa.array([None, [header]], HEADERS))


def test_a_header_without_a_value_is_rejected_with_its_row():
    rows = [None, [{"key": "a", "value": None}]]
    with pytest.raises(MessageError, match="row 1 has no value for property a"):
        send(headers=pa.array(rows, HEADERS))
