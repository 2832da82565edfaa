"""Look-ups by key and id read exactly the matching messages at their locations."""

import json
import logging
import shutil

import pyarrow as pa
import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Store
from pyrocket.errors import OptionError, TopicNotFoundError
from pyspark.sql.types import StructType
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import KeyLookup
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source import batch_reader
from support.direct import read
from support.stores import FakeClock

SHOWN = StructType().add("queueId", "integer").add("queueOffset", "long").add("body", "string")


def reader(box, schema=SHOWN, **options):
    return DefaultSource({**box.options, **options}).reader(schema)


def bodies(box, **options):
    """Return the messages that the tasks of a batch read, in order."""
    return [row["body"] for row in read(box.options, SHOWN, **options)]


def parse(query="batch", **options):
    return ReadOptions.parse(Request({"path": "/s", "topic": "t", **options}, "/", ""), query)


@pytest.fixture
def orders(box):
    """Forty messages in two queues, each with a unique key and one of four shared keys."""
    box.create(queues=2)
    for queue in (0, 1):
        numbers = range(queue, 40, 2)
        keys = [[f"order-{number}", f"k{number % 4}"] for number in numbers]
        tags = ["AB"[number // 2 % 2] for number in numbers]
        box.send(*(str(n) for n in numbers), queue=queue, keys=pa.array(keys), tags=pa.array(tags))
    return box


def test_messages_with_a_key_are_read(orders):
    schema = "queueId INT, queueOffset BIGINT, body STRING, keys ARRAY<STRING>"
    rows = read(orders.options, schema, keys="order-7, order-12,nothing")
    assert sorted(tuple(row.values()) for row in rows) == [
        (0, 6, "12", ["order-12", "k0"]),
        (1, 3, "7", ["order-7", "k3"]),
    ]


def test_a_look_up_is_limited_to_a_time_range(orders, tmp_path):
    clock, path = FakeClock(), str(tmp_path / "timed")
    with Store.open(path, create=True, clock=clock) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for number in range(10):
            rows = {"body": [str(number)], "keys": pa.array([["k"]])}
            store.append_batch(pa.record_batch(rows), topic="t")
            clock.now += 60_000
    timed = type(orders)(path)
    start = FakeClock().now
    assert bodies(timed, keys="k", startingTimestamp=str(start + 120_000)) == [*"23456789"]
    span = {
        "startingTimestamp": str(start + 120_001),
        "endingTimestamp": str(start + 300_000),
    }
    assert bodies(timed, keys="k", **span) == ["3", "4"]
    later = {"startingTimestamp": str(start + 10**9), "keys": "k"}
    assert bodies(timed, **later) == []
    assert len(bodies(timed, **later, startingOffsetsByTimestampStrategy="earliest")) == 10


def test_messages_are_found_by_unique_id_and_by_offset_id(orders):
    with Store.open(orders.path, read_only=True) as store:
        one, two = store.read("t", 0, 3)[0], store.read("t", 1, 5)[0]
    place = f"7F00000100002A9F{two.physical_offset:016X}"
    assert bodies(orders, msgId=f"{one.msg_id},{place}") == [
        *map(bytes.decode, (one.body, two.body))
    ]
    assert bodies(orders, msgId=json.dumps([one.msg_id])) == [one.body.decode()]


def test_keys_are_combined_with_offsets_queues_and_tags(orders):
    everything = bodies(orders, keys="k1,k2")
    assert sorted(map(int, everything)) == [n for n in range(40) if n % 4 in (1, 2)]
    offsets = '{"t":{"0":5,"1":8}}', '{"t":{"0":10,"1":"latest"}}'
    given = {"startingOffsets": offsets[0], "endingOffsets": offsets[1]}
    expected = [str(n) for n in range(10, 20, 2) if n % 4 == 2]
    expected += [str(n) for n in range(17, 40, 2) if n % 4 == 1]
    assert bodies(orders, keys="k1,k2", **given) == expected
    one_queue = {**orders.target, "assign": '{"t":[1]}', "keys": "k1,k2"}
    assert {row["queueId"] for row in read(one_queue, SHOWN)} == {1}
    assert bodies(orders, keys="k1,k2", tags="A") == [b for b in everything if int(b) // 2 % 2 == 0]
    assert bodies(orders, keys="k1,k2", lastN="2") == ["38", "37"]


def test_a_look_up_is_planned_into_few_tasks(orders, monkeypatch):
    assert len(reader(orders, keys="k0,k1,k2,k3").partitions()) == 1
    monkeypatch.setattr(batch_reader, "TASK_MESSAGES", 8)
    planned = reader(orders, keys="k0,k1,k2,k3")
    tasks = planned.partitions()
    assert [sum(map(len, task.work.locations)) for task in tasks] == [8, 8, 4, 8, 8, 4]
    assert len(bodies(orders, keys="k0,k1,k2,k3")) == 40
    monkeypatch.setattr(batch_reader, "TASK_BYTES", 1)
    assert len(bodies(orders, keys="k0,k1,k2,k3")) == 40


def test_a_look_up_without_matches_has_no_tasks(orders):
    assert reader(orders, keys="nothing").partitions() == []


def test_a_log_line_names_the_indexes_used_and_the_unread_messages(orders, caplog):
    with caplog.at_level(logging.INFO, "pyspark_pyrocket"):
        bodies(orders, keys="order-1,order-2,k3", startingOffsets='{"t":{"0":0,"1":1}}')
    (line,) = [one.getMessage() for one in caplog.records if "candidates" in one.getMessage()]
    assert line.startswith(
        "3 keys found 11 of 40 messages of t through the key index: candidates: 12, index files: 1,"
    )
    assert line.endswith("found outside the offsets to read: 1")


def test_a_stream_rejects_look_ups_with_a_remedy(orders):
    for option in ("keys", "msgId"):
        with pytest.raises(OptionError, match="filter its DataFrame") as caught:
            parse("stream", **{option: "x"})
        assert caught.value.code == "OPTION_UNKNOWN"


@pytest.mark.parametrize("option", ["keys", "msgId"])
@pytest.mark.parametrize("text", ["", " ", "a,,b", "a b", "[]", '["a", 1]', '[""]', '["a b"]'])
def test_keys_that_messages_cannot_have_are_rejected(option, text):
    with pytest.raises(OptionError, match=option) as caught:
        parse(**{option: text})
    assert "JSON list" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", ("a",)),
        (" a , b,a ", ("a", "b")),
        ('["a,b", "c"]', ("a,b", "c")),
        ('["[x]"]', ("[x]",)),
        ("ключ,#,%", ("ключ", "#", "%")),
    ],
)
def test_keys_are_separated_by_commas_or_a_json_list(text, words):
    assert parse(keys=text).lookup == KeyLookup(keys=words)
    assert parse(msgId=text).lookup == KeyLookup(ids=words)


def test_invalid_json_is_reported():
    with pytest.raises(OptionError, match="'keys' is not JSON"):
        parse(keys='["a"')


@pytest.mark.parametrize("view", ["half", "commitlog", "topics"])
def test_a_view_accepts_no_keys(view):
    with pytest.raises(OptionError) as caught:
        ReadOptions.parse(Request({"path": "/s", "view": view, "keys": "a"}, "/", ""), "batch")
    assert caught.value.code == "OPTION_CONFLICT"


def test_keys_and_ids_cannot_be_combined():
    with pytest.raises(OptionError) as caught:
        parse(keys="a", msgId="b")
    assert caught.value.code == "OPTION_CONFLICT"
    assert parse(view="messages", keys="a").lookup.keys == ("a",)


def test_a_missing_topic_is_reported_before_any_lookup(orders):
    orders.topic = "orders"
    with pytest.raises(TopicNotFoundError):
        reader(orders, keys="k1").partitions()


def test_messages_of_a_rocketmq_broker_are_found_by_key(box):
    shutil.copytree(GOLDEN / CLEAN, box.path)
    box.topic = "TopicTest"
    assert bodies(box, keys="ORDER3,ORDER17") == ["hello3", "hello17"]
    assert len(bodies(box, keys="K2")) == 25
    with Store.open(box.path, read_only=True) as store:
        assert not store.uuid, "no other process has written there"
