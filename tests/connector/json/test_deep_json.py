"""Deeply nested JSON bodies: whether one is accepted depends only on the body."""

import re
import sys

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyrocket.errors import SchemaError
from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.json.infer import infer_schema
from pyspark_pyrocket.json.nesting import depth_of, first_too_deep, room_for_deep_bodies
from pyspark_pyrocket.json.values import text_of
from pyspark_pyrocket.options.ddl import parse_ddl, to_ddl
from pyspark_pyrocket.options.payload import DROPMALFORMED, FAILFAST, PERMISSIVE

DEPTHS = [1000, 1001, 100_000]
DEEP_FRAMES = 700
SCHEMAS = [
    pytest.param("id INT", id="the deep field is not selected"),
    pytest.param("id INT, deep STRING", id="the deep field is text"),
    pytest.param("id INT, deep ARRAY<STRING>", id="the deep field is an array of text"),
    pytest.param("id INT, other MAP<STRING,INT>", id="bodies are read one by one"),
]


def arrays(depth):
    """Return a body of exactly this depth: nested arrays in an object."""
    return b'{"id":1,"deep":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def objects(depth):
    return b'{"id":1,"deep":' + b'{"a":' * (depth - 1) + b"2" + b"}" * (depth - 1) + b"}"


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


def decode(bodies, ddl, mode=PERMISSIVE, **wanted):
    found = Decoder(mode, fields=parse_ddl("valueSchema", ddl), **wanted).widen(batch(bodies))
    found.validate(full=True)
    return found


def from_deep(call):
    """Call from a stack that is DEEP_FRAMES deep."""
    frame, frames = sys._getframe(), 0
    while frame is not None:
        frame, frames = frame.f_back, frames + 1

    def descend(left):
        return descend(left - 1) if left else call()

    return descend(DEEP_FRAMES - frames)


def at_once(call):
    return call()


@pytest.fixture(params=[at_once, from_deep])
def called(request):
    """A function that calls from a flat stack and from a deep one; both must return the same."""
    return request.param


@pytest.mark.parametrize("ddl", SCHEMAS)
@pytest.mark.parametrize("nested", [arrays, objects])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_body_with_more_than_1000_levels_is_corrupt(depth, nested, ddl, called):
    bodies = [b'{"id":0}', nested(depth), b'{"id":2}']
    bad = []
    decoder = Decoder(PERMISSIVE, fields=parse_ddl("valueSchema", ddl), corrupt=True)
    found = called(lambda: decoder.widen(batch(bodies), bad.extend))
    found.validate(full=True)
    corrupt = found.columns[-1].to_pylist()
    if depth > 1000:
        reason = f"it is nested {depth} levels deep, and at most 1000 are read"
        assert [(each.queue_offset, each.reason) for each in bad] == [(101, reason)]
        assert corrupt == [None, bodies[1].decode(), None]
        assert found.column(4).to_pylist() == [0, None, 2]
    elif nested is objects and "ARRAY" in ddl:
        assert [each.reason.split(" is ")[0] for each in bad] == ["deep"]
    else:
        assert not bad
        assert found.column(4).to_pylist() == [0, 1, 2]
    if "deep STRING" in ddl and depth <= 1000:
        assert found.column(5)[1].as_py() == bodies[1][15:-1].decode()


@pytest.mark.parametrize("ddl", SCHEMAS)
@pytest.mark.parametrize("depth", [1001, 100_000])
def test_each_mode_treats_a_body_that_is_too_deep_as_corrupt(depth, ddl, called):
    bodies = [b'{"id":0}', arrays(depth), b'{"id":2}']
    dropped = called(lambda: decode(bodies, ddl, DROPMALFORMED))
    assert dropped.column(4).to_pylist() == [0, 2]
    with pytest.raises(SchemaError, match=f"queue 3 offset 101 .*nested {depth} levels") as info:
        called(lambda: decode(bodies, ddl, FAILFAST))
    assert info.value.code == "BODY_MALFORMED"


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_schema_is_inferred_at_any_depth_of_a_body(depth, called):
    bodies = [b'{"id":0}', arrays(depth), objects(depth), b'{"id":2,"late":1}']
    found = called(lambda: infer_schema(bodies))
    if depth > 1000:
        assert to_ddl(found) == "id BIGINT, late BIGINT"
    else:
        assert found.names == ["id", "deep", "late"]
        assert found["deep"].dataType.simpleString() == "string"


@pytest.mark.parametrize("nested", [arrays, objects])
def test_spark_can_process_an_inferred_schema(nested):
    found = infer_schema([nested(1000)])
    assert type(found).fromJson(found.jsonValue()) == found
    assert parse_ddl("valueSchema", to_ddl(found)) == found
    arrow_type(found)
    # Values below the deepest inferred level are kept as text.
    (row,) = decode([nested(1000)], to_ddl(found)).column(5).to_pylist()
    inside = nested(1000)[15:-1].decode()
    while isinstance(row, dict | list):
        row = row["a"] if isinstance(row, dict) else row[0]
        inside = inside[5:-1] if inside.startswith("{") else inside[1:-1]
    assert row == inside


def test_the_recursion_limit_is_restored_after_decoding():
    before = sys.getrecursionlimit()
    decode([arrays(1000)], "id INT, deep STRING")
    infer_schema([arrays(1000)])
    assert sys.getrecursionlimit() == before
    with room_for_deep_bodies():
        with room_for_deep_bodies():
            raised = sys.getrecursionlimit()
        assert sys.getrecursionlimit() == raised > before, "another thread may need it"
    assert sys.getrecursionlimit() == before


def test_printing_a_deep_value_needs_no_deep_stack():
    value = 1
    for _ in range(10_000):
        value = {"k": [value, None, True]}
    assert text_of(value).startswith('{"k":[{"k":[')


TOKEN = re.compile(r'"(?:[^"\\]|\\.)*\\?"?|[{}\[\]\\]')


def up_to_no_json(text):
    """Return the text up to a backslash outside strings, after which nothing is parsed."""
    illegal = (token.start() for token in TOKEN.finditer(text) if token[0] == "\\")
    return text[: next(illegal, len(text))]


def plain_depth(text):
    """Return the deepest level of the first value of a text, bracket by bracket."""
    depth = deepest = 0
    for bracket in (token[0] for token in TOKEN.finditer(text) if not token[0].startswith('"')):
        depth += 1 if bracket in "{[" else -1
        deepest = max(deepest, depth)
        if depth <= 0:
            break
    return deepest


TEXTS = st.lists(st.sampled_from([*'{}[]":,a', "\\", '\\"', '"x"', "é", "{{", "}}"])).map("".join)


@given(TEXTS)
@example('{"a":"[[[["}[[[')
@example('{"\\\\":[1],"\\"":"[[["}')
@example("]{{{")
def test_depth_is_counted_outside_strings_and_within_the_first_value(text):
    text = up_to_no_json(text)
    assert depth_of(text.encode()) == plain_depth(text)


def test_brackets_in_strings_and_after_the_object_are_ignored():
    text = b'{"id":1,"s":"' + b"[" * 5000 + b'"}'
    behind = b'{"id":1}' + b"[" * 5000
    escaped = b'{"id":1,"s":"\\"' + b"{" * 5000 + b'\\\\"}'
    wide = b'{"id":1,"w":[' + b",".join([b"[]"] * 5000) + b"]}"
    found = decode([text, behind, escaped, wide], "id INT", corrupt=True)
    assert found.column(4).to_pylist() == [1, 1, 1, 1]
    assert found.column(5).null_count == 4


def test_the_first_body_that_is_too_deep_is_found_in_a_slice_of_many():
    bodies = [b"", b"{}", b'{"x":"' + b"y" * 3000 + b'"}', arrays(1000), arrays(1001), b"[" * 9999]
    column = pa.array([b"[" * 2000, *bodies, None], pa.binary())
    assert first_too_deep(column) == 0
    assert first_too_deep(column.slice(1)) == 4
    assert first_too_deep(column.slice(1, 4)) is None
    assert first_too_deep(column.slice(6)) == 0
    assert first_too_deep(column.slice(0, 0)) is None
