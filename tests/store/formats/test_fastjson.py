"""RocketMQ's dialect of JSON."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.fastjson import dumps, int_keys, java_long, loads

JAVA_FILES = sorted((Path(__file__).parents[2] / "golden").glob("java498-*/config/*.json*"))

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3),
    ),
    max_leaves=12,
)


def with_text_keys(value):
    """Convert integer keys to text, as they are read."""
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


def test_integer_keys_without_quotes_are_read():
    text = '{\n\t"offsetTable":{\n\t\t"TopicTest@groupA":{0:5,1:7\n\t\t},"x":{ -1 :{2:3}}\n\t}\n}'
    assert loads(text) == {
        "offsetTable": {"TopicTest@groupA": {"0": 5, "1": 7}, "x": {"-1": {"2": 3}}}
    }


@pytest.mark.parametrize("text", ['{"a":"{0:5, 1: 2}"}', r'{"a\"{0:":"\\","b":[1,2,-3]}'])
def test_text_that_resembles_a_key_is_not_changed(text):
    assert loads(text) == json.loads(text)


def test_the_text_equals_that_of_fastjson():
    table = {"order": False, "perm": 6, "topicName": "Tö"}
    lists = {"plain": [1, 2], "nested": [{"a": 1}, []]}
    text = dumps({"dataVersion": {"counter": 1}, "t": {"T": table}, "e": {}, "l": lists})
    assert text == (
        '{\n\t"dataVersion":{\n\t\t"counter":1\n\t},\n\t"t":{\n\t\t"T":{\n\t\t\t"order":false,'
        '\n\t\t\t"perm":6,\n\t\t\t"topicName":"Tö"\n\t\t}\n\t},\n\t"e":{},\n\t"l":{\n\t\t"plain":'
        '[1,2],\n\t\t"nested":[\n\t\t\t{\n\t\t\t\t"a":1\n\t\t\t},\n\t\t\t[]\n\t\t]\n\t}\n}'
    )


@given(VALUES)
def test_written_values_are_read_back(value):
    assert loads(dumps(value)) == with_text_keys(value)


@given(VALUES)
def test_plain_json_is_read(value):
    value = with_text_keys(value)
    assert loads(json.dumps(value)) == value


def with_queue_ids(content):
    """Convert keys of digits, which are queue ids in RocketMQ's files, back to integers."""
    if not isinstance(content, dict):
        return content
    if content and all(key.isdigit() for key in content):
        return int_keys(content)
    return {key: with_queue_ids(item) for key, item in content.items()}


@pytest.mark.parametrize("path", JAVA_FILES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_every_file_of_rocketmq_is_read_and_written_with_the_same_bytes(path):
    content = loads(path.read_text())
    assert content
    assert dumps(with_queue_ids(content)) == path.read_text()


@pytest.mark.parametrize("text", ["", "{", '{"a":}', "{a:1}"])
def test_invalid_text_is_an_error(text):
    with pytest.raises(json.JSONDecodeError):
        loads(text)


def test_deep_nesting_is_an_error():
    with pytest.raises(ValueError, match="deep"):
        loads('{"a":' * 100_000)


@pytest.mark.parametrize("text", ['\\"' * 100_000, '"' + "\\" * 200_001, '{"a":"' + "0:" * 100_000])
def test_an_unterminated_string_is_rejected_without_quadratic_time(text):
    started = time.monotonic()
    with pytest.raises(ValueError, match="line 1"):
        loads(text)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "table",
    [{"x": 1}, {"0": None}, {"0": []}, {"0": float("inf")}, {"0": 2**63}, {"0": -(2**63) - 1}],
)
def test_a_table_of_integers_with_any_other_key_or_value_is_rejected(table):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        int_keys(table)


HARD = st.text(st.sampled_from('":{},[]\\\n\tx')) | st.text()
BEANS = st.dictionaries(
    HARD,
    st.dictionaries(HARD, st.none() | st.booleans() | st.integers() | HARD, min_size=1),
    min_size=1,
)


@given(BEANS, st.integers(0, 2))
def test_a_table_of_beans_is_written_like_any_other_map(beans, level):
    def one_by_one(value, level):
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        line = "\n" + "\t" * (level + 1)
        members = [
            f"{json.dumps(key, ensure_ascii=False)}:{one_by_one(item, level + 1)}"
            for key, item in value.items()
        ]
        return "{" + line + f",{line}".join(members) + line[:-1] + "}"

    assert dumps(beans, level) == one_by_one(beans, level)


def test_objects_as_keys_are_their_text():
    text = (
        '{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"{T}"}:{"max":[{"x":1}]},3:{"y":2}}}'
    )
    queue = '{"brokerName":"a","queueId":1,"topic":"{T}"}'
    assert loads(text) == {"offsetTable": {queue: {"max": [{"x": 1}]}, "3": {"y": 2}}}


@pytest.mark.parametrize("piece", ['{"', '{{"a"', ",{", '"",', '{"a":', '{{"a"' * 9 + ":"])
def test_hostile_objects_as_keys_take_linear_time(piece):
    start = time.process_time()
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting|delimiter|property name"):
        loads("{{" + piece * 20_000)
    assert time.process_time() - start < 5


def test_a_number_of_more_than_64_bits_is_refused():
    for number in (2**63 - 1, -(2**63)):
        assert java_long(number) == number
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            java_long(number)
