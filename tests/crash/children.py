"""Tasks of child processes in crash tests; each function runs in its own process."""

import fcntl
import os
import random
import threading
import time
from pathlib import Path

import pyarrow as pa
from crash.nursery import wait_for
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.lock import WriteLock
from pyrocket.disk.shared_state import SharedState
from pyrocket.errors import OffsetOutOfRangeError, SinkError
from pyrocket.server.replica.promotion import promote
from support.broker_groups import consume_until_death  # noqa: F401  a task of its own
from support.halves import send_for_ever  # noqa: F401  a task of its own
from support.inner import inner
from support.payments import pay_until_death  # noqa: F401  a task of its own
from support.pops import consume_for_ever  # noqa: F401  a task of its own
from support.replicas import opened, pass_files, pass_on
from support.sinks import numbered, stage_tasks
from support.stores import SMALL, batch, message

MESSAGE_QUEUE, ROW = "m", "b"


def body(producer, number, rng):
    return f"{producer}:{number}:".encode() + b"." * rng.choice((0, 10, 200, 1500))


class Diary:
    """Records the messages whose append was acknowledged to a producer, in a file that survives the
    producer.
    """

    def __init__(self, folder, producer):
        self._file = os.open(Path(folder) / producer, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def acknowledge(self, number):
        os.write(self._file, b"%d\n" % number)


def produce(path, diaries, producer, count, seed, queues=2):
    """Append `count` numbered messages, singly and in batches, and record each acknowledgement."""
    rng, diary = random.Random(seed), Diary(diaries, producer)
    store = Store.open(path)
    number = 0
    while number < count:
        rows = [body(producer, number + n, rng) for n in range(rng.choice((1, 1, 2, 7, 40)))]
        if len(rows) == 1:
            store.append(message(rows[0], queue_id=number % queues))
        else:
            ids = [(number + n) % queues for n in range(len(rows))]
            store.append_batch(batch(rows, ids), topic="t")
        number += len(rows)
        diary.acknowledge(number)
    store.close()


def produce_in_threads(path, diaries, producer, count, seed, threads=2):
    """Append as `produce` does, from several threads, each with its own store, and from threads
    that share a store.
    """
    work = [
        threading.Thread(target=produce, args=(path, diaries, f"{producer}.{n}", count, seed + n))
        for n in range(threads)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def take_turns(folder, ready, moment, result):
    """Count how often this process gets the write lock in the two seconds after a given moment."""
    turns = WriteLock(Path(folder) / "mutex", Path(folder) / "turnstile", lambda: 0)
    Path(ready).touch()
    begin = float(wait_for(Path(moment)).read_text())
    time.sleep(max(0, begin - time.monotonic()))
    count = 0
    while time.monotonic() < begin + 2:
        with turns.hold(10_000):
            count += 1
            time.sleep(0.0002)
    Path(result).write_text(str(count))


def hold_turn(path, ready):
    """Take the write lock and never release it."""
    store = Store.open(path)
    with inner(store).writer.exclusive():
        Path(ready).touch()
        time.sleep(60)


def hold_open(path, ready):
    """Open the store, append, fork a child that survives this process, and wait to be killed."""
    store = Store.open(path)
    store.append(message(b"parent"))
    if os.fork() == 0:
        status = "wrote"
        try:
            store.append(message(b"child"))
        except Exception as error:
            status = getattr(error, "code", repr(error))
        store.close()
        draft = Path(f"{ready}.draft")
        draft.write_text(f"{os.getpid()} {status}")
        draft.rename(f"{ready}.child")
        time.sleep(60)
        os._exit(0)
    Path(ready).touch()
    time.sleep(60)


def lock_like_java(path, ready):
    """Lock the file `lock` as a RocketMQ broker does, and hold the lock."""
    with open(Path(path) / "lock", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        Path(ready).touch()
        time.sleep(60)


def try_to_lock_like_java(path):
    """Return 7 if another process holds the lock on the file `lock`; never write to the file."""
    with open(Path(path) / "lock", "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            return 7
    return 0


def create_at(path, moment, number):
    """Create or open the store at an agreed moment and append one message."""
    while time.monotonic() < moment:
        pass
    with Store.open(path, create=True, config=SMALL) as store:
        store.append(message(b"%d" % number))
        time.sleep(0.02)


STEPS = ("write_at", "sync", "sync_directory", "rename", "unlink", "set_length", "make_directory")


def append_until_step(path, rows, step, half, trace):
    """Append a batch, and die before a step, or with `half` in the middle of a write."""
    store = Store.open(path)
    die_at_step(step, half, trace)
    store.append_batch(batch([row.encode() for row in rows], 0), topic="t")
    os._exit(0)


def die_at_step(step, half, trace):
    """Number all disk operations and changes of shared fields as steps, and die at one of them."""
    taken = []

    def instead(name, real):
        def operation(*arguments):
            if len(taken) == step and (name == "write_at" or not half):
                if half:
                    descriptor, data, at = arguments
                    real(descriptor, memoryview(data).cast("B")[: len(data) // 2], at)
                os._exit(9)
            if name == "write_at" or not half:
                taken.append(name)
            with open(trace, "a") as file:
                file.write(name + "\n")
            return real(*arguments)

        return operation

    for name in STEPS:
        setattr(io, name, instead(name, getattr(io, name)))
    apply_intent, set_word = SharedState.apply_intent, SharedState.__setitem__
    SharedState.apply_intent = lambda page: instead("apply_intent", apply_intent)(page)
    SharedState.__setitem__ = lambda page, word, value: instead(f"word {word}", set_word)(
        page, word, value
    )


def deliver_until_step(path, now, step, half, trace):
    """Deliver messages due at `now`, and die before a step; see `append_until_step`."""
    store = Store.open(path, clock=lambda: now)
    die_at_step(step, half, trace)
    store.deliver_due()
    os._exit(0)


def publish_until_step(path, number, run, rows, step, half, trace):
    """Stage rows in two tasks and publish them, and die before a step; see `append_until_step`."""
    store = Store.open(path)
    one = numbered(number, run)
    staged = stage_tasks(store, one, [row.encode() for row in rows], queue_id=0)
    die_at_step(step, half, trace)
    store.sink.publish(one, staged)
    os._exit(0)


def publish_all(path, identity, numbers, run, rows, topic, result):
    """Publish numbered batches of a query, each at least once, and save the codes of errors."""
    refused = []
    for number in numbers:
        with Store.open(path) as store:
            one = numbered(number, run, identity, topic)
            bodies = [b"%s:%d:%d" % (identity.encode(), number, row) for row in range(rows)]
            keys = pa.array([f"{identity}{row % 3}" for row in range(rows)])
            staged = stage_tasks(store, one, bodies, topic=topic, tasks=1, shardingKey=keys)
            try:
                store.sink.publish(one, staged)
            except SinkError as error:
                refused.append(error.code)
    Path(result).write_text(",".join(refused))


def body_number(row):
    """Return the number in a body of `produce`."""
    return int(row.split(b":")[1])


def clean_and_append(path, rounds, ready):
    """Repeatedly append numbered bodies and delete all log files except the last ones."""
    with Store.open(path) as store:
        for number in range(rounds):
            rows = [b"%06d" % (number * 40 + row) + b"." * 100 for row in range(40)]
            store.append_batch(batch(rows, 0), topic="t")
            store.clean(total_bytes=3 * SMALL.log_file_bytes)
            Path(ready).touch()
            time.sleep(0.01)


def read_forever(path, result, seed):
    """Read queue 0 at offsets that were valid a moment ago, until `pyrocket/done` exists."""
    rng, rows, losses = random.Random(seed), 0, 0
    with Store.open(path, read_only=True) as store:
        while not (Path(path) / "pyrocket/done").exists():
            known = store.offsets("t")[0]
            start = rng.randint(known.minimum, known.maximum)
            try:
                for found in store.scan("t", 0, start, known.maximum, ("queueOffset", "body")):
                    pairs = zip(*(column.to_pylist() for column in found.columns), strict=True)
                    assert all(int(body[:6]) == offset for offset, body in pairs)
                    rows += found.num_rows
                    time.sleep(rng.choice((0, 0.02)))
                for one in store.read("t", 0, start, 50):
                    assert int(one.body[:6]) == one.queue_offset
                first = store.offset_by_time("t", 0, 0)
                assert first >= known.minimum, (first, known, store.offsets("t")[0])
            except OffsetOutOfRangeError:
                losses += 1
    Path(result).write_text(f"{rows} {losses}")


def follow_until_step(primary, path, until, step, half, trace, files=True):
    """Take over the log of a primary, and with `files` its small files; die before a step."""
    follower = opened(Path(path))
    die_at_step(step, half, trace)
    pass_on(Path(primary), follower, 3000, until)
    if files:
        pass_files(Path(primary), follower)
    os._exit(0)


def cut_until_step(path, offset, step, half, trace):
    """Cut off the tail of a replica, and die before a step."""
    follower = opened(Path(path))
    die_at_step(step, half, trace)
    if follower.end > offset:
        follower.cut(offset)
    os._exit(0)


def promote_until_step(path, step, half, trace):
    """Promote a replica, and die before a step."""
    die_at_step(step, half, trace)
    promote(Path(path))
    os._exit(0)
