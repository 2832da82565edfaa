"""A store with a file of every kind, and operations on stores, for tests of hostile files."""

import gc
import os

from pyrocket import Message, PyrocketError, Store

from support.halves import UNKNOWN, Listener, producer
from support.sinks import numbered as batch_of
from support.sinks import publish, stage
from support.stores import SMALL, FakeClock, batch, bodies, filled, numbered, reboot


def make_full(path):
    """Create a store with a file of every kind; it is recovered once, and not shut down cleanly."""
    clock = FakeClock()
    with filled(path, count=30, clock=clock) as store:
        store.append(Message(topic="t", body=b"key", keys="k"))
    reboot(path)
    (path / "abort").touch()
    with Store.open(path, config=SMALL, clock=clock) as store:
        publish(store, 0, [b"sunk"])
        with_timers(store, clock)
    store = Store.open(path, config=SMALL, clock=clock)
    store.append(Message(topic="t", body=b"later", delay_level=3))
    producer(store, listener=Listener(UNKNOWN)).send(Message(topic="t", body=b"half"))
    store.groups.commit("g", "t", {0: 3})
    store.groups.commit("g", "t", {0: 4})
    publish(store, 1, [b"sunk"])
    stage(store, batch_of(2), [b"staged"])
    store.flush()
    store.close(clean=False)
    (path / "pyrocket/tmp/draft").mkdir()
    (path / "pyrocket/tmp/draft/file").write_text("left over")
    for name in ("timerlog", "config"):
        (path / name).mkdir(exist_ok=True)
    (path / "timerlog" / f"{0:020d}").write_bytes(bytes(4096))
    (path / "timerwheel").write_bytes(bytes(64))
    (path / "config/timercheck").write_bytes(bytes(64))


def with_timers(store, clock):
    """Append two timers, one of which is delivered."""
    for after in (10, 7_200_000):
        store.append(Message(topic="t", body=b"at", deliver_at_ms=clock.now + after))
    clock.now += 10_000
    store.deliver_due()


def names_of(path):
    """Return the paths of all files in a store; of consecutive files, only the first and the
    last.
    """
    names = []
    for entry in sorted(path.rglob("*")):
        among = sorted(each.name for each in entry.parent.iterdir())
        if not entry.name.isdigit() or entry.name in (among[0], among[-1]):
            names.append(str(entry.relative_to(path)))
    return names


def use(path):
    """Open the store for writing and change most files."""
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(60, 100), 0), topic="t")
        store.append(Message(topic="t", body=b"x", keys="k"))
        store.append(Message(topic="t", body=b"at", deliver_at_ms=store.now() + 9_200_000))
        store.groups.commit("g", "t", {0: 5})
        publish(store, 2, [b"sunk"])
        store.deliver_due()
        store.clean(total_bytes=8192)
        store.topics.create("gone", read_queues=1, write_queues=1)
        store.append(Message(topic="gone", body=b"x"))
        store.topics.delete("gone")
        store.flush()


def read(path):
    with Store.open(path, read_only=True) as store:
        bodies(store)
        store.lookup.query("t", "k")
        store.groups.offsets()


def copied(path, target):
    with Store.open(path, read_only=True) as store:
        store.snapshot(target)


def error_of(operation, *arguments):
    """Return the pyrocket error that an operation raises, or None. Other errors fail the test."""
    try:
        operation(*arguments)
    except PyrocketError as error:
        return error
    return None


def descriptors():
    """Return the targets of the open descriptors of this process."""
    gc.collect()
    found = {}
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # The descriptor that listed the directory is closed.
            continue
        found[int(name)] = status.st_dev, status.st_ino
    return found
