"""The undecided half messages are found in stores of any writer, after any kind of shutdown."""

import numpy as np
import pyarrow as pa
import pytest
from pyrocket.formats.fastjson import parse_java_long
from pyrocket.formats.half_message import change_properties
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.values.transactions import HalfMessageRef
from support.halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    halves,
    log_records,
    ops,
    producer,
    queue,
)
from support.inner import inner
from support.stores import bodies, log_files, message, overwrite, reboot, words

ID = "7F00000100002A139F5500000001%04d"


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t")
    return store


def put(store, topic, body, properties):
    """Append a record to queue 0 of a topic, as a broker does."""
    record = encode_record(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=encode_properties(properties),
        born_timestamp=store.now(),
        store_timestamp=0,
        reconsume_times=2,
        flag=5,
    )
    batch = EncodedBatch(
        topic=topic,
        data=pa.py_buffer(bytearray(record)),
        bounds=np.array([0, len(record)]),
        queue_ids=np.zeros(1, np.int32),
        tags_codes=np.zeros(1, np.int64),
    )
    with inner(store).writer.exclusive():
        inner(store).writer.append([batch])


def put_half(store, number, **more):
    own = {"REAL_TOPIC": "t", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "pg"}
    put(store, HALF_TOPIC, b"%d" % number, own | {"UNIQ_KEY": ID % number} | more)


def put_op(store, body, tags="d"):
    put(store, OP_TOPIC, body, {"TAGS": tags})


def pending(store):
    return [half.queue_offset for half in Held(store).transactions.pending()]


@pytest.mark.parametrize("body", [b"0,2,3,", b"3,2,0", b",0,,2,3,,", b"3,0,2,99,-1,x,"])
def test_batches_of_rocketmq_5_are_read(store, body):
    for n in range(5):
        put_half(store, n)
    put_op(store, body)
    assert pending(store) == [1, 4]


@pytest.mark.parametrize("tags", ["x", "D", ""])
def test_an_op_message_with_other_tags_decides_no_half_message(store, tags):
    put_half(store, 0)
    put_op(store, b"0", tags)
    assert pending(store) == [0]


def test_an_op_message_before_its_half_message_decides_it(store):
    put_op(store, b"1")
    for n in range(2):
        put_half(store, n)
    assert pending(store) == [0]


def test_renewed_copy_replaces_original_without_op_message(store):
    """Only the broker's cursor shows the replacement; it is saved every five seconds."""
    put_half(store, 0)
    put_half(store, 1)
    put_half(store, 0, TRANSACTION_CHECK_TIMES="1")
    assert pending(store) == [1, 2]
    put_op(store, b"2")
    assert pending(store) == [1]


def test_records_without_an_id_are_treated_as_different_messages(store):
    own = {"REAL_TOPIC": "t", "REAL_QID": "0", "PGROUP": "pg"}
    for _ in range(2):
        put(store, HALF_TOPIC, b"same", own)
    assert pending(store) == [0, 1]


def test_an_op_message_for_the_first_offset_of_an_immune_message_ends_its_copy(store, clock):
    """In RocketMQ this happens if a broker renews the message while its producer ends it."""
    put_half(store, 9)
    put_half(store, 0, CHECK_IMMUNITY_TIME_IN_SECONDS="300")
    more = {"TRAN_PREPARED_QUEUE_OFFSET": "1", "TRANSACTION_CHECK_TIMES": "1"}
    put_half(store, 0, CHECK_IMMUNITY_TIME_IN_SECONDS="300", **more)
    put_op(store, b"1")
    clock.now += MINUTE
    listener = Listener(UNKNOWN)
    with producer(Held(store), "pg", listener) as one:
        assert one.check_now() == 1
    assert [seen.body for seen in listener.checked] == [b"9"]
    assert pending(store) == [3]
    assert discarded(store) == []


def test_no_op_message_is_written_for_an_original_while_its_copy_is_immune(store, clock):
    """Another group's message keeps the half cursor before the original and the copy."""
    put_half(store, 9, PGROUP="other")
    put_half(store, 0, CHECK_IMMUNITY_TIME_IN_SECONDS="300")
    more = {"TRAN_PREPARED_QUEUE_OFFSET": "1", "TRANSACTION_CHECK_TIMES": "1"}
    put_half(store, 0, CHECK_IMMUNITY_TIME_IN_SECONDS="300", **more)
    put_half(store, 1)
    clock.now += MINUTE
    with producer(Held(store), "pg") as one:
        assert one.check_now() == 1
    assert ops(store) == [3]
    assert pending(store) == [0, 2, 4]


def test_messages_without_a_group_are_not_checked_and_without_a_queue_not_committed(store, clock):
    put_half(store, 0, PGROUP="")
    put(store, HALF_TOPIC, b"no place", {"PGROUP": "pg"})
    clock.now += MINUTE
    listener = Listener(UNKNOWN, COMMIT)
    with producer(Held(store), "pg", listener) as one:
        for _ in range(17):
            one.check_now()
            clock.now += MINUTE
    assert len(listener.checked) == 15, "the commit of a message without a queue fails each time"
    assert [one.body for one in discarded(store)] == [b"no place"]
    assert len(pending(store)) == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [(None, None), ("7", 7), ("-7", -7), ("+7", 7), ("", -1), (" 7", -1), ("7.0", -1), ("٣", -1)],
)
def test_numbers_in_properties_are_parsed_as_in_rocketmq(text, number):
    assert parse_java_long(text) == number


def test_change_properties_changes_only_the_given_properties():
    block = b"a\x01\xff\x02NAME\x01x\x02NAMES\x01y\x02z\x01w\x01w"
    changed = change_properties(block, {"NAME": "new"}, without=("z",))
    assert changed == b"a\x01\xff\x02NAMES\x01y\x02NAME\x01new\x02"


@pytest.mark.parametrize(("value", "asked"), [("x", 1), ("-1", 1), ("0", 1), ("60", 0)])
def test_an_invalid_immunity_time_is_replaced_by_the_default_timeout(store, clock, value, asked):
    put_half(store, 0, CHECK_IMMUNITY_TIME_IN_SECONDS=value)
    clock.now += 10_000
    with producer(Held(store), "pg") as one:
        assert one.check_now() == asked


def test_an_invalid_check_count_is_reset(store, clock):
    put_half(store, 0, TRANSACTION_CHECK_TIMES="many")
    clock.now += MINUTE
    with producer(Held(store), "pg") as one:
        assert one.check_now() == 1
    assert halves(store)[1].properties["TRANSACTION_CHECK_TIMES"] == "0"


def test_renewed_messages_have_neither_flag_nor_reconsume_times_as_in_rocketmq(store, clock):
    put_half(store, 0)
    clock.now += MINUTE
    with producer(Held(store), "pg") as one:
        one.check_now()
    assert [(one.flag, one.reconsume_times) for one in halves(store)] == [(5, 2), (0, 0)]


@pytest.mark.parametrize(
    ("delay", "topic", "queue_id"),
    [
        ({"DELAY": "3"}, SCHEDULE_TOPIC, 2),
        ({"DELAY": "99"}, SCHEDULE_TOPIC, 17),
        ({"TIMER_DELAY_SEC": "60"}, TIMER_TOPIC, 0),
        ({"TIMER_DELAY_MS": "60000"}, TIMER_TOPIC, 0),
        ({"TIMER_DELIVER_MS": "1700000060000"}, TIMER_TOPIC, 0),
        ({"TIMER_DELIVER_MS": "1"}, "t", 0),
        ({"DELAY": "0"}, "t", 0),
    ],
)
def test_committed_message_with_delay_is_scheduled(store, delay, topic, queue_id):
    """Only third-party clients send such messages; RocketMQ's client removes the delay."""
    put_half(store, 0, **delay)
    (half,) = halves(store)
    held = Held(store)
    held.transactions.end(place_of(half), COMMIT)
    (waiting,) = queue(store, topic, queue_id)
    assert (waiting.body, waiting.sys_flag, waiting.flag) == (b"0", 8, 5)
    assert waiting.prepared_transaction_offset == half.physical_offset
    assert waiting.properties["REAL_TOPIC"] == "t"
    assert waiting.properties["REAL_QID"] == "0"
    assert len(bodies(store)[0]) == (topic == "t")
    assert held.transactions.pending() == []


def place_of(half):
    return HalfMessageRef(half.properties["PGROUP"], half.queue_offset, half.physical_offset)


def cut_the_last_op(path):
    """Erase the last op message, as a power failure may do although earlier messages survive."""
    last = log_records(path)[-1]
    assert last.topic == OP_TOPIC
    for file in log_files(path):
        at = last.physical_offset - int(file.name)
        if 0 <= at < file.stat().st_size:
            overwrite(file, bytes(last.size), at)
    (path / "abort").touch()
    reboot(path)


@pytest.mark.parametrize("others", [0, 100])
def test_commit_with_lost_op_message_is_not_repeated(path, open_store, clock, others):
    with open_store() as store, producer(Held(store), "pg", Listener(COMMIT)) as one:
        one.send(message(b"once"))
    cut_the_last_op(path)
    store = open_store()
    for _ in range(others):
        store.append(message(b"other"))
    assert ops(store) == []
    assert pending(store) == []
    clock.now += MINUTE
    with producer(Held(store), "pg", Listener(ROLLBACK)) as one:
        assert one.check_now() == 0
        one.send(message(b"next"))
    assert ops(store) == [1], "the half cursor has passed the committed message"
    assert [body for body in bodies(store)[0] if body != b"other"] == [b"once"]


def test_damaged_half_message_is_skipped(path, open_store, clock, caplog):
    with open_store() as store, producer(Held(store), "pg", Listener(UNKNOWN)) as one:
        for n in range(3):
            one.send(message(b"%d" % n))
    second = log_records(path)[1]
    (file,) = log_files(path)
    overwrite(file, b"\xff" * 4, second.physical_offset - int(file.name) + 84)
    store = open_store()
    assert pending(store) == [0, 2]
    assert "damaged" in caplog.text
    clock.now += MINUTE
    with producer(Held(store), "pg", Listener(UNKNOWN, COMMIT)) as one:
        assert one.check_now() == 2
    assert bodies(store)[0] == [b"0", b"2"]


def test_recovery_restores_cursors(path, open_store):
    with open_store() as store:
        for n in range(3):
            with producer(Held(store), "pg", Listener(COMMIT)) as one:
                one.send(message(b"%d" % n))
    reboot(path)
    store = open_store()
    page = words(path)
    assert page[31] == 3, "RocketMQ's table of group offsets also has the cursor"
    page.close()
    assert store.groups.committed("CID_RMQ_SYS_TRANS", HALF_TOPIC) == {0: 3}
    assert pending(store) == []


def test_a_damaged_op_message_ends_no_other_transaction(path, store, one):
    one.listener.state = UNKNOWN
    sent = [one.send(message(b"%d" % n)) for n in range(3)]
    store.transactions.end_by_id("pg", sent[1].transaction_id, ROLLBACK)
    (log,) = log_files(path)
    overwrite(log, b"2", log.read_bytes().rindex(b"RMQ_SYS_TRANS_OP_HALF_TOPIC") - 2)
    pending = Held(store).transactions.pending()
    assert [half.queue_offset for half in pending] == [0, 1, 2]
