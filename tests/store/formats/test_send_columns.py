"""Checks of batches: errors have the row and a code, and values at a limit are accepted."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.base.config import MAX_BODY_BYTES
from pyrocket.errors import MessageError, SchemaError
from pyrocket.formats.properties import (
    RESERVED_PROPERTIES,
    encode_properties,
    find_illegal_property,
)
from pyrocket.formats.send_columns import SEND_COLUMNS, check_send_batch, check_send_schema
from support.strategies import TEXT, sent_batch, sent_rows

TEXTS = pa.string()
LISTS = pa.list_(TEXTS)
MAPS = pa.map_(TEXTS, TEXTS)
SIZES = st.integers(0, 3)


def batch_of(name, values, kind, **others):
    """Return a slice of a batch with one column in addition to the bodies."""
    junk = {TEXTS: "junk", LISTS: ["junk", "k"], MAPS: [("junk", "v")], pa.binary(): b"junk"}
    column = pa.array([junk[kind], *values, junk[kind]], kind)
    columns = {"body": pa.array([b"b"] * len(column)), name: column, **others}
    return pa.RecordBatch.from_pydict(columns).slice(1, len(values))


def refusal(batch):
    with pytest.raises(MessageError) as caught:
        check_send_batch(batch)
    return caught.value.code, caught.value.message


def malformed(values, kind=TEXTS):
    """Return an array of strings with any bytes: Spark's strings may be invalid UTF-8."""
    plain = pa.array(values, pa.binary())
    return pa.Array.from_buffers(kind, len(plain), plain.buffers(), plain.null_count)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_a_null_body_is_an_error(kind):
    batch = pa.RecordBatch.from_pydict({"body": pa.array(["x", "a", None, None], kind)})
    assert refusal(batch.slice(1)) == ("BODY_NULL", "row 1 has a null body.")


def test_a_body_of_exactly_four_mebibytes_is_accepted_but_not_one_byte_more():
    most = b"b" * MAX_BODY_BYTES
    assert MAX_BODY_BYTES == 4 * 1024 * 1024
    check_send_batch(pa.RecordBatch.from_pydict({"body": [b"", most]}))
    batch = pa.RecordBatch.from_pydict({"body": [b"", most, most + b"b"]})
    code, message = refusal(batch)
    assert code == "BODY_TOO_LARGE"
    assert message.startswith("row 2 has a body of 4194305 bytes;")
    # The limit is in bytes, not characters.
    assert refusal(pa.RecordBatch.from_pydict({"body": ["é" * 2**21 + "e"]}))[0] == code


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_every_reserved_name_is_rejected(name):
    rows = [None, [("mine", "1")], [("a", "1"), (name, "x")]]
    code, message = refusal(batch_of("properties", rows, MAPS))
    assert code == "PROPERTY_RESERVED"
    assert message.startswith(f"row 2 has the property {name}:")


BAD_PROPERTIES = {
    "no name": ([("", "v")], "PROPERTY_RESERVED"),
    "no value": ([("a", "")], "MESSAGE_ILLEGAL"),
    "a null": ([("a", None)], "MESSAGE_ILLEGAL"),
    "separator in a name": ([("a\x01", "v")], "MESSAGE_ILLEGAL"),
    "other separator in a name": ([("\x02", "v")], "MESSAGE_ILLEGAL"),
    "separator in a value": ([("a", "v\x01")], "MESSAGE_ILLEGAL"),
    "other separator in a value": ([("ok", "1"), ("a", "\x02v")], "MESSAGE_ILLEGAL"),
}


@pytest.mark.parametrize(("row", "code"), BAD_PROPERTIES.values(), ids=list(BAD_PROPERTIES))
def test_properties_that_cannot_be_read_back_are_rejected(row, code):
    batch = batch_of("properties", [[("a", "b"), ("c", "d")], None, [], row, row], MAPS)
    found, message = refusal(batch)
    assert found == code
    assert message.startswith("row 3 has ")


@pytest.mark.parametrize("key", ["a b", " ", "\x01", "a\x02"])
def test_a_key_with_a_space_or_a_separator_is_rejected(key):
    rows = [["a", "b"], None, [], ["c", key], [key]]
    code, message = refusal(batch_of("keys", rows, LISTS))
    assert (code, message.startswith(f"row 3 has {key!r} as a key")) == ("MESSAGE_ILLEGAL", True)
    code, message = refusal(batch_of("keys", ["ok", key], TEXTS))
    assert (code, message.startswith(f"row 1 has {key!r} as its key")) == ("MESSAGE_ILLEGAL", True)


def test_a_null_among_keys_is_rejected():
    code, message = refusal(batch_of("keys", [["a"], ["b", None]], LISTS))
    assert (code, message) == ("MESSAGE_ILLEGAL", "row 1 has a null among its keys.")


@pytest.mark.parametrize("keys", [[""], ["a", ""], ["", "a"]])
def test_an_empty_string_among_keys_is_rejected(keys):
    code, message = refusal(batch_of("keys", [["a"], [], None, keys], LISTS))
    assert (code, message) == ("MESSAGE_ILLEGAL", "row 3 has an empty string among its keys.")


@pytest.mark.parametrize(
    ("name", "kind", "empty"),
    [("tags", TEXTS, ""), ("shardingKey", TEXTS, ""), ("keys", TEXTS, ""), ("keys", LISTS, [])],
)
def test_an_empty_value_is_treated_as_missing(name, kind, empty):
    columns = check_send_batch(batch_of(name, [empty, None], kind))
    found = {"shardingKey": columns.sharding_key, "tags": columns.tags, "keys": columns.keys}
    assert found[name].to_pylist() == [None, None]


@pytest.mark.parametrize("name", ["tags", "shardingKey", "keys", "topic", "delay"])
def test_the_error_for_text_that_is_not_utf8_has_its_row(name):
    columns = {"body": pa.array([b"b"] * 3), name: malformed([b"ok", None, b"\xff"])}
    code, message = refusal(pa.RecordBatch.from_pydict(columns))
    assert code == "MESSAGE_ILLEGAL"
    assert message.startswith("row 2 has b'\\xff' as ")


def test_the_error_for_text_in_lists_and_maps_that_is_not_utf8_has_its_row():
    offsets, words = (
        pa.array([0, 2, 3, 4], pa.int32()),
        malformed([b"a", b"b", "é".encode(), b"\xc3"]),
    )
    others = pa.array(["w", "x", "y", "z"])
    bodies = pa.array([b"b"] * 3)
    for name, column in {
        "keys": pa.ListArray.from_arrays(offsets, words),
        "properties": pa.MapArray.from_arrays(offsets, words, others),
    }.items():
        batch = pa.RecordBatch.from_pydict({"body": bodies, name: column})
        assert refusal(batch)[1].startswith("row 2 has b'\\xc3' as ")
    column = pa.MapArray.from_arrays(offsets, others, words)
    batch = pa.RecordBatch.from_pydict({"body": bodies, "properties": column})
    assert refusal(batch)[1].startswith("row 2 has b'\\xc3' as a property value")


def test_the_bytes_of_a_null_are_neither_checked_nor_sent():
    offsets, mask = pa.array([0, 2, 4, 5], pa.int32()), pa.array([True, False, False])
    keys = pa.ListArray.from_arrays(offsets, pa.array(["x y", "\x01", "c", "d", "e"]), mask=mask)
    names = pa.array(["TAGS", "\x01", "c", "d", "e"])
    properties = pa.MapArray.from_arrays(
        offsets, names, pa.array(["", "", "1", "2", "3"]), mask=mask
    )
    tags = pa.StringArray.from_buffers(
        3,
        pa.py_buffer(np.array([0, 2, 3, 4], np.int32)),
        pa.py_buffer(b"\x01\xffbc"),
        pa.py_buffer(b"\x06"),
    )
    batch = pa.RecordBatch.from_pydict(
        {"body": pa.array([b"b"] * 3), "keys": keys, "properties": properties, "tags": tags}
    )
    for start in range(3):
        columns = check_send_batch(batch.slice(start))
        assert columns.keys.to_pylist() == [None, "c d", "e"][start:]
        assert columns.tags.to_pylist() == [None, "b", "c"][start:]
        blocks = ["", "c\x011\x02d\x012\x02", "e\x013\x02"]
        assert columns.properties.to_pylist() == blocks[start:]


@given(sent_rows(), SIZES, SIZES)
def test_valid_rows_of_any_slice_are_converted(rows, before, after):
    columns = check_send_batch(sent_batch(rows, before=before, after=after))
    assert len(columns) == len(rows)
    assert columns.body.to_pylist() == [row["body"] for row in rows]
    assert columns.tags.to_pylist() == [row["tags"] or None for row in rows]
    assert columns.sharding_key.to_pylist() == [row["shardingKey"] or None for row in rows]
    assert columns.keys.to_pylist() == [" ".join(row["keys"] or []) or None for row in rows]
    assert columns.flag.to_pylist() == [row["flag"] for row in rows]
    blocks = [encode_properties(row["properties"] or {}).decode() for row in rows]
    assert columns.properties.to_pylist() == blocks
    assert columns.queue_id is None


ANY_TEXT = st.one_of(TEXT, st.sampled_from(["", "TAGS", "UNIQ_KEY", "\x01", "a\x02b"]))


@given(st.lists(st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), min_size=1, max_size=4), SIZES)
def test_a_batch_is_rejected_if_and_only_if_one_of_its_messages_is_illegal(rows, before):
    padded = [{"junk": ""}] * before + rows
    maps = pa.array([list(row.items()) for row in padded], MAPS)
    batch = pa.RecordBatch.from_pydict({"body": [b""] * len(padded), "properties": maps})
    illegal = [find_illegal_property(row) is not None for row in rows]
    if any(illegal):
        message = refusal(batch.slice(before))[1]
        assert illegal[int(message.split()[1])]
    else:
        check_send_batch(batch.slice(before))


def schema_refusal(schema):
    with pytest.raises(SchemaError) as caught:
        check_send_schema(pa.schema(schema))
    return caught.value.code, str(caught.value)


def test_missing_bodies_and_unknown_or_repeated_columns_are_rejected():
    code, text = schema_refusal([("value", pa.binary())])
    assert (code, "['value']" in text) == ("BODY_COLUMN_MISSING", True)
    code, text = schema_refusal([("body", pa.binary()), ("tag", TEXTS)])
    assert (code, "'tag'" in text) == ("COLUMN_UNKNOWN", True)
    code, text = schema_refusal([("body", pa.binary()), ("body", pa.binary())])
    assert (code, "'body'" in text) == ("COLUMN_TWICE", True)


WRONG_TYPES = [pa.int16(), pa.large_string(), pa.list_(pa.int32()), pa.map_(TEXTS, pa.int32())]


@pytest.mark.parametrize("name", SEND_COLUMNS)
@pytest.mark.parametrize("kind", WRONG_TYPES, ids=str)
def test_a_column_of_the_wrong_type_is_rejected(name, kind):
    schema = {"body": pa.binary()} | {name: kind}
    code, text = schema_refusal(list(schema.items()))
    assert (code, f"column '{name}' is {kind}." in text) == ("COLUMN_TYPE", True)


@pytest.mark.parametrize(
    "field",
    [
        *[pa.field(name, kind) for name, kinds in SEND_COLUMNS.items() for kind in kinds],
        pa.field("keys", pa.list_(pa.field("element", TEXTS, nullable=False))),
        pa.field("properties", pa.map_(TEXTS, pa.field("value", TEXTS, nullable=False))),
    ],
    ids=str,
)
def test_every_documented_type_is_accepted_with_any_names_of_nested_fields(field):
    others = [] if field.name == "body" else [pa.field("body", pa.binary(), nullable=False)]
    check_send_schema(pa.schema([field, *others]))
