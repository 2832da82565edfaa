"""Stores whose messages have keys, their index, and what both have to be."""

from dataclasses import replace

from java_index import JavaIndex
from pyrocket.disk.layout import Layout
from pyrocket.formats.checkpoint import decode_checkpoint
from pyrocket.formats.key_table import Geometry
from pyrocket.index.key_index import KeyIndex
from stores import SMALL, batch, numbered, reboot

OFF = replace(SMALL, key_index=False)


def index_of(path):
    return KeyIndex(Layout(path), Geometry(SMALL.index_slots, SMALL.index_items))


def contents(path):
    index = index_of(path)
    return [index.path(name).read_bytes() for name in index.names()]


def fill(store, count=100, first=0):
    """Messages with a key of their own and one that all have."""
    keys = [[f"k{first + number}", "all"] for number in range(count)]
    store.append_batch(batch(numbered(count, 20, first), 0, keys=keys), topic="t")


def java(store):
    """What Java would have made of the log."""
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
        (found,) = store.query("t", f"k{number}")
        assert found.body == numbered(1, 20, number)[0]
    assert len(store.query("t", "all", max_messages=10**6)) == count


def crash(store, path):
    store.close(clean=False)
    reboot(path)
