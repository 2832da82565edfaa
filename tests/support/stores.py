"""Small stores for tests, and helpers to inspect and change them."""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyrocket import Message, Store, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import PUBLISHED, SharedState
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch

from support.inner import inner

SMALL = StoreConfig(log_file_bytes=4096, queue_file_entries=10, index_slots=20, index_items=80)
"""Files so small that new files are created all the time."""

BY_HAND = replace(SMALL, flush_interval_ms=3_600_000)
"""Nothing is flushed unless a test calls `flush`."""

RECORD_BYTES = 91
"""The size of a record without body, topic and properties."""

_BOOT_WORD = 8


def set_disk_usage(patch, used, total=1000, unit=1 << 30):
    """Fake the size and the free space of all file systems, in multiples of `unit` bytes."""
    free, name_max = total - used, 255
    blocks = os.statvfs_result((unit, unit, total, free, free, 0, 0, 0, 0, name_max))
    patch.setattr(os, "statvfs", lambda folder: blocks)


def before_publishing(patch, call):
    """Call `call(value)` each time before `published` is set to the value."""
    set_word = SharedState.__setitem__

    def observed(page, word, value):
        if word == PUBLISHED:
            call(value)
        set_word(page, word, value)

    patch.setattr(SharedState, "__setitem__", observed)


class FakeClock:
    """A clock that advances only when a test moves it."""

    def __init__(self, now=1_700_000_000_000):
        self.now = now

    def __call__(self):
        return self.now


def message(body=b"x", topic="t", queue_id=0, **more):
    return Message(topic=topic, body=body, queue_id=queue_id, **more)


def batch(bodies, queue_id=None, **columns):
    """Return a batch of bodies; `queue_id` is one id for all rows, or a list with one id per
    row.
    """
    if queue_id is not None:
        ids = queue_id if isinstance(queue_id, list) else [queue_id] * len(bodies)
        columns["queueId"] = pa.array(ids, pa.int32())
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), **columns})


def scan(store, topic, queue_id, start=None, columns=("queueOffset", "body")):
    """Return all rows of a queue as (offset, body), with verified checksums."""
    known = store.offsets(topic)[queue_id]
    first = known.minimum if start is None else start
    rows = []
    for part in store.scan(topic, queue_id, first, known.maximum, columns, verify_crc=True):
        rows += zip(*(part.column(name).to_pylist() for name in columns), strict=True)
    return rows


def bodies(store, topic="t"):
    """Return the bodies by queue, in order; a gap in the offsets fails the test."""
    found = {}
    for queue_id, known in store.offsets(topic).items():
        rows = scan(store, topic, queue_id)  # Possibly more: a service may append meanwhile.
        end = max(known.maximum, known.minimum + len(rows))
        assert [offset for offset, _ in rows] == list(range(known.minimum, end))
        found[queue_id] = [body for _, body in rows]
    return found


def words(path):
    """Return the shared state, mapped for writing."""
    return SharedState(Layout(path).state, writable=True)


def reboot(path):
    """Simulate a reboot without a clean shutdown, which invalidates the shared state."""
    page = words(path)
    page[_BOOT_WORD] = page[_BOOT_WORD] ^ 1
    page.mark_dirty()
    page.close()


def next_boot(path):
    """Simulate a reboot after a clean shutdown: the shared state stays valid."""
    page = words(path)
    page[_BOOT_WORD] ^= 1
    page.close()


def snapshot(path):
    """Return the names, contents and times of all files; every write would change the result."""
    return {
        str(entry.relative_to(path)): (
            entry.stat().st_mtime_ns,
            entry.stat().st_ino,
            hashlib.sha1(entry.read_bytes()).hexdigest() if entry.is_file() else "",
        )
        for entry in [path, *path.rglob("*")]
    }


def log_files(path):
    return sorted((path / "commitlog").iterdir())


def queue_files(path, topic="t", queue_id=0):
    return sorted((path / "consumequeue" / topic / str(queue_id)).iterdir())


def overwrite(path, data, at):
    """Overwrite bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def filled(path, count=40, body_bytes=100, config=SMALL, **options):
    """Return an open store with messages 0 … count-1 in queue 0 of topic t."""
    store = Store.open(path, create=True, config=config, **options)
    store.topics.create("t", read_queues=1, write_queues=1, exist_ok=True)
    store.append_batch(batch(numbered(count, body_bytes), 0), topic="t")
    return store


def numbered(count, body_bytes=100, first=0):
    """Return bodies that begin with their number."""
    return [b"%06d" % (first + n) + b"." * (body_bytes - 6) for n in range(count)]


def append_as_broker(store, topic, properties, tags_code, *, body=b"parked", born=0):
    """Append to queue 0 of a system topic, as only a broker does."""
    record = encode_record(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=encode_properties(properties),
        born_timestamp=born,
        store_timestamp=0,
    )
    encoded = EncodedBatch(
        topic=topic,
        data=pa.py_buffer(bytearray(record)),
        bounds=np.array([0, len(record)]),
        queue_ids=np.zeros(1, np.int32),
        tags_codes=np.array([tags_code], np.int64),
    )
    writer = inner(store).writer
    with writer.exclusive():
        writer.append([encoded])
