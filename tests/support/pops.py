"""Helpers for tests of consumer groups: a `Pop` whose appends complete at once."""

import os
import random
from concurrent.futures import Future

from pyrocket import Store
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import PopSettings
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.record import SYS_COMPRESSED, encode_record
from pyrocket.formats.record_batch import batch_of_records
from pyrocket.store import sender_of

from support.stores import SMALL, FakeClock, message

INVISIBLE_MS = 10_000
POP_CRASHES = PopSettings(first_attempts=2, commit_ms=5_000, snapshot_ms=20_000)


def at_once(store):
    """Return an append function that executes each request at once."""

    def append(records):
        done = Future()
        (result,) = sender_of(store).append_received([records])
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
        return done

    return append


def popped(store, group="g", **settings):
    """Create the group, and return a `Pop`."""
    store.groups.create(group)
    return Pop(store, at_once(store), PopSettings(**settings))


def sent(store, count, first=0, topic="t", queue_id=0, **more):
    """Append messages; return their bodies."""
    bodies = [b"%d" % n for n in range(first, first + count)]
    for body in bodies:
        store.append(message(body, topic=topic, queue_id=queue_id, **more))
    return bodies


def append_compressed(store, compressed, topic="t"):
    """Append a message with a compressed body, as some clients do."""
    data = encode_record(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=compressed,
        properties=b"",
        born_timestamp=0,
        store_timestamp=0,
        sys_flag=SYS_COMPRESSED,
    )
    batch = batch_of_records(topic, 0, [data], "", keys_of_message(topic, "", []))
    at_once(store)(ReceivedRecords({}, [batch])).result(0)


def bodies(received):
    """Wait until the changes of a receive are stored, and return its bodies."""
    received.stored.result(10)
    return [one.message.body for one in received.messages]


def attempts(received):
    """Return the delivery attempt of each received message, by body."""
    received.stored.result(10)
    return {one.message.body: one.attempt for one in received.messages}


def handles(received):
    """Return the handles of a receive."""
    return handles_of(received.messages)


def handles_of(deliveries):
    return [one.handle for one in deliveries]


def acked(pop, received, group="g", topic="t"):
    """Ack all messages of a receive; return for each handle whether it was valid."""
    done = pop.ack(group, topic, handles(received))
    done.stored.result(10)
    return done.valid


def consume_for_ever(path, diary, seed):
    """Send, receive and ack messages until the process is killed; report each step.

    About one message in five is not acked, so that it is delivered again.
    """
    out = os.open(diary, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    rng, clock = random.Random(seed), FakeClock(1_700_000_000_000 + seed * 3_600_000)
    store = Store.open(path, clock=clock, config=SMALL)
    pop, count = Pop(store, at_once(store), POP_CRASHES), 0
    while True:
        for body in sent(store, 3, first=seed * 100_000 + count):
            os.write(out, b"sent %s\n" % body)
        count += 3
        received = pop.receive("g", "t", max_messages=8, invisible_ms=INVISIBLE_MS)
        for one in received.messages:
            os.write(out, b"got %s %d\n" % (one.message.body, one.attempt))
        chosen = [one for one in received.messages if rng.random() < 0.8]
        for kind in (b"tried", b"acked"):
            for one in chosen:
                os.write(out, b"%s %s\n" % (kind, one.message.body))
            if kind == b"tried":
                pop.ack("g", "t", handles_of(chosen))
        clock.now += rng.choice([0, INVISIBLE_MS])
        store.deliver_due()
        pop.sweep()
        if count % 10 == 0:
            pop.snapshot()
