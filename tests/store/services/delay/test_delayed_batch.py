"""Batches with delayed rows: each row is pending in the same queue as if it were sent alone."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyrocket import Message, Store
from pyrocket.base.config import parse_duration
from pyrocket.errors import MessageError
from support.delayed import DAY, NOW, SCHEDULE, TIMER, delayed_batch, own, parked, tags_codes
from support.shares import TIMES
from support.stores import SMALL, FakeClock, batch, bodies, numbered

BIG = replace(SMALL, log_file_bytes=1 << 20)


CASES = [
    {"delay_level": 1},
    {"delay_level": 18, "tags": "TagA", "keys": ["a", "b"]},
    {"deliver_at_ms": DAY, "properties": {"color": "red"}},
    {"deliver_at_ms": 1, "sharding_key": "customer-7"},
    {"deliver_at_ms": -1, "tags": "TagA"},
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_delayed_message_has_the_same_record_whether_sent_alone_or_in_a_batch(
    open_store, clock, case
):
    store = open_store(config=BIG)
    due = case.get("deliver_at_ms")
    case = case if due is None else {**case, "deliver_at_ms": clock.now + due}
    store.append(Message(topic="t", body=b"x", queue_id=1, **case))
    columns = {
        "tags": pa.array([case.get("tags")], pa.string()),
        "shardingKey": pa.array([case.get("sharding_key")], pa.string()),
        "keys": pa.array([case.get("keys")], pa.list_(pa.string())),
        "properties": pa.array(
            [list(case.get("properties", {}).items())], pa.map_(pa.string(), pa.string())
        ),
        "delayLevel": pa.array([case.get("delay_level")], pa.int32()),
        "deliverTimestamp": pa.array([case.get("deliver_at_ms")], pa.timestamp("ms")),
    }
    store.append_batch(batch([b"x"], 1, **columns), topic="t")
    (topic, queue_id), *others = {
        (name, queue_id)
        for name in store.topics.all()
        for queue_id, known in store.offsets(name).items()
        if known.maximum
    }
    assert others == []
    one, other = (vars(stored) for stored in store.read(topic, queue_id, 0, 9))
    for stored in (one, other):
        stored["properties"] = {k: v for k, v in stored["properties"].items() if k != "UNIQ_KEY"}
        for place in ("queue_offset", "physical_offset", "msg_id"):
            del stored[place]
    assert one == other
    first, second = tags_codes(store, topic, queue_id)
    assert first == second


WHEN = st.one_of(
    st.none(),
    st.tuples(st.just("delayLevel"), st.integers(0, 20)),
    st.tuples(st.just("delay"), st.sampled_from(["", "0s", "1ms", "1s", "10m", "2h30m"])),
    st.tuples(st.just("deliverTimestamp"), st.integers(-5, 5).map(lambda n: NOW + n)),
)
ROWS = st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1), WHEN), min_size=1, max_size=30)


def as_message(body, topic, queue_id, column, value):
    if column == "delay":
        due = None if value == "" else NOW + parse_duration(value)
    else:
        due = value if column == "deliverTimestamp" else None
    level = value if column == "delayLevel" else 0
    return Message(topic=topic, queue_id=queue_id, body=body, delay_level=level, deliver_at_ms=due)


def contents(store):
    """The messages of each queue, and the tags codes of its entries."""
    return {
        (name, queue_id): (
            sorted((m.body, sorted(own(m).items())) for m in parked(store, name, queue_id)),
            sorted(tags_codes(store, name, queue_id)),
        )
        for name in store.topics.all()
        for queue_id, known in store.offsets(name).items()
        if known.maximum
    }


@settings(max_examples=10 * TIMES)
@given(ROWS)
def test_the_rows_of_a_batch_are_delayed_as_if_sent_one_by_one(rows):
    clock = FakeClock(NOW)
    whens = [when or ("", None) for _, _, when in rows]
    columns = {
        name: [value if column == name else None for column, value in whens]
        for name in ("delayLevel", "delay", "deliverTimestamp")
    }
    bodies_of = numbered(len(rows))
    whole = delayed_batch(bodies_of, **columns).drop_columns(["queueId"])
    whole = whole.append_column("queueId", pa.array([q for _, q, _ in rows], pa.int32()))
    whole = whole.append_column("topic", pa.array([topic for topic, _, _ in rows]))
    with TemporaryDirectory() as folder:
        stores = [
            Store.open(Path(folder) / name, create=True, config=BIG, clock=clock)
            for name in ("batch", "messages")
        ]
        stores[0].append_batch(whole)
        for body, (topic, queue_id, _), when in zip(bodies_of, rows, whens, strict=True):
            stores[1].append(as_message(body, topic, queue_id, *when))
        assert contents(stores[0]) == contents(stores[1])
        for store in stores:
            store.close()


def test_a_batch_is_split_and_each_queue_keeps_its_order(store, clock):
    count = 60
    levels = [n % 3 or None for n in range(count)]
    delays = ["10m" if n % 3 == 0 and n % 2 else None for n in range(count)]
    rows = numbered(count)
    store.append_batch(delayed_batch(rows, delayLevel=levels, delay=delays), topic="t")
    assert [m.body for m in parked(store, SCHEDULE, 0)] == rows[1::3]
    assert [m.body for m in parked(store, SCHEDULE, 1)] == rows[2::3]
    assert [m.body for m in parked(store, TIMER)] == rows[3::6]
    assert bodies(store)[0] == rows[0::6]
    assert {own(m)["TIMER_OUT_MS"] for m in parked(store, TIMER)} == {str(clock.now + 600_000)}
    assert tags_codes(store, SCHEDULE, 1) == [clock.now + 5000] * 20


def test_delayed_rows_keep_the_queue_selected_by_their_sharding_key(store):
    keys = [f"key-{n % 5}" for n in range(20)]
    plain = batch(numbered(20), shardingKey=keys)
    store.append_batch(plain, topic="t")
    home = {m.properties["__SHARDINGKEY"]: q for q in range(4) for m in parked(store, "t", q)}
    levels = pa.array([1] * 20, pa.int32())
    store.append_batch(plain.append_column("delayLevel", levels), topic="t")
    waiting = parked(store, SCHEDULE)
    assert [m.body for m in waiting] == numbered(20)
    for stored in waiting:
        assert stored.properties["REAL_QID"] == str(home[stored.properties["__SHARDINGKEY"]])


def test_a_row_due_too_far_ahead_fails_the_batch_with_its_row_number(store, clock):
    store.topics.create("t")
    before = store.position()
    for column, values in {
        "deliverTimestamp": [None, clock.now + DAY, clock.now + 40 * DAY + 1],
        "delay": [None, "40d", "40d1ms"],
    }.items():
        with pytest.raises(MessageError, match="row 2 is due 3456000001 ms") as caught:
            store.append_batch(delayed_batch([b""] * 3, **{column: values}), topic="t")
        assert caught.value.code == "TIMER_TOO_FAR"
        assert caught.value.put_status == "WHEEL_TIMER_MSG_ILLEGAL"
    assert store.position() == before


def test_errors_for_rows_of_every_system_topic_have_the_row_number(open_store):
    store = open_store(config=BIG)
    columns = {"delayLevel": [None, 2, 1, 2, 1], "delay": ["1s", None, None, None, None]}
    for bad in range(5):
        tags = pa.array(["x" * (32_760 if n == bad else 1) for n in range(5)])
        rows = delayed_batch([b""] * 5, **columns).append_column("tags", tags)
        with pytest.raises(MessageError, match=rf"row {bad} has 32\d\d\d bytes") as caught:
            store.append_batch(rows, topic="t")
        assert caught.value.code == "PROPERTIES_SIZE_EXCEEDED"
