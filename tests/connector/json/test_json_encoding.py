"""Columns as JSON text: always valid, and read back unchanged."""

import json
from datetime import date, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.json.encode import json_objects, json_text
from pyspark_pyrocket.json.rows import read_rows
from pyspark_pyrocket.options.ddl import parse_ddl

DDL = (
    "i INT, s STRING, f FLOAT, d DOUBLE, c DECIMAL(10,3), o BOOLEAN, t TIMESTAMP, n TIMESTAMP_NTZ, "
    "x DATE, y BINARY, a ARRAY<STRING>, m MAP<STRING,DOUBLE>, r STRUCT<p: ARRAY<STRUCT<q: BIGINT>>>"
)
SCHEMA = parse_ddl("schema", DDL)
text = st.text(st.characters(codec="utf-8"))
moments = st.datetimes()
VALUES = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "s": text,
    "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False),
    "c": st.decimals(-(10**6), 10**6, places=3),
    "o": st.booleans(),
    "t": moments.map(lambda value: value.replace(tzinfo=timezone.utc)),
    "n": moments,
    "x": st.dates(date(1, 1, 1)),
    "y": st.binary(max_size=20),
    "a": st.lists(text | st.none(), max_size=3),
    "m": st.dictionaries(text, st.floats(allow_nan=False) | st.none(), max_size=3).map(
        lambda found: list(found.items())
    ),
    "r": st.fixed_dictionaries(
        {
            "p": st.none()
            | st.lists(st.none() | st.fixed_dictionaries({"q": st.none() | st.integers(0, 9)}))
        }
    ),
}
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@given(st.lists(rows, max_size=4), st.integers(0, 2))
def test_written_json_is_read_back_unchanged(found, first):
    """One case is an array that is a slice of a longer one."""
    column = pa.array(found, arrow_type(SCHEMA))[first:]
    texts = json_text(column)
    texts.validate(full=True)
    back, faults = read_rows([each.encode() for each in texts.to_pylist()], SCHEMA)
    assert not faults
    assert back.to_pylist() == column.to_pylist()


@given(st.lists(text), text)
def test_any_text_and_any_name_becomes_valid_json(values, name):
    found = json_objects([name], [pa.array(values, pa.string())], len(values)).to_pylist()
    assert [json.loads(each) for each in found] == [{name: value} for value in values]


def test_null_fields_of_objects_are_omitted_and_nulls_in_lists_are_kept():
    columns = [pa.array([None, 1, None]), pa.array([None, None, [None, 2]])]
    found = json_objects(["a", "b"], columns, 3).to_pylist()
    assert found == ["{}", '{"a":1}', '{"b":[null,2]}']
    assert json_objects([], [], 2).to_pylist() == ["{}", "{}"]
    assert json_text(pa.nulls(2)).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1.0, 0.5, -0.0, 1e22, 1e-7]), ["1.0", "0.5", "-0.0", "1e+22", "1e-7"]),
        (pa.array([float("nan"), None, float("-inf")]), ['"NaN"', None, '"-Infinity"']),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.array(["/\x7f\u2028é\x1f\b"]), ['"/\x7f\u2028é\\u001F\\b"']),
        (pa.array([b"hi"], pa.binary_view()), ['"aGk="']),
        (pa.array(["a"], pa.string_view()), ['"a"']),
        (pa.array(["a", None]).dictionary_encode(), ['"a"', None]),
        (pa.array([["a"]], pa.large_list(pa.large_string())), ['["a"]']),
        (pa.array([[(1, None)]], pa.map_(pa.int32(), pa.null())), ['{"1":null}']),
        (pa.array([[(0, 1)]], pa.map_(pa.date32(), pa.int8())), ['{"1970-01-01":1}']),
        (pa.array([[(b"hi", 1)]], pa.map_(pa.binary(), pa.int8())), ['{"aGk=":1}']),
        (
            pa.array([[(0.5, 1), (float("nan"), 2)]], pa.map_(pa.float64(), pa.int8())),
            ['{"0.5":1,"NaN":2}'],
        ),
        (pa.array([[(["a"], 1)]], pa.map_(pa.list_(pa.string()), pa.int8())), ['{"[\\"a\\"]":1}']),
        (pa.array([0], pa.timestamp("us", "+02:00")), ['"1970-01-01T00:00:00.000000Z"']),
        (pa.array([1], pa.timestamp("us")), ['"1970-01-01T00:00:00.000001"']),
        (pa.array([], pa.list_(pa.string())), []),
    ],
)
def test_each_type_has_a_json_representation(column, expected):
    assert json_text(column).to_pylist() == expected


def test_a_type_that_json_cannot_represent_is_reported():
    with pytest.raises(TypeError, match="duration"):
        json_text(pa.array([1], pa.duration("s")))
