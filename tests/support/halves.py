"""Transactional producers for tests, and helpers to inspect a store's transactions."""

import os
import random
from pathlib import Path

from pyrocket import Message, Store
from pyrocket.formats.record import read_header
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyrocket.metadata.topics import TopicConfig
from pyrocket.services.transactions.model import CheckPolicy, LocalTransactionState
from pyrocket.services.transactions.producer import TransactionProducer
from pyrocket.services.transactions.transactions import Transactions

from support.inner import inner

COMMIT, ROLLBACK, UNKNOWN = LocalTransactionState
SECOND, MINUTE = 1000, 60_000


class Listener:
    """Returns `state` for an execution and `answer` for a check, or the results of calling them.
    Records the checked messages.
    """

    def __init__(self, state=COMMIT, answer=UNKNOWN):
        self.state, self.answer = state, answer
        self.executed, self.checked = [], []

    def execute(self, message, arg):
        self.executed.append((message, arg))
        return self.state(message, arg) if callable(self.state) else self.state

    def check(self, message):
        self.checked.append(message)
        return self.answer(message) if callable(self.answer) else self.answer


class Held:
    """A view of a store with other rules for transaction checks, and with state as if the store had
    just been opened.
    """

    def __init__(self, store, **policy):
        policy = CheckPolicy(**policy)
        self.transactions = Transactions(inner(store).engine, inner(store).sender, policy)


def producer(held, group="pg", listener=None, **options):
    """Return a producer without a thread; `check_now` does what the thread would do."""
    return TransactionProducer(held, group, listener or Listener(), background=False, **options)


def truth(message, arg=None):
    """Return the state that the body determines; some states are known only in a check."""
    kind = message.body[:1]
    if kind == b"u" and arg:
        return UNKNOWN
    return ROLLBACK if kind == b"r" else COMMIT


def send_for_ever(path, diaries, name, group, seed):
    """Send messages in transactions, and record the body of each acknowledged message."""
    rng, number = random.Random(seed), 0
    diary = os.open(Path(diaries) / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    held = Held(Store.open(path), timeout_ms=5, interval_ms=20)
    with TransactionProducer(held, group, Listener(truth, truth)) as one:
        while True:
            body = b"%s:%s:%d" % (rng.choice("ccru").encode(), name.encode(), number)
            message = Message(topic="t", body=body + b"." * rng.choice((0, 100, 900)))
            one.send(message, arg=True)
            os.write(diary, body + b"\n")
            number += 1


def queue(store, topic, queue_id=0):
    """Return all messages of a queue; the topic may be a system topic."""
    known = inner(store).reader.system_offsets(topic, queue_id)
    config = TopicConfig(topic, queue_id + 1, queue_id + 1)
    count = known.maximum - known.minimum
    return inner(store).reader.read(config, queue_id, known.minimum, count) if count else []


def rounds(one, clock, count=1, every=MINUTE):
    """Advance the clock by `count` intervals; return the number of checks in each interval."""
    asked = []
    for _ in range(count):
        clock.now += every
        asked.append(one.check_now())
    return asked


def halves(store):
    return queue(store, HALF_TOPIC)


def ops(store):
    """Return the offsets that op messages contain, in order."""
    return [int(one.body) for one in queue(store, OP_TOPIC)]


def discarded(store):
    return queue(store, DISCARD_TOPIC)


def log_records(path):
    """Return every record of a log, in order."""
    records = []
    for file in sorted((path / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data) and read_header(data, at).is_message:
            records.append(decode_record(data[at:]))
            at += records[-1].size
    return records
