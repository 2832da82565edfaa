"""A transactional producer for tests, and helpers to inspect a store's transactions."""

import os
import random
from pathlib import Path

from pyrocket import Message, PyrocketError, Store
from pyrocket.formats.record import read_header
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyrocket.services.transactions.transactions import Transactions
from pyrocket.values.admin import TopicConfig
from pyrocket.values.transactions import CheckPolicy, LocalTransactionState, TransactionSendResult

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
        self.transactions = Transactions(inner(store).engine, lambda: inner(store).sender, policy)


class LocalProducer:
    """A producer of one group, without a thread: `check_now` asks its listener."""

    def __init__(self, transactions, group, listener):
        self.transactions, self.group, self.listener = transactions, group, listener
        self.requests = []
        transactions.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.transactions.remove(self)

    def send(self, message, arg=None, *, immunity_s=None):
        """Store a half message, execute its local transaction, and commit or roll back."""
        request, status = self.transactions.send_half(self.group, message, immunity_s)
        state = self._answer(self.listener.execute, request.message, arg)
        return TransactionSendResult(
            topic=request.message.topic,
            queue_id=request.message.queue_id,
            transaction_id=request.half.transaction_id,
            queue_offset=request.half.queue_offset,
            physical_offset=request.half.physical_offset,
            status=status,
            state=state,
            error=self._end(request, state),
        )

    def check_now(self):
        """Run a round of checks if one is due; return the number of requests answered."""
        self.transactions.run_checks()
        requests, self.requests = self.requests, []
        for request in requests:
            state = self._answer(self.listener.check, request.message)
            self._end(request, state, from_check=True)
        return len(requests)

    def room(self):
        return 1000

    def ask(self, request):
        self.requests.append(request)
        return True

    def _answer(self, call, *arguments):
        try:
            state = call(*arguments)
        except Exception:
            return UNKNOWN
        return state if isinstance(state, LocalTransactionState) else UNKNOWN

    def _end(self, request, state, *, from_check=False):
        try:
            self.transactions.end(request.half, state, from_check=from_check, record=request.record)
        except PyrocketError as error:
            return error
        return None


def producer(held, group="pg", listener=None):
    return LocalProducer(held.transactions, group, listener or Listener())


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
    with producer(held, group, Listener(truth, truth)) as one:
        while True:
            body = b"%s:%s:%d" % (rng.choice("ccru").encode(), name.encode(), number)
            message = Message(topic="t", body=body + b"." * rng.choice((0, 100, 900)))
            one.send(message, arg=True)
            one.check_now()
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
