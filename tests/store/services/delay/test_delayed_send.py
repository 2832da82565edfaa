"""Sends of delayed messages: their queues, records and entries."""

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Message, Store
from pyrocket.disk.shared_state import NEVER, NEXT_DUE
from pyrocket.tools.verify.verify import verify
from support.delayed import DAY, SCHEDULE, TIMER, delayed_batch, own, parked, tags_codes
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.stores import SMALL, bodies, message, numbered, reboot, words

BIG = replace(SMALL, log_file_bytes=1 << 20)
NINETEEN = replace(SMALL, delay_levels=" ".join(f"{n}m" for n in range(1, 20)))


def test_a_message_with_a_level_is_pending_in_the_queue_of_the_level(store, clock):
    result = store.append(message(b"later", queue_id=2, tags="T", delay_level=3))
    assert bodies(store) == {0: [], 1: [], 2: [], 3: []}
    (stored,) = parked(store, SCHEDULE, 2)
    assert (stored.body, stored.tags, stored.msg_id) == (b"later", "T", result.msg_id)
    assert own(stored) == {"TAGS": "T", "DELAY": "3", "REAL_TOPIC": "t", "REAL_QID": "2"}
    assert tags_codes(store, SCHEDULE, 2) == [clock.now + 10_000]
    assert (result.topic, result.queue_id) == ("t", 2)
    assert (result.queue_offset, result.physical_offset) == (0, stored.physical_offset)


@pytest.mark.parametrize("ago", [0, 1, DAY, 2**50])
def test_a_message_with_a_past_due_time_is_delivered_immediately(store, clock, ago):
    due = clock.now - ago
    store.append(message(b"one", deliver_at_ms=due))
    store.append_batch(delayed_batch([b"row"], deliverTimestamp=[due]), topic="t")
    assert bodies(store)[0] == [b"one", b"row"]
    for stored in parked(store, "t"):
        assert own(stored) == {"TIMER_DELIVER_MS": str(max(due, 0))}
    assert TIMER not in store.topics.all()


def test_the_delay_of_a_level_starts_at_the_store_time(open_store, clock, monkeypatch):
    store = open_store()
    store.append(message(b"before"))
    queue = inner(store).group_append
    append = queue.append

    def append_later(*arguments, **more):
        clock.now += 700
        return append(*arguments, **more)

    monkeypatch.setattr(queue, "append", append_later)
    store.append(message(delay_level=1))
    store.append_batch(delayed_batch([b"row"], delayLevel=[1]), topic="t")
    clock.now -= 50_000
    store.append(message(delay_level=1))
    stored = [m.store_timestamp for m in parked(store, SCHEDULE)]
    assert tags_codes(store, SCHEDULE, 0) == [time + 1000 for time in stored]
    assert stored[2] == stored[1], "store times never decrease"


def test_due_times_up_to_forty_days_ahead_are_accepted_and_the_limit_is_configurable(
    open_store, clock
):
    store = open_store()
    store.append(message(deliver_at_ms=clock.now + 40 * DAY))
    store.close()
    store = open_store(config=replace(SMALL, timer_max_delay_ms=50 * DAY))
    store.append(message(deliver_at_ms=clock.now + 50 * DAY))
    assert len(parked(store, TIMER)) == 2


def test_system_topics_are_created_as_in_rocketmq(store):
    assert not {SCHEDULE, TIMER} & set(store.topics.all())
    store.append(message(delay_level=1))
    made = store.topics.get(SCHEDULE)
    assert (made.read_queues, made.write_queues, made.perm) == (18, 18, 6)
    store.append_batch(delayed_batch([b""], delay=["1h"]), topic="t")
    made = store.topics.get(TIMER)
    assert (made.read_queues, made.write_queues, made.perm) == (1, 1, 6)


def test_the_schedule_topic_has_a_queue_for_each_configured_level(open_store, tmp_path):
    store = open_store(config=NINETEEN)
    store.append(message(b"last", delay_level=19))
    assert store.topics.get(SCHEDULE).read_queues == 19
    assert [m.body for m in parked(store, SCHEDULE, 18)] == [b"last"]
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / "java")
    with Store.open(root, config=NINETEEN) as continued:
        continued.append(message(b"last", topic="TopicTest", delay_level=19))
        assert [m.body for m in parked(continued, SCHEDULE, 18)] == [b"last"]


@pytest.mark.parametrize("config", [SMALL, NINETEEN], ids=["18 levels", "19 levels"])
def test_rebuilt_queues_equal_the_written_queues(open_store, config):
    store = open_store(config=config)
    for level in (1, 2, 18, 19, 50):
        store.append(message(delay_level=level, tags="T"))
    columns = {"delayLevel": [1, None] * 20, "delay": [None, "3h"] * 20}
    store.append_batch(delayed_batch(numbered(40), **columns), topic="t")
    store.close()
    assert verify(store.path).ok
    queues = store.path / "consumequeue"
    written = {path: path.read_bytes() for path in queues.rglob("0*") if path.is_file()}
    shutil.rmtree(queues)
    (store.path / "abort").touch()
    reboot(store.path)
    open_store(config=replace(config, delay_levels=None)).close()
    assert {path: path.read_bytes() for path in written} == written
    assert verify(store.path).ok


def test_a_crash_at_any_step_of_a_send_leaves_all_or_none_of_its_messages_pending(
    tmp_path, clock, monkeypatch
):
    """If the records are complete, the next writer writes the missing queue entries."""
    columns = {"delayLevel": [None, 19, 2, None], "delay": [None, None, None, "1h"]}
    step, seen = 0, set()
    while True:
        path = tmp_path / str(step)
        store = Store.open(path, create=True, config=NINETEEN, clock=clock)
        store.append_batch(delayed_batch(numbered(4), **columns), topic="t")
        try:
            with monkeypatch.context() as patch:
                DyingAt(patch, step, False)
                store.append_batch(delayed_batch(numbered(4), **columns), topic="t")
            store.close()
            break
        except DeathError:
            inner(store).crash()
        with Store.open(path, clock=clock) as after:
            after.append(message(b"next"))
            places = (("t", 0), (SCHEDULE, 18), (SCHEDULE, 1), (TIMER, 0))
            counts = {len(parked(after, *place)) - (place[0] == "t") for place in places}
            assert counts in ({1}, {2}), step
            seen |= counts
            due = clock.now + 19 * 60_000
            assert tags_codes(after, SCHEDULE, 18) == [due] * counts.pop()
        step += 1
    assert seen == {1, 2}


def test_pending_messages_are_found_by_key_in_their_system_topic(store):
    store.append(message(b"one", keys=["k"], delay_level=1))
    rows = delayed_batch([b"row"], delay=["1h"]).append_column("keys", pa.array([["k"]]))
    store.append_batch(rows, topic="t")
    assert store.lookup.query("t", "k") == []
    assert [m.body for m in store.lookup.query(SCHEDULE, "k")] == [b"one"]
    assert [m.body for m in store.lookup.query(TIMER, "k")] == [b"row"]


def test_a_send_updates_the_next_due_time_in_the_shared_state(store, clock):
    page = words(store.path)
    page[NEXT_DUE] = NEVER
    steps = [
        (lambda: store.append(message(deliver_at_ms=clock.now + DAY)), DAY),
        (
            lambda: store.append_batch(delayed_batch([b""] * 2, delay=["2h", "90m"]), topic="t"),
            5_400_000,
        ),
        (lambda: store.append(message(delay_level=5)), 60_000),
        (
            lambda: store.append_batch(delayed_batch([b""] * 2, delayLevel=[4, 3]), topic="t"),
            10_000,
        ),
        (lambda: store.append(message(b"plain")), 10_000),
        (lambda: store.append(message(delay_level=18)), 10_000),
    ]
    for send, ahead in steps:
        send()
        assert clock.now < page[NEXT_DUE] <= clock.now + ahead
    page.close()


JAVA = {"java498-clean": 1, "java550-clean": 3}
OF_CLIENT_AND_BROKER = {"MSG_REGION", "CLUSTER", "TRACE_ON", "WAIT"}
"""RocketMQ's client and broker set these properties on every message."""
OF_RETRY = {"ORIGIN_MESSAGE_ID", "RETRY_TOPIC"}


@pytest.mark.parametrize("name", JAVA)
def test_records_and_entries_equal_those_of_rocketmq(open_store, clock, name):
    with Store.open(GOLDEN / name, read_only=True) as java:
        theirs = [m for q in range(18) for m in parked(java, SCHEDULE, q)]
        codes = {q: tags_codes(java, SCHEDULE, q) for q in {m.queue_id for m in theirs}}
    assert len(theirs) == JAVA[name]
    store = open_store(config=BIG)
    for topic in {m.properties["REAL_TOPIC"] for m in theirs}:
        store.topics.create(topic)
    for one in theirs:
        clock.now = one.store_timestamp
        known = one.properties
        sent = store.append(
            Message(
                topic=known["REAL_TOPIC"],
                queue_id=int(known["REAL_QID"]),
                body=one.body,
                tags=one.tags,
                keys=one.keys,
                delay_level=int(known["DELAY"]),
            )
        )
        (ours,) = store.read(SCHEDULE, one.queue_id, sent.queue_offset, 1)
        assert ours.queue_offset == one.queue_offset
        given = OF_CLIENT_AND_BROKER | OF_RETRY
        expected = {name: value for name, value in known.items() if name not in given}
        assert dict(ours.properties) == {**expected, "UNIQ_KEY": sent.msg_id}
        same = ("topic", "queue_id", "body", "store_timestamp", "flag", "sys_flag")
        assert {n: getattr(ours, n) for n in same} == {n: getattr(one, n) for n in same}
    assert {queue_id: tags_codes(store, SCHEDULE, queue_id) for queue_id in codes} == codes
