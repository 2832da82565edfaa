"""The messages in flight of a RocketMQ 5 broker's pop consumers are taken over.

No such broker is available to these tests, so its records are built from the source of
`PopCheckPoint` and `AckMsg`.
"""

import json

import pytest
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.properties import TAGS, encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import batch_of_records
from pyrocket.store import consumption_of, sender_of
from support.pops import acked, attempts, bodies, handles, popped, sent

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    consumption_of(store).ensure_topics({REVIVE: 8})
    return store


def write(store, topic, queue_id, tag, body, reconsume_times=0):
    """Append a record as a RocketMQ 5 broker does."""
    data = encode_record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        properties=encode_properties({TAGS: tag} if tag else {}),
        born_timestamp=0,
        store_timestamp=0,
        reconsume_times=reconsume_times,
    )
    keys = keys_of_message(topic, "", [])
    batch = batch_of_records(topic, queue_id, [data], tag, keys)
    (result,) = sender_of(store).append_received([ReceivedRecords({}, [batch])])
    assert not isinstance(result, Exception), result


def of_pop(clock, **more):
    return {"c": "g", "t": "t", "q": 0, "so": 1, "pt": clock.now, "bn": "broker-a", **more}


def handed_out(store, clock):
    """Append messages 0 to 7, as if a RocketMQ 5 broker had popped 1, 2, 4, 5 and acked 2 and 4."""
    sent(store, 8)
    store.groups.commit("g", "t", {0: 6})
    pop = of_pop(clock, bm=0, n=4, d=[0, 1, 3, 4], it=60_000)
    write(store, REVIVE, 3, "ck", pop)
    write(store, REVIVE, 3, "ack", of_pop(clock, ao=2))
    write(store, REVIVE, 3, "bAck", of_pop(clock, aol=[4]))


def test_messages_without_an_ack_are_received_again_once(store, clock):
    handed_out(store, clock)
    pop = popped(store)
    first = pop.receive("g", "t")
    assert bodies(first) == [b"6", b"7"]
    clock.now += 60_000
    again = pop.receive("g", "t", invisible_ms=200_000)
    assert attempts(again) == {b"1": 2, b"5": 2, b"6": 2, b"7": 2}
    assert all(acked(pop, again))
    later = popped(store)
    assert later.lag("g", "t")["t", 0].lag == 0
    assert store.groups.committed("CID_RMQ_SYS_REVIVE_GROUP", REVIVE)[3] == 3


def java_consumes(store, clock):
    """A RocketMQ 5 broker delivers messages 3 to 5, and commits offset 6; message 4 is acked."""
    sent(store, 8, first=store.max_offset("t", 0))
    store.groups.commit("g", "t", {0: 6})
    write(store, REVIVE, 0, "ck", of_pop(clock, so=3, bm=0, n=3, it=60_000))
    write(store, REVIVE, 0, "ack", of_pop(clock, so=3, ao=4))


def we_consume(store):
    """Receive 3 messages, and ack all except the second."""
    pop = popped(store)
    sent(store, 3)
    received = pop.receive("g", "t", invisible_ms=60_000)
    first, _, third = handles(received)
    pop.ack("g", "t", [first, third]).stored.result(10)
    return pop


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("restarts", range(3))
def test_nothing_is_skipped_if_a_rocketmq_broker_consumed_after_this_broker(
    store, clock, restarts, closed
):
    pop = we_consume(store)
    if closed:
        pop.close()
    java_consumes(store, clock)
    for _ in range(restarts):
        popped(store).close()
    clock.now += 600_000
    later = popped(store)
    received = later.receive("g", "t", max_messages=20)
    # Message 1 is before the offset that the other broker has committed, so it was acked there.
    assert bodies(received) == [b"3", b"5", *(b"%d" % n for n in range(6, 11))]
    acked(later, received)
    later.snapshot()
    assert store.groups.committed("g", "t") == {0: 11}


@pytest.mark.parametrize("restarts", range(3))
def test_nothing_is_skipped_if_this_broker_consumes_after_a_rocketmq_broker(store, clock, restarts):
    handed_out(store, clock)
    pop = popped(store)
    received = pop.receive("g", "t", max_messages=1)
    assert bodies(received) == [b"6"]
    acked(pop, received)
    for _ in range(restarts):
        popped(store).close()
    store.groups.commit("g", "t", {0: 8})
    write(store, REVIVE, 0, "ck", of_pop(clock, so=7, bm=0, n=1, it=60_000))
    for _ in range(restarts):
        popped(store).close()
    clock.now += 600_000
    assert attempts(popped(store).receive("g", "t")) == {b"7": 2}


def test_a_kill_during_the_takeover_skips_nothing(store, clock, monkeypatch):
    we_consume(store).close()
    java_consumes(store, clock)
    real, commits = consumption_of(store).change_offsets, []

    def killed(edit):
        commits.append(edit)
        if len(commits) == 1:
            raise KeyboardInterrupt
        real(edit)

    monkeypatch.setattr(consumption_of(store), "change_offsets", killed)
    with pytest.raises(KeyboardInterrupt):
        popped(store)
    clock.now += 600_000
    assert bodies(popped(store).receive("g", "t", max_messages=2)) == [b"3", b"5"]


def test_messages_acked_in_the_bit_map_of_a_check_point_are_not_received(store, clock):
    sent(store, 4)
    store.groups.commit("g", "t", {0: 4})
    write(store, REVIVE, 0, "ck", of_pop(clock, so=0, bm=0b0101, n=4, it=10_000))
    pop = popped(store)
    clock.now += 10_000
    assert bodies(pop.receive("g", "t")) == [b"1", b"3"]


def test_unreadable_records_and_deleted_topics_are_ignored(store, clock):
    handed_out(store, clock)
    write(store, REVIVE, 1, "ck", b"{")
    write(store, REVIVE, 1, "ck", of_pop(clock, t="gone", n=1, it=1))
    pop = popped(store)
    clock.now += 60_000
    assert bodies(pop.receive("g", "t")) == [b"1", b"5", b"6", b"7"]


@pytest.mark.parametrize("topic", ["%RETRY%g_t", "%RETRY%g+t"])
def test_retries_of_pop_consumers_have_their_original_topic(store, clock, topic):
    consumption_of(store).ensure_topics({topic: 1})
    write(store, topic, 0, "A", b"again", reconsume_times=1)
    pop = popped(store)
    received = pop.receive("g", "t")
    assert attempts(received) == {b"again": 2}
    assert received.messages[0].message.topic == "t"
    pop.forward_to_dlq("g", "t", *handles(received))
    (dead,) = store.read("%DLQ%g", 0, 0)
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert bodies(pop.receive("g", "t")) == []
