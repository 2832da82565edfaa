"""JSON bodies as columns: bulk and row-by-row decoding return the same values."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyrocket.errors import SchemaError
from pyspark_pyrocket.json import bulk
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.json.rows import read_rows
from pyspark_pyrocket.options.ddl import parse_ddl

DDL = (
    "i INT, l BIGINT, f FLOAT, d DOUBLE, c DECIMAL(6,2), s STRING, o BOOLEAN, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, x DATE, y BINARY, a ARRAY<STRUCT<p: INT, t: TIMESTAMP>>, r STRUCT<p: DATE>"
)
SCHEMA = parse_ddl("valueSchema", DDL)
TOKENS = [
    *(
        "1",
        "-1",
        "0",
        "1.0",
        "2.5",
        "1e3",
        "99999999999",
        "1e400",
        "0.005",
        "32768",
        "NaN",
        "true",
        "null",
    ),
    *('"1"', '"a"', '""', '"\\u00e9"', '"\\ud800"', '"x\ny"', '"aGk="', '"2024-01-02"'),
    *(
        '"2024-01-02T03:04:05Z"',
        '"2024-01-02 03:04:05.123456789"',
        '"0000-01-01"',
        '"2024-01-02 10"',
    ),
    *(
        "{}",
        "[]",
        '{"p":1}',
        '{"p":"2024-01-02"}',
        '[{"p":1},null]',
        '[{"t":"2024-01-02T01:00+02"}]',
    ),
]
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\n",
    " ",
    "\\",
    "\0",
    '{"v":',
    '"i":1',
    "}{",
    "v",
    "é",
]


def batch(bodies):
    rows = len(bodies)
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            "topic": pa.array(["t"] * rows, pa.string()),
            "queueId": pa.array([3] * rows, pa.int32()),
            "queueOffset": pa.array(range(100, 100 + rows), pa.int64()),
        }
    )


def decode(bodies, schema=SCHEMA, mode="PERMISSIVE", on_bad=None, **wanted):
    struct = {name: at for at, name in enumerate(schema.names)}
    decoder = Decoder(mode, fields=schema, struct=struct, **wanted)
    wide = decoder.widen(batch(bodies), on_bad)
    wide.validate(full=True)
    return wide


def rows(bodies, ddl):
    return decode(bodies, parse_ddl("valueSchema", ddl)).column(4).to_pylist()


def plain(column):
    """Return times as numbers, because Python has no year 0."""
    times = {pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64()}
    times[pa.date32()] = pa.int32()

    def kind(found):
        if pa.types.is_struct(found):
            return pa.struct([(field.name, kind(field.type)) for field in found])
        if pa.types.is_list(found):
            return pa.list_(kind(found.value_type))
        return times.get(found, found)

    return column.cast(kind(column.type)).to_pylist()


texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
objects = st.dictionaries(
    st.sampled_from([*SCHEMA.names, "zz"]), st.sampled_from(TOKENS), max_size=4
)
objects = objects.map(lambda fields: "{" + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}")
bodies = st.lists(st.builds(str.__add__, objects, texts) | texts | objects, max_size=12)


@given(bodies)
@example(['{"i":1', ',"l":2}', '{"i":1}{"i":2}'])
@example(['{"i":1}} {"v":{"i":2}', "\0", '{"i":3}'])
@example(['{"a":[{"p":1}', '{"p":2}]}'])
@example(['{"s":"x', 'y"}'])
def test_a_body_is_decoded_independently_of_its_neighbours(found):
    encoded = [body.encode() for body in found]
    bad = []
    wide = decode(encoded, on_bad=bad.extend, corrupt=True)
    alone = [read_rows([body], SCHEMA) for body in encoded]
    assert repr(plain(wide.column(4))) == repr([plain(row)[0] for row, _ in alone])
    wrong = [at for at, (_, faults) in enumerate(alone) if faults]
    assert [each.queue_offset - 100 for each in bad] == wrong
    assert [each.body for each in bad] == [encoded[at] for at in wrong]
    shown = wide.column(5).to_pylist()
    assert shown == [found[at] if at in wrong else None for at in range(len(found))]


@given(st.lists(st.binary(max_size=8), max_size=80))
def test_bodies_that_are_not_utf_8_affect_only_their_own_rows(found):
    sound = b'{"s":"\xc3\xa9"}'
    wide = decode([sound, *found, sound], parse_ddl("x", "s STRING"))
    assert wide.column(4)[0].as_py() == wide.column(4)[-1].as_py() == {"s": "é"}
    assert len(wide) == len(found) + 2


def test_one_bad_body_among_many_is_found_and_the_others_are_decoded():
    many = [b'{"i":%d}' % at for at in range(20_000)]
    many[12_345] = b"poison"
    bad = []
    found = decode(many, parse_ddl("x", "i INT"), on_bad=bad.extend).column(4)
    assert found.field(0).to_pylist() == [at if at != 12_345 else None for at in range(20_000)]
    assert [(each.topic, each.queue_id, each.queue_offset) for each in bad] == [("t", 3, 12_445)]
    assert "not JSON" in bad[0].reason


@pytest.mark.parametrize(
    "kind", ["DECIMAL(6,2)", "DECIMAL(10,10)", "DECIMAL(38,18)", "DECIMAL(38,38)"]
)
def test_a_decimal_that_does_not_fit_is_bad_among_others_too(kind):
    """Arrow's reader returned numbers with more digits, or other numbers: 46…880 for 123…890."""
    schema = parse_ddl("x", f"c {kind}")
    numbers = [
        "1",
        "-99",
        "9999.99",
        "9999.995",
        "32768",
        "1e3",
        "1e37",
        "1234567890" * 3,
        "9" * 70,
    ]
    for number in numbers:
        body = b'{"c":%s}' % number.encode()
        bad = []
        found = decode([b'{"c":0}'] * 20 + [body], schema, on_bad=bad.extend).column(4)
        alone, faults = read_rows([body], schema)
        assert found.slice(20).to_pylist() == alone.to_pylist()
        assert [each.body for each in bad] == [body] * len(faults)


def test_bodies_with_several_lines_are_decoded():
    value = {"i": 1, "a": [{"p": 2, "t": None}]}
    body = json.dumps(value, indent=2).encode()
    assert rows([body, body], "i INT, a ARRAY<STRUCT<p: INT, t: TIMESTAMP>>") == [value, value]


def test_maps_keep_their_order_and_their_nulls():
    assert rows([b'{"m":{"b":1,"a":null}}', b"{}"], "m MAP<STRING,INT>") == [
        {"m": [("b", 1), ("a", None)]},
        {"m": None},
    ]


def test_text_after_the_object_is_ignored_as_in_spark():
    assert rows([b'{"i":1} and more', b'{"i":2}{"i":3}'], "i INT") == [{"i": 1}, {"i": 2}]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is not JSON: Expecting value"),
        (b"[1]", r"it is not a JSON object: \[1\]"),
        (b'{"i":1.5}', "i is 1.5, not int"),
        (b'{"r":{"p":"soon"}}', "r.p is soon, not date"),
        (b'{"a":[{"p":1},{"p":true}]}', r"a\[1\].p is true, not int"),
        (b'{"s":"\xff"}', "it is not UTF-8: invalid start byte at byte 6"),
        (b"[" * 100_000, "it is nested 100000 levels deep"),
        (b'{"i":"%s"}' % (b"9" * 99), "i is 9{40}..., not int"),
    ],
)
def test_failfast_names_topic_queue_offset_and_reason(body, reason):
    where = "'t' queue 3 offset 101"
    with pytest.raises(SchemaError, match=f"{where} cannot be decoded: {reason}") as info:
        decode([b"{}", body], mode="FAILFAST")
    assert info.value.code == "BODY_MALFORMED"
    assert "PERMISSIVE" in info.value.remedy


def test_dropmalformed_drops_only_bad_rows():
    found = decode([b"{}", b"x", b'{"i":"x"}', b'{"i":4}'], mode="DROPMALFORMED")
    assert found.column("queueOffset").to_pylist() == [100, 103]
    assert decode([b"x"], mode="DROPMALFORMED").num_rows == 0


def test_text_that_is_not_utf_8_is_null_and_in_the_corrupt_column():
    decoder = Decoder("PERMISSIVE", text=True, corrupt=True)
    wide = decoder.widen(batch(["é".encode(), b"a\xffb", b""]))
    assert wide.column(4).to_pylist() == ["é", None, ""]
    assert wide.column(5).to_pylist() == [None, "a�b", None]


def test_bodies_decoded_one_by_one_are_python_objects_a_few_at_a_time(monkeypatch):
    """Bodies that are decoded one by one give the same rows in small chunks as all at once."""
    schema = parse_ddl("valueSchema", "i INT, m MAP<STRING,STRING>")
    bodies = [b'{"i":%d,"m":{"k":"v"}}' % at if at % 3 else b"no json" for at in range(40)]
    decoder, seen = Decoder("PERMISSIVE", fields=schema), []
    whole = decoder.widen(batch(bodies))
    monkeypatch.setattr(bulk, "_BYTES", 100)
    assert decoder.widen(batch(bodies), seen.extend).equals(whole)
    assert [bad.queue_offset for bad in seen] == batch(bodies)["queueOffset"].to_pylist()[::3]
    assert decoder.widen(batch([])).num_rows == 0
