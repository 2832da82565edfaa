"""Members and brokers that are suspended: a group stops for none of them, and goes back to no old
position.
"""

import sys
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from pyrocket.values.message import MessageQueue
from support import broker_process, name_server
from support.client_processes import (
    GROUP,
    TOPIC,
    check_order,
    deliveries,
    lines,
    processes,
    stop,
    suspended,
    wait_until_consumed,
    wait_until_registered,
    wait_until_sent,
)
from support.name_server import wait_until

pytestmark = pytest.mark.crash
QUEUES, THREADS, BATCH = 8, 4, 2
COMMIT_S = 15


def new_store(path, name="broker-a"):
    with Store.open(path, create=True, config=StoreConfig(broker_name=name)) as store:
        store.topics.create(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        store.groups.create(GROUP)
    return path


# After 60 s the locks of a member have expired, after 120 s its membership.
@pytest.mark.heavy
@pytest.mark.parametrize("seconds", [90, 130])
@pytest.mark.parametrize("orderly", [False, True])
def test_a_suspended_member_repeats_only_what_its_listeners_had(tmp_path, orderly, seconds):
    path, sent = new_store(tmp_path / "store"), tmp_path / "sent"
    files = [tmp_path / f"consumer-{number}" for number in range(2)]
    settings = {"orderly": orderly, "thread_max": THREADS, "consume_message_batch_max_size": BATCH}
    with ExitStack() as stack:
        begin = stack.enter_context(processes())
        _, found = stack.enter_context(broker_process.running(path))
        (address,) = found.listen
        members = [begin("consume", address, one, **settings, listener_s=0.01) for one in files]
        wait_until(lambda: all(Path(f"{one}.started").exists() for one in files))
        producer = begin("produce", address, sent, batch=20, pause_s=0.2)
        wait_until(lambda: all(len(lines(file)) >= 500 for file in files), 120)
        with suspended(members[0]):
            time.sleep(seconds)
            resumed_ns = time.monotonic_ns()
        wait_until_sent(sent, len(lines(sent)) + 2000)
        stop(producer)
        wait_until_consumed(sent, files)
        for member in members:
            stop(member)
    assert sum(one.time_ns > resumed_ns for one in deliveries(files[:1])) > 200, "it continues"
    assert old_repeats(files, resumed_ns) <= THREADS * BATCH
    if orderly:
        check_order(files, "queue")


def old_repeats(files, since_ns):
    """Return how many messages were consumed since a time, and also long before.

    Queues change hands at the committed offset, which is some seconds old.
    """
    first, repeats = {}, 0
    for one in deliveries(files):
        began_ns = first.setdefault(one.body, one.time_ns)
        repeats += one.time_ns > since_ns and one.time_ns - began_ns > COMMIT_S * 10**9
    return repeats


# Both are also tested on a simulated clock, in store/client/core/test_silent_brokers.py.
@pytest.mark.heavy
@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_starts_consumes_and_closes_while_a_broker_hangs(tmp_path, orderly):
    seen, numbers = set(), count()

    def listen(messages):
        seen.update(message.body for message in messages)
        return ConsumeResult.SUCCESS

    def send(producer, broker):
        """Send a message to each queue of a broker; return the bodies."""
        bodies = {b"%d" % next(numbers) for _ in range(QUEUES)}
        for queue_id, body in enumerate(bodies):
            queue = MessageQueue(TOPIC, broker, queue_id)
            producer.send(Message(topic=TOPIC, body=body), queue=queue)
        return bodies

    with ExitStack() as stack:
        _, endpoint = stack.enter_context(name_server.running())
        addresses = []
        for name in ("broker-a", "broker-b"):
            path, flags = new_store(tmp_path / name, name), ("--nameserver", endpoint)
            hanging, found = stack.enter_context(broker_process.running(path, *flags))
            addresses += found.listen
        wait_until_registered(endpoint, "broker-a", "broker-b")
        producer = stack.enter_context(Producer(endpoint=endpoint))
        old = [send(producer, name) for name in ("broker-a", "broker-b")]
        settings = {"subscriptions": {TOPIC: "*"}, "consume_from": "first", "orderly": orderly}
        given = {"endpoint": endpoint, "listener": listen, **settings}
        with suspended(hanging):
            consumer = PushConsumer(GROUP, **given)
            assert seconds_of(consumer.start) < 8
            wait_until(lambda: seen >= old[0])
            new = send(producer, "broker-a")
            wait_until(lambda: seen >= new, 5)
            assert seconds_of(consumer.close) < 8
        # The name server has the broker in its routes only after its next registration.
        with PushConsumer(GROUP, **{**given, "endpoint": ",".join(addresses)}):
            wait_until(lambda: seen >= old[1])


def seconds_of(call):
    began = time.monotonic()
    call()
    sys.stdout.write(f"{call.__name__}: {time.monotonic() - began:.1f} s\n")
    return time.monotonic() - began
