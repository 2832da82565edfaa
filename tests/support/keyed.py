"""Stores whose messages have keys, and their expected key index."""

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
from golden.values import LOOPBACK_V6
from pyrocket.disk.layout import Layout
from pyrocket.formats.checkpoint import decode_checkpoint
from pyrocket.formats.index_file import HEADER_BYTES, Geometry, IndexHeader, name_after, table_name
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import STORE_HOST, encode_record
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.index.keys.index_builder import IndexLimits
from pyrocket.index.keys.index_file import IndexFile
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import key_items
from pyrocket.log.record_walk import walk

from support.inner import inner
from support.java_index import JavaIndex
from support.stores import BY_HAND, SMALL, batch, numbered, reboot

OFF = replace(BY_HAND, key_index=False)
GEOMETRY = Geometry(SMALL.index_slots, SMALL.index_items)


def index_of(path):
    return KeyIndex(Layout(path), GEOMETRY)


def indexed_end(index, trusted=None):
    """Return the log offset of the last record with items in the first files; 0 without files."""
    names = index.names()[:trusted]
    return index.header(names[-1]).end_offset if names else 0


def limit_index(store, **limits):
    """Change the index limits of a store that is open for writing."""
    if not store.read_only:
        inner(store).keys.limits = IndexLimits(**limits)


def index_at_once(store):
    """Make an open store index all keys with each append, in slices of one run."""
    limit_index(store, catch_up_bytes=1, slice_bytes=1)


def contents(path):
    index = index_of(path)
    return [index.path(name).read_bytes() for name in index.names()]


def fill(store, count=100, first=0):
    """Append messages that each have a unique key and a shared key."""
    keys = [[f"k{first + number}", "all"] for number in range(count)]
    store.append_batch(batch(numbered(count, 20, first), 0, keys=keys), topic="t")


def keyless(store, count, body_bytes=50):
    """Append records without keys, as only other producers write them."""
    append_records(store, [{"body": body} for body in numbered(count, body_bytes)])


def from_ipv6(store, count, first=0):
    """Append messages with one key each; every second message comes from a host with an IPv6
    address.
    """
    hosts = STORE_HOST, (LOOPBACK_V6, 1)
    append_records(
        store,
        [
            {
                "body": b"%d" % number,
                "properties": encode_properties({"KEYS": f"k{number}"}),
                "born_host": hosts[number % 2],
            }
            for number in range(first, first + count)
        ],
    )


def append_records(store, fields):
    """Append records to queue 0 of topic t."""
    base = {"topic": "t", "queue_id": 0, "queue_offset": 0, "physical_offset": 0}
    base |= {"properties": b"", "born_timestamp": 1, "store_timestamp": 0}
    records = [encode_record(**base | of_one) for of_one in fields]
    bounds = np.cumsum([0, *map(len, records)])
    data = pa.py_buffer(bytearray(b"".join(records)))
    queues, tags = np.zeros(len(records), np.int32), np.zeros(len(records), np.int64)
    writer = inner(store).writer
    with writer.exclusive():
        writer.append([EncodedBatch("t", data, bounds, queues, tags, born_v6=True)])


def java(store):
    """Return the index that RocketMQ would build from the log."""
    index = JavaIndex(SMALL.index_slots, SMALL.index_items)
    queued = store.read("t", 0, 0, 10**6)
    for one in sorted(queued, key=lambda stored: stored.physical_offset):
        keys = one.properties.get("KEYS", "").split(" ")
        index.build(
            "t", one.physical_offset, one.store_timestamp, [one.msg_id, *filter(None, keys)]
        )
    return index.contents()


def checkpointed(path):
    return decode_checkpoint((path / "checkpoint").read_bytes()).index_timestamp


def check_queries(store, count):
    for number in {0, 1, count // 2, count - 1}:
        (found,) = store.lookup.query("t", f"k{number}")
        assert found.body == numbered(1, 20, number)[0]
    assert len(store.lookup.query("t", "all", max_messages=10**6)) == count


def crash(store, path):
    store.close(clean=False)
    reboot(path)


class OpenedKeyFile(IndexFile):
    """An index file accessed by its open descriptor, independent of its name."""

    def __init__(self, descriptor):
        self.path, self.geometry = f"descriptor {descriptor}", GEOMETRY
        self._descriptor, self.inode = os.dup(descriptor), os.fstat(descriptor).st_ino


class Refused:
    """Does what a RocketMQ broker does to the index of a locked store before it fails to get the
    lock. It deletes files that are not full, and the last `more` of the full files. Then it indexes
    the log, starting at `start`, step by step into its own files, and keeps them open.
    """

    def __init__(self, path, log, start, more=0):
        index = index_of(path)
        full = [name for name in index.names() if index.is_full(index.header(name))]
        kept = full[: len(full) - more]
        for name in index.names():
            if name not in kept:
                index.path(name).unlink()
        self._path, self._log, self._last_name = path, log, ""
        self._place = max(start, index.header(kept[-1]).end_offset if kept else 0)
        self.made = []

    def index_until(self, until):
        """Index the log before `until` into its own files."""
        for run in walk(self._log, self._place, until):
            self._put(key_items(run))
        self._place = until

    def _put(self, items):
        while len(items):
            if not self.made or self._is_full(self.made[-1]):
                self.made.append(self._new())
            with OpenedKeyFile(self.made[-1]) as file:
                done = file.put(items)
            items = items[done:]

    def _new(self):
        index = index_of(self._path)
        # The broker creates its files later than pyrocket created its own.
        name = table_name(1_700_000_000_500)
        while index.path(name).exists() or name <= self._last_name:
            name = name_after(name)
        self._last_name = name
        before = IndexHeader()
        if self.made:
            before = self._header(self.made[-1])
        elif index.names():
            before = index.header(index.names()[-1])
        start = IndexHeader(*(before.end_timestamp,) * 2, *(before.end_offset,) * 2)
        index.path("x").parent.mkdir(exist_ok=True)
        index.path(name).write_bytes(start.encode().ljust(GEOMETRY.file_bytes, b"\0"))
        return os.open(index.path(name), os.O_RDWR)

    def _header(self, descriptor):
        return IndexHeader.decode(os.pread(descriptor, HEADER_BYTES, 0))

    def _is_full(self, descriptor):
        return self._header(descriptor).count >= GEOMETRY.items

    def ends(self):
        for descriptor in self.made:
            os.close(descriptor)
