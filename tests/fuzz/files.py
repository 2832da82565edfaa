"""Harnesses of formats that are read from files. Each harness has its own folder, in memory if
possible.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout
from pyrocket.errors import PyrocketError
from pyrocket.formats.index_file import Geometry, key_hash
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import KeyItems
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.offsets import offset_by_time
from pyrocket.index.queues.scanner import Scanner, read_messages
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import run_at, walk
from pyrocket.log.valid_end import record_fault, valid_end, whole_records
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.groups import GroupOffsets, Subscriptions
from pyrocket.metadata.identity import create_identity, load_identity
from pyrocket.metadata.service_cursors import DelayOffsets
from pyrocket.metadata.topics import Topics
from pyrocket.values.admin import TopicConfig
from support.keyed import indexed_end
from support.slices import decoded
from support.stores import SMALL
from support.strategies import raw_record

FOLDER = "PYROCKET_FUZZ_FOLDER"
LOG_BYTES = 4096
ENTRIES = 4
GEOMETRY = Geometry(slots=4, items=16)
MAX_BYTES = 4096
WHOLE_LOG = 2**63 - 1
NOW = 1_700_000_000_000
_NAMES = ("20231114221320000", "20231114221320001")


def now():
    """Return a constant time."""
    return NOW


def memory():
    """Return a folder in memory, or None for the default if there is none."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None


@cache
def _root():
    """Return a folder for this process in the configured folder."""
    return Path(tempfile.mkdtemp(prefix="fuzz", dir=os.environ.get(FOLDER) or memory()))


def clear():
    """Remove the folder of this process."""
    shutil.rmtree(_root(), ignore_errors=True)
    _root.cache_clear()


def new_layout(name):
    """Return the layout of a store with empty folders."""
    root = _root() / name
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("config", "pyrocket/tmp", "commitlog", "index", "consumequeue/t/0"):
        (root / folder).mkdir(parents=True)
    return Layout(root)


def _log(layout):
    return CommitLog(FileQueue(layout.commit_log, LOG_BYTES, layout.scratch, writable=False))


def log(data):
    """Read a log of one file record by record and in columns; the results must agree."""
    layout = new_layout("log")
    content = data[:LOG_BYTES].ljust(LOG_BYTES, b"\0")
    (layout.commit_log / file_name(0)).write_bytes(content)
    known = _log(layout)
    try:
        end, _ = valid_end(known, 0, len)
        first, _ = run_at(known, 0, LOG_BYTES)
        if first is None:
            assert end == 0
            return
        bounds = zip(first.starts.tolist(), first.sizes.tolist(), strict=True)
        faults = [record_fault(memoryview(content)[at : at + size], at) for at, size in bounds]
        good = next((at for at, fault in enumerate(faults) if fault), len(first))
        assert whole_records(first) == good
        assert end >= (int(first.starts[good - 1] + first.sizes[good - 1]) if good else 0)
        for run in walk(known, 0, LOG_BYTES):
            assert len(run)
    finally:
        known.run.close()


@cache
def _sound_log():
    """Return a log with eight messages of one queue, and their positions and sizes."""
    content, places = b"", []
    for number in range(8):
        made = raw_record(
            topic=b"t",
            body=b"body %d" % number,
            queue_offset=number,
            physical_offset=len(content),
            store_timestamp=NOW + number,
        )
        places.append((len(content), len(made)))
        content += made
    return content.ljust(LOG_BYTES, b"\0"), places


def queue(data):
    """Read two files of queue entries over an intact log: only existing messages are returned."""
    layout = new_layout("queue")
    content, places = _sound_log()
    (layout.commit_log / file_name(0)).write_bytes(content)
    for at in (0, 1):
        part = data[at * ENTRIES * 20 :][: ENTRIES * 20].ljust(ENTRIES * 20, b"\0")
        (layout.consume_queue("t", 0) / file_name(at * ENTRIES * 20)).write_bytes(part)
    run = FileQueue(layout.consume_queue("t", 0), ENTRIES * 20, layout.scratch)
    known, log_ = ConsumeQueue("t", 0, run), _log(layout)
    bound = LOG_BYTES if data[-1:] > b"\x80" else WHOLE_LOG
    try:
        with suppress(PyrocketError):
            _read_queue(known, log_, bound, places)
        with suppress(PyrocketError):
            offset_by_time(log_, known, 0, known.max_offset(bound), NOW + 3)
        known.last_entry()
        known.reached(bound)
        end = known.cut(bound)
        assert 0 <= end == known.max_offset(WHOLE_LOG)
    finally:
        run.close()
        log_.run.close()


def _read_queue(known, log_, bound, places):
    maximum = known.max_offset(bound)
    minimum = known.min_offset(0, maximum)
    assert 0 <= minimum <= maximum <= 2 * ENTRIES
    for offset in range(minimum, maximum):
        with suppress(PyrocketError):
            (found,) = read_messages(log_, known, offset, offset + 1)
            assert (found.physical_offset, found.store_size) == places[offset]
            assert found.body == b"body %d" % offset
    names = ["queueOffset", "physicalOffset", "storeSize", "body", "storeTimestamp"]
    slices = Scanner(log_, "b").scan(known, minimum, maximum)
    for part in decoded(slices, names, verify_crc=True):
        part.validate(full=True)
        for offset, place, size, found, _ in zip(*part.to_pydict().values(), strict=True):
            assert (place, size) == places[offset]
            assert found == b"body %d" % offset


def keys(data):
    """Search, check and continue two index files, of which the second is shorter."""
    layout = new_layout("keys")
    for at, name in enumerate(_NAMES):
        part = data[at * GEOMETRY.file_bytes :][: GEOMETRY.file_bytes]
        (layout.index / name).write_bytes(part.ljust(GEOMETRY.file_bytes, b"\0"))
    if data[-1:] == b"\xff":
        (layout.index / _NAMES[1]).write_bytes(data)
    index = KeyIndex(layout, GEOMETRY)
    for ask in (
        lambda: indexed_end(index),
        index.full_until,
        lambda: index.count_durable(NOW),
        lambda: indexed_end(index, 1),
    ):
        with suppress(PyrocketError):
            ask()
    assert len(index.valid_prefix(1 << 40)) <= 2
    for begin, end in ((0, WHOLE_LOG), (NOW, NOW + 5000)):
        with suppress(PyrocketError):
            found = list(_search(index, begin, end))
            assert len(found) <= 2 * GEOMETRY.items
            assert {*found} <= {*_items(index, begin, end)}
    with suppress(PyrocketError):
        _go_on(index, indexed_end(index) + 1)


def _go_on(index, place):
    """Check that appended keys are found, whatever the file contained before."""
    if place >= 1 << 62:
        return
    hashes = np.array([key_hash("t", "key"), 2, 3], np.int32)
    items = KeyItems(hashes, np.arange(place, place + 3), np.full(3, NOW))
    index.append(items, NOW)
    # The search covers all store times, because the start time of a damaged file can be anything.
    assert place in _search(index, -WHOLE_LOG, WHOLE_LOG)


def _search(index, begin, end):
    """Yield the possible positions of messages with the key."""
    for part in index.search(np.array([key_hash("t", "key")]), begin, end):
        yield from part.tolist()


def _items(index, begin, end):
    """Yield log offsets of all items with the key's hash in this period, whether or not the header
    counts them.
    """
    wanted = key_hash("t", "key")
    for known in index.files():
        with index.open(known.name) as file:
            first = file.header().begin_timestamp
            rows = file.items(1, GEOMETRY.items).tolist()
        for number, (hash_, offset, seconds, _) in enumerate(rows, 1):
            stored = first + 1000 * seconds * (number > 1)
            if hash_ == wanted and begin - 2000 < stored <= end + 1000:
                yield offset


def table(data):
    """Read and change one of RocketMQ's JSON files and, after a zero byte, its backup."""
    layout = new_layout("table")
    which = data[0] % 4 if data else 0
    name = ("topics", "consumerOffset", "subscriptionGroup", "delayOffset")[which]
    main, *backup = data[1:].split(b"\0", 1)
    layout.config(name).write_bytes(main)
    if backup:
        layout.config_backup(name).write_bytes(backup[0])
    with suppress(PyrocketError):
        (_topics, _offsets, _groups, _levels)[which](layout)


def _topics(layout):
    known = Topics(layout, now)
    for topic in known.all().values():
        assert not {"/", "\0"} & set(topic.name)
    known.put(TopicConfig("new", 2, 3))
    assert known.get("new").write_queues == 3
    known.remove("new")
    assert "new" not in Topics(layout, now).all()


def _offsets(layout):
    known = GroupOffsets(layout)
    for offsets in known.all().values():
        assert all(isinstance(number, int) for pair in offsets.items() for number in pair)
    known.merge("g", "t", {0: 5}, lambda *_: True)
    assert known.of("g", "t")[0] == 5
    known.drop(group="g")
    assert ("t", "g") not in known.all()


def _groups(layout):
    known = Subscriptions(layout, now)
    known.all()
    known.create("new")
    assert "new" in known.all()
    known.remove("new")
    assert "new" not in known.all()


def _levels(layout):
    known = DelayOffsets(layout)
    known.read()
    known.save({3: 9})
    assert known.read()[3] == 9


def own(data):
    """Read one of pyrocket's JSON files: store.json, topics.json or epochs.json."""
    layout = new_layout("own")
    which = data[0] % 3 if data else 0
    (layout.identity, layout.topic_ids, layout.epochs)[which].write_bytes(data[1:])
    with suppress(PyrocketError):
        (_identity, _topic_ids, _epochs)[which](layout)


def _identity(layout):
    known = load_identity(layout, SMALL)
    assert len(known.key) == 16
    known.config.broker_name.encode()
    settled = create_identity(layout, SMALL, NOW)
    assert settled.config == load_identity(layout, SMALL).config


def _topic_ids(layout):
    known = Topics(layout, now)
    known.all()
    assert known.ended_at("t", 0) is not None
    known.save_ends({"t": {0: 7}})
    assert known.ended_at("t", 0) == 7
    known.put(TopicConfig("new", 1, 1))
    assert known.get("new").topic_id


def _epochs(layout):
    known = Epochs(layout)
    before = known.current
    known.cut_since(0, "t", 0)
    known.begin({("t", 0): 5})
    assert known.current == before + 1
    assert known.cut_since(before, "t", 0) == 5
