"""Replicas without a network: the log and the small files of a primary, passed on by hand."""

from pyrocket import Store
from pyrocket.base.clock import system_clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.engine.parts.follower import Follower, SmallFiles, make_replica, small_paths
from pyrocket.metadata.role import Role
from pyrocket.services.services import recovery_hooks

from support.stores import log_files, words

MIDDLE = StoreConfig(log_file_bytes=1 << 16, queue_file_entries=100)


def replica_of(primary, path):
    """Make an empty replica of the store at a path, and return its follower."""
    layout = Layout(path)
    if not layout.role.exists():
        make_replica(layout, Role("primary:1"), Layout(primary).identity.read_bytes())
    return opened(path)


def opened(path):
    layout = Layout(path)
    hooks = recovery_hooks(layout, system_clock)
    return Follower(layout, StoreConfig(exclusive=True), system_clock, hooks)


def published(path):
    """Return the end of the log of a store."""
    page = words(path)
    try:
        return page[PUBLISHED]
    finally:
        page.close()


def log_bytes(path, start=0, end=None):
    """Return the bytes [start, end) of the log, by default all that are published."""
    end = published(path) if end is None else end
    files = {int(file.name): file for file in log_files(path)}
    first = min(files, default=start)
    whole = b"".join(file.read_bytes() for _, file in sorted(files.items()))
    return whole[max(start, first) - first : max(end - first, 0)]


def first_offset(path):
    return min((int(file.name) for file in log_files(path)), default=0)


def pass_on(primary, follower, step=1 << 20, until=None):
    """Send the log of a primary from the follower's end on, `step` bytes at a time."""
    start = first_offset(primary) if follower.is_empty else follower.end
    data = log_bytes(primary, start, until)
    for at in range(0, len(data), step):
        follower.receive(start + at, data[at : at + step])


def read_small(path):
    return {name: file.read_bytes() for name, file in small_paths(Layout(path)).items()}


def pass_files(primary, follower, cursors=None):
    """Send all small files."""
    page = words(primary)
    follower.put(SmallFiles(read_small(primary), (), cursors or page.cursors(), is_all=True))
    page.close()


def assert_alike(primary, replica):
    """The logs are equal, byte for byte, and so are the messages of all topics."""
    assert log_bytes(replica) == log_bytes(primary)
    with Store.open(primary, read_only=True) as ours, Store.open(replica, read_only=True) as copy:
        assert copy.topics.all() == ours.topics.all()
        assert queues(copy) == queues(ours)


def queues(store):
    """Return offset, place and tags code of every entry, by queue."""
    found = {}
    table = store._engine.reader.files.queues
    for key in table.on_disk():
        queue = table.get(*key)
        end = queue.max_offset(1 << 62)
        first = queue.min_offset(store._engine.reader.log.first_offset(), end)
        found[key] = first, queue.entries(first, end).tolist()
    return {key: entries for key, entries in found.items() if entries[1]}
