"""A consumer group of pyrocket's broker is continued by a RocketMQ broker, and the other way round:
no message is skipped, and retried messages and dead letters are the same for both.
"""

import base64
import time
from contextlib import closing

from interop.compare import all_bodies, assert_same
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from interop.workload import name_transaction_topics, steady
from pyrocket import Message, Store
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.values.admin import Backoff
from support.name_server import wait_until
from support.pops import acked, attempts, bodies, handles, popped

GROUP = "workers"
COUNT = 20


def test_a_rocketmq_broker_continues_a_group_without_skipping_messages(java, store_path):
    name_transaction_topics(store_path)
    unacked = consume_here(store_path)
    with java.broker(store_path, **SMALL) as broker:
        assert broker.committed(GROUP, "work", 0) == min(unacked)
        pulled = broker.pull()
        assert all_bodies(pulled, f"%DLQ%{GROUP}") == [b"dead"]
        # Acked messages after the first message that is not acked are repeated.
        expected = COUNT - min(unacked) + 1
        seen = java.peer.consume("work", GROUP, attempts=expected, max_reconsume_times=16)
        # The client does not wait for the answer to its last commit.
        wait_until(lambda: broker.committed(GROUP, "work", 0) == COUNT)
        final = steady(broker)
        broker.stop()
    assert_same(store_path, final)
    delivered = sorted((body_of(one), one["reconsumeTimes"]) for one in seen)
    later = [(b"%02d" % number, 0) for number in range(min(unacked), COUNT)]
    assert delivered == sorted([*later, (b"retried", 1)])
    with Store.open(store_path) as store, closing(popped(store, GROUP)) as pop:
        assert pop.lag(GROUP, "work")["work", 0].lag == 0
        assert not pop.receive(GROUP, "work").messages


def consume_here(path):
    """Leave messages in flight, one retried message, and one dead letter; return the offsets of the
    messages that are not acked.
    """
    with Store.open(path, create=True, config=SIZES) as store:
        store.topics.create("work", read_queues=1, write_queues=1)
        store.groups.create(GROUP)
        store.groups.update(GROUP, retry_max_times=3, backoff=Backoff((1_000,)))
        with closing(popped(store, GROUP, first_attempts=1, commit_ms=0)) as pop:
            for body in (b"dead", b"retried", *(b"%02d" % number for number in range(2, COUNT))):
                store.append(Message(topic="work", body=body, queue_id=0))
            (dead,) = handles(pop.receive(GROUP, "work", max_messages=1))
            pop.forward_to_dlq(GROUP, "work", dead).stored.result(10)
            assert bodies(pop.receive(GROUP, "work", max_messages=1, invisible_ms=1_000))
            first = handles(pop.receive(GROUP, "work", max_messages=10, invisible_ms=100_000))
            pop.ack(GROUP, "work", first[:4] + first[6:]).stored.result(10)
            time.sleep(1.1)
            # The delay level of the first retry is 10 s.
            assert pop.sweep()
    return [6, 7, *range(12, COUNT)]


def test_a_rocketmq_broker_continues_a_group_of_push_consumers(java, store_path):
    """The offset, and a message that is to be consumed again, of a consumer without a server."""
    name_transaction_topics(store_path)
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create("work", read_queues=1, write_queues=1)
        for number in range(COUNT):
            store.append(Message(topic="work", body=b"%02d" % number, queue_id=0))

    def listen(messages):
        is_bad = messages[0].body == b"07"
        return ConsumeResult.RECONSUME_LATER if is_bad else ConsumeResult.SUCCESS

    given = {"subscriptions": {"work": "*"}, "listener": listen, "consume_from": "first"}
    with PushConsumer(GROUP, path=store_path, **given) as consumer:
        wait_until(lambda: consumer.stats.consumed + consumer.stats.sent_back == COUNT)
    assert consumer.stats.sent_back == 1
    with java.broker(store_path, **SMALL) as broker:
        assert broker.committed(GROUP, "work", 0) == COUNT
        java.peer.send("work", [outgoing(b"new", queue=0)])
        seen = java.peer.consume("work", GROUP, attempts=2, max_reconsume_times=16)
        broker.stop()
    found = sorted((body_of(one), one["reconsumeTimes"]) for one in seen)
    assert found == [(b"07", 1), (b"new", 0)]
    with Store.open(store_path) as store:
        assert store.groups.committed(GROUP, "work") == {0: COUNT + 1}


def body_of(shown):
    return base64.b64decode(shown["body"])


def test_this_broker_continues_a_group_of_a_rocketmq_broker(java, store_path):
    name_transaction_topics(store_path)
    with java.broker(store_path, **SMALL) as broker:
        sent = [b"good0", b"bad", b"good1"]
        java.peer.send("work", [outgoing(body, queue=0) for body in sent], queues=1)
        assert len(java.peer.consume("work", GROUP, attempts=4, max_reconsume_times=1)) == 4
        # This message is stored for a retry by a consumer that does not wait for it.
        java.peer.send("work", [outgoing(b"bad again", queue=0)])
        assert len(java.peer.consume("work", GROUP, attempts=1, max_reconsume_times=5)) == 1
        java.peer.send("work", [outgoing(b"new%d" % number, queue=0) for number in range(3)])
        committed = broker.committed(GROUP, "work", 0)
        pulled = steady(broker)
        broker.stop()
    assert committed == 4
    assert all_bodies(pulled, f"%DLQ%{GROUP}") == [b"bad"]
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        assert store.groups.committed(GROUP, "work") == {0: 4}
        with closing(popped(store, GROUP)) as pop:
            found = {}
            deadline = time.monotonic() + 20
            while len(found) < 4 and time.monotonic() < deadline:
                store.deliver_due()
                received = pop.receive(GROUP, "work")
                found |= attempts(received)
                assert all(acked(pop, received, GROUP, "work"))
                time.sleep(0.1)
            assert found == {b"new0": 1, b"new1": 1, b"new2": 1, b"bad again": 2}
