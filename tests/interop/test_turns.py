"""Push consumers of RocketMQ and of pyrocket take turns in one group, on one directory: each turn
consumes exactly the messages from the committed offsets on.
"""

import threading
from collections import Counter

import pytest
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from interop.workload import name_transaction_topics
from pyrocket import Message, Store
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from support.name_server import wait_until

TOPIC, GROUP, QUEUES = "work", "workers", 4


def java_turn(java, path, queues, expected, *, killed=False):
    """Send and consume with RocketMQ; a broker that is killed has not written all new offsets."""
    # The broker writes the offsets 10 s after its start, then after this time, and when it stops.
    with java.broker(path, **SMALL, flushConsumerOffsetInterval=3_600_000) as broker:
        java.peer.send(TOPIC, [outgoing(b"java", queue=queue) for queue in queues])
        # The client waits for one message more, which would be a repeated one.
        seen = java.peer.consume(TOPIC, GROUP, attempts=len(expected) + 1, seconds=15)
        if not killed:
            broker.stop()
    return [(one["queueId"], one["queueOffset"]) for one in seen]


def killed_java_turn(java, path, queues, expected):
    return java_turn(java, path, queues, expected, killed=True)


def our_turn(java, path, queues, expected, *, unfinished=()):
    """Send and consume with pyrocket; the listener does not finish the messages `unfinished`."""
    seen, over = [], threading.Event()

    def listen(messages):
        places = [(one.queue_id, one.queue_offset) for one in messages]
        seen.extend(places)
        if any(place in unfinished for place in places):
            over.wait(60)
        return ConsumeResult.SUCCESS

    with Store.open(path) as store:
        for queue in queues:
            store.append(Message(topic=TOPIC, body=b"ours", queue_id=queue))
    start = {} if committed(path) else {"consume_from": "first"}
    settings = {"subscriptions": {TOPIC: "*"}, "listener": listen, "stop_timeout_ms": 500}
    with PushConsumer(GROUP, path=path, **settings, **start) as consumer:
        wait_until(lambda: len(seen) >= len(expected))
        wait_until(lambda: consumer.stats.consumed >= len(expected) - len(unfinished))
    over.set()
    return seen


def our_unfinished_turn(java, path, queues, expected):
    """A turn with an unfinished message in the middle of each queue but the first one."""
    middle = {queue: offset for queue, offset in expected[:: len(expected) // 10] if queue}
    return our_turn(java, path, queues, expected, unfinished={*middle.items()})


def committed(path):
    with Store.open(path, read_only=True) as store:
        return store.groups.committed(GROUP, TOPIC)


@pytest.mark.parametrize("java_begins", [True, False])
def test_consumers_of_both_sides_continue_at_the_offsets_of_the_other(
    java, store_path, java_begins
):
    name_transaction_topics(store_path)
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        store.groups.create(GROUP)
    turns = [java_turn, our_turn, killed_java_turn, our_unfinished_turn, java_turn, our_turn]
    ends, starts = Counter(), {}
    for number, turn in enumerate(turns if java_begins else turns[3:]):
        # The last queue gets its first messages after the first turn.
        queues = [each % (QUEUES if number else QUEUES - 1) for each in range(60)]
        ends.update(queues)
        expected = [
            (queue, offset)
            for queue in range(QUEUES)
            for offset in range(starts.get(queue, 0), ends[queue])
        ]
        assert sorted(turn(java, store_path, queues, expected)) == expected, (number, turn)
        before, starts = starts, committed(store_path)
        check_offsets(turn, before, starts, ends)


def check_offsets(turn, before, after, ends):
    """Check what a turn has committed."""
    if turn is killed_java_turn:
        assert all(offset <= after[queue] <= ends[queue] for queue, offset in before.items())
    elif turn is our_unfinished_turn:
        assert all(after[queue] < ends[queue] for queue in after if queue and ends[queue])
    else:
        assert {queue: offset for queue, offset in after.items() if offset} == ends
