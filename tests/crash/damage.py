"""A small store with data of every kind, and ways to damage one of its files."""

import os
import random
from itertools import count
from pathlib import Path
from unittest import mock

import pyarrow as pa
from pyrocket import Message, Store
from pyrocket.testing import FileClock
from support.sinks import numbered as sink_batch
from support.sinks import publish, stage
from support.stores import SMALL, append_as_broker, batch, numbered, reboot

NOW = 1_700_000_000_000
GROUP = "readers"
RECREATED, DELETED = "again", "gone"
LATER, SUNK = "later", "sunk"
"""The topics of timers, and the target of a query."""

HOUR_MS = 3_600_000
WAITING = [b"timer %d" % number for number in range(12)]
PUBLISHED = [b"sunk %d" % number for number in range(6)]
ROWS = 5
"""The number of messages of each topic in RECREATED and DELETED before its deletion."""

KINDS = {
    "log": "commitlog/*",
    "queue": "consumequeue/*/*/*",
    "keys": "index/*",
    "checkpoint": "checkpoint",
    "table": "config/*.json",
    "backup": "config/*.bak",
    "identity": "pyrocket/store.json",
    "topic ids": "pyrocket/topics.json",
    "epochs": "pyrocket/epochs.json",
    "state": "pyrocket/state",
    "abort": "abort",
    "lock": "lock",
    "clock": "pyrocket/clock",
    "key notes": "pyrocket/keys",
    "own checkpoint": "pyrocket/checkpoint",
    "ends": "pyrocket/ends.json",
    "locks": "pyrocket/[fmt][lu]*",
    "cursors": "pyrocket/cursors.json",
    "sink": "pyrocket/sink.json",
    "staging": "pyrocket/staging/*/*",
    "staging's time": "pyrocket/staging/cleaned",
    "timers": "pyrocket/timers/*",
    "handed": "pyrocket/handed.json",
    "timer check": "config/timercheck",
    "timer log": "timerlog/*",
}
"""Maps each kind of file of a store to a pattern of its paths."""

TIMERS = frozenset(["timers", "handed", "timer log"])
REBUILT = TIMERS | frozenset(
    [
        *("queue", "keys", "checkpoint", "backup", "state", "abort", "lock", "clock"),
        *("key notes", "own checkpoint", "ends", "locks", "staging", "staging's time"),
        "timer check",
    ]
)
"""Kinds whose content can be rebuilt: no message is lost if one file is lost."""

_DRAWN = [*KINDS, *["log", "queue"] * 3, "keys", "timers", "timers"]


def make_template(root: Path):
    """Create the store with the same bytes each time, except for the shared state."""
    numbers = count()

    def urandom(length):
        return random.Random(next(numbers)).randbytes(length)

    random.seed(0)
    with mock.patch("os.urandom", urandom), mock.patch("os.getpid", return_value=7):
        clock = FileClock(root)
        clock.set(NOW)
        _fill(root, clock)
        # An unclean shutdown begins the first of two epochs; then more data, and a clean shutdown.
        reboot(root)
        with Store.open(root) as store:
            _go_on(store, clock)
            notes = (root / "pyrocket/keys").read_bytes()
        # A clean shutdown deletes this file; a power loss may leave it.
        (root / "pyrocket/keys").write_bytes(notes)


def _fill(root, clock):
    store = Store.open(root, create=True, config=SMALL)
    store.topics.create("orders", read_queues=2, write_queues=2)
    for name in ("wide", DELETED, RECREATED):
        store.topics.create(name, read_queues=1, write_queues=1)
    for number in range(36):
        clock.advance(1000)
        store.append(_order(number))
    store.append_batch(batch(numbered(25, 150), 0), topic="wide")
    for name in (DELETED, RECREATED):
        store.append_batch(batch(numbered(ROWS, 50), 0, keys=_keys(name, ROWS)), topic=name)
        store.topics.delete(name)
    store.groups.commit(GROUP, "orders", {0: 5, 1: 7})
    store.close(clean=False)


def _go_on(store, clock):
    store.topics.create(RECREATED, read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(15, 60), 0), topic=RECREATED)
    store.append(Message(topic="orders", body=b"packed " * 800, keys=["packed"], queue_id=0))
    delayed, half = {"DELAY": "1", "REAL_TOPIC": "orders"}, {"TRAN_MSG": "true", "PGROUP": "p"}
    append_as_broker(store, "SCHEDULE_TOPIC_XXXX", delayed, clock() + 1000, born=NOW)
    append_as_broker(store, "RMQ_SYS_TRANS_HALF_TOPIC", half, 0, born=NOW)
    for number in range(36, 60):
        clock.advance(1000)
        store.append(_order(number))
    _send_timers(store, clock)
    store.topics.create(SUNK, read_queues=1, write_queues=1)
    publish(store, 1, PUBLISHED, topic=SUNK)
    stage(store, sink_batch(2), [b"not published"], topic=SUNK)
    store.groups.commit("others", "wide", {0: 3})
    store.groups.commit(GROUP, "orders", {0: 9})


def _send_timers(store, clock):
    """Add three timers for each hour, and deliver the first. The file in `timerlog` is small,
    because RocketMQ's have 100 MiB.
    """
    (store.path / "timerlog").mkdir()
    (store.path / "timerlog" / ("0" * 20)).write_bytes(bytes(4096))
    store.topics.create(LATER, read_queues=1, write_queues=1)
    for number, body in enumerate(WAITING):
        due = clock() + 1000 + number * HOUR_MS // 3
        store.append(Message(topic=LATER, body=body, deliver_at_ms=due, queue_id=0))
        while store.deliver_due():
            pass
    clock.advance(1000)
    while store.deliver_due():
        pass


def _order(number):
    return Message(
        topic="orders",
        body=b"order %d " % number * (1 + number % 20),
        tags=("blue", "grün", None)[number % 3],
        keys=[f"key{number}", f"tens{number // 10}"],
        properties={"größe": "übergroß", "n": str(number)} if number % 2 else {},
        flag=number,
        queue_id=number % 2,
    )


def _keys(name, rows):
    return pa.array([[f"{name}{row}"] for row in range(rows)], pa.list_(pa.string()))


def damage(root: Path, rng: random.Random) -> tuple[str, str]:
    """Damage one file of the store once; return the file's kind and a description."""
    kind = rng.choice(_DRAWN)
    if kind == "abort":
        (root / "abort").touch()
    path = rng.choice(sorted(root.glob(KINDS[kind])))
    action = rng.choice(
        [_flip, _flip, _flip, _overwrite, _overwrite, _cut, _extend, _swap, _remove]
    )
    what = action(path, rng)
    return kind, f"{path.relative_to(root)}: {what}"


def _place(data, rng):
    """Return a random byte position, with probability 1/2 that of a byte that is not zero."""
    used = [at for at, byte in enumerate(data) if byte] if rng.random() < 0.5 else []
    return rng.choice(used) if used else rng.randrange(max(len(data), 1))


def _flip(path, rng):
    data = bytearray(path.read_bytes()) or bytearray(1)
    at, bit = _place(data, rng), rng.randrange(8)
    data[at] ^= 1 << bit
    _rewrite(path, data)
    return f"bit {bit} of byte {at} flipped"


def _overwrite(path, rng):
    data = bytearray(path.read_bytes())
    at, length = _place(data, rng), rng.randint(1, 64)
    fill = rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)])
    data[at : at + length] = fill[: max(len(data) - at, 1)]
    _rewrite(path, data)
    return f"{length} bytes at {at} overwritten with {fill.hex()}"


def _cut(path, rng):
    length = _place(path.read_bytes(), rng)
    os.truncate(path, length)
    return f"cut to {length} bytes"


def _extend(path, rng):
    more = rng.choice([b"\0", bytes(4096), b"}", rng.randbytes(rng.randint(1, 200))])
    _rewrite(path, path.read_bytes() + more)
    return f"extended by {len(more)} bytes"


def _swap(path, rng):
    data = path.read_bytes()
    length = rng.choice([1, 8, 20, 64, 512])
    low, high = sorted((_place(data, rng), _place(data, rng)))
    middle = min(low + length, high)
    parts = data[high : high + length], data[middle:high], data[low:middle], data[high + length :]
    _rewrite(path, data[:low] + b"".join(parts))
    return f"{length} bytes at {low} and {high} swapped"


def _remove(path, rng):
    path.unlink()
    return "removed"


def _rewrite(path, data):
    """Change the content of the existing file, so that its inode, by which copies are detected,
    does not change.
    """
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
