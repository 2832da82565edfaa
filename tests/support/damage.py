"""Kinds of damage to a small store, the codes of their findings, and the results of a repair."""

from dataclasses import dataclass
from random import Random
from typing import Any

from pyrocket import Store, StoreConfig
from pyrocket.errors import StoreDamagedError

from support.stores import batch, log_files, message, numbered, overwrite, queue_files

CONFIG = StoreConfig(log_file_bytes=4096, queue_file_entries=10, index_slots=20, index_items=80)
LAST = 59


def make(path, clock):
    """Create topic t with 60 messages in one queue and four log files, topic u with two queues, and
    a group's offsets.
    """
    store = Store.open(path, create=True, config=CONFIG, clock=clock)
    store.topics.create("t", read_queues=1, write_queues=1)
    store.topics.create("u", read_queues=2, write_queues=2)
    for body in numbered(LAST + 1):
        clock.now += 1000
        store.append(message(body, queue_id=0, tags="a"))
        if int(body[:6]) % 7 == 0:
            store.append_batch(batch([b"u", b"v"], [0, 1]), topic="u")
    store.groups.commit("g", "t", {0: 17})
    store.topics.update("t", perm=6)  # The backup of the topic table contains both topics.
    return store


def entry_at(path, offset, topic="t"):
    """Return the position of a message's queue entry: file and byte."""
    return queue_files(path, topic)[offset // 10], offset % 10 * 20


def record_at(path, offset, topic="t"):
    """Return the position of a record: file, byte in it, size."""
    file, at = entry_at(path, offset, topic)
    entry = file.read_bytes()[at : at + 20]
    start = int.from_bytes(entry[:8], "big")
    return log_files(path)[start // 4096 - 1], start % 4096, int.from_bytes(entry[8:12], "big")


def flip(path, offset, at):
    file, start, size = record_at(path, offset)
    place = start + (at if at >= 0 else size + at)
    overwrite(file, bytes([file.read_bytes()[place] ^ 0x41]), place)


def readable(path):
    """Return offset → body of the readable messages."""
    found = {}
    with Store.open(path, read_only=True) as store:
        known = store.offsets("t")[0]
        at = known.minimum
        while at < known.maximum:
            messages = readable_at(store, at, 10) or readable_at(store, at, 1)
            found.update((one.queue_offset, one.body) for one in messages)
            at += len(messages) or 1
    return found


def readable_at(store, offset, count):
    try:
        return store.read("t", 0, offset, count)
    except StoreDamagedError:
        return []


def index_files(path):
    return sorted((path / "index").iterdir())


def flip_item(path, item, at):
    file, place = index_files(path)[0], 40 + 4 * 20 + 20 * item + at
    overwrite(file, bytes([file.read_bytes()[place] ^ 1]), place)


def clear_slot(path):
    file = index_files(path)[0]
    content = file.read_bytes()
    used = next(at for at in range(40, 40 + 4 * CONFIG.index_slots, 4) if any(content[at : at + 4]))
    overwrite(file, bytes(4), used)


def move_end(path, offset):
    """Change the end offset of the last index file, in its header and its last item."""
    file = index_files(path)[-1]
    count = int.from_bytes(file.read_bytes()[36:40], "big")
    for place in 24, 40 + 4 * 20 + 20 * (count - 1) + 4:
        overwrite(file, offset.to_bytes(8, "big"), place)


@dataclass(frozen=True)
class Damage:
    """A kind of damage, the finding's code, and the result of `repair`.

    mended: `repair` restores everything. cut: The messages of topic t at this offset or later are
    lost. stepped: The message at this offset is lost. If no field is set, `repair` changes nothing.
    """

    name: str
    do: Any
    code: str
    mended: bool = True
    cut: int | None = None
    stepped: int | None = None


def truncate(file, length):
    with file.open("r+b") as opened:
        opened.truncate(length)


def tear(path):
    """Erase the second half of the last record."""
    file, at, size = record_at(path, LAST)
    overwrite(file, bytes(size - 100), at + 100)


def append_garbage(path):
    file, at, size = record_at(path, LAST)
    overwrite(file, b"garbage", at + size + 300)


def stale_checkpoint(path, time):
    overwrite(path / "checkpoint", time.to_bytes(8, "big") * 2, 0)


DAMAGES = [
    Damage("body", lambda p: flip(p, 20, 100), "LOG_DAMAGED", stepped=20),
    Damage("size", lambda p: flip(p, 20, 3), "LOG_DAMAGED", stepped=20),
    Damage("large size", lambda p: flip(p, 20, 1), "LOG_DAMAGED", stepped=20),
    Damage("magic", lambda p: flip(p, 20, 5), "LOG_DAMAGED", stepped=20),
    Damage("physical offset", lambda p: flip(p, 20, 35), "LOG_DAMAGED", stepped=20),
    Damage("body length", lambda p: flip(p, 20, 87), "LOG_DAMAGED", stepped=20),
    Damage("queue offset", lambda p: flip(p, 20, 27), "LOG_QUEUE_OFFSET", stepped=20),
    Damage("topic", lambda p: flip(p, 20, 88 + 100 + 1), "LOG_QUEUE_GAP", stepped=20),
    Damage("last body", lambda p: flip(p, LAST, 100), "LOG_TORN", cut=LAST),
    Damage("last size", lambda p: flip(p, LAST, 3), "LOG_TORN", cut=LAST),
    Damage("last magic", lambda p: flip(p, LAST, 5), "LOG_TORN", cut=LAST),
    Damage("torn", tear, "LOG_TORN", cut=LAST),
    Damage("bytes behind", append_garbage, "LOG_TORN"),
    Damage("log file gone", lambda p: log_files(p)[1].unlink(), "LOG_FILE_MISSING", mended=False),
    Damage("last log file gone", lambda p: log_files(p)[-1].unlink(), "LOG_FILE_MISSING", False),
    Damage("short log file", lambda p: truncate(log_files(p)[1], 2000), "LOG_FILE_LENGTH", False),
    Damage("short last log file", lambda p: truncate(log_files(p)[-1], 10), "LOG_FILE_LENGTH"),
    Damage("long log file", lambda p: truncate(log_files(p)[1], 5000), "LOG_FILE_LENGTH", False),
    Damage(
        "entry elsewhere",
        lambda p: overwrite(entry_at(p, 20)[0], bytes([9]), entry_at(p, 20)[1] + 6),
        "QUEUE_ENTRY_WRONG",
    ),
    Damage(
        "entry of another size",
        lambda p: overwrite(entry_at(p, 20)[0], bytes([9]), entry_at(p, 20)[1] + 11),
        "QUEUE_ENTRY_WRONG",
    ),
    Damage(
        "tags",
        lambda p: overwrite(entry_at(p, 20)[0], bytes([9]), entry_at(p, 20)[1] + 19),
        "QUEUE_TAGS_WRONG",
    ),
    Damage(
        "entry erased",
        lambda p: overwrite(entry_at(p, 25)[0], bytes(20), entry_at(p, 25)[1]),
        "QUEUE_ENTRY_MISSING",
    ),
    Damage(
        "last entry erased",
        lambda p: overwrite(entry_at(p, LAST)[0], bytes(20), entry_at(p, LAST)[1]),
        "QUEUE_ENTRY_MISSING",
    ),
    Damage("queue file gone", lambda p: queue_files(p)[2].unlink(), "QUEUE_FILE_MISSING"),
    Damage("last queue file gone", lambda p: queue_files(p)[-1].unlink(), "QUEUE_ENTRY_MISSING"),
    Damage("short queue file", lambda p: truncate(queue_files(p)[2], 30), "QUEUE_FILE_LENGTH"),
    Damage(
        "entries too many",
        lambda p: overwrite(
            queue_files(p, "u")[0], (4096).to_bytes(8, "big") + bytes([0, 0, 0, 200]), 180
        ),
        "QUEUE_ENTRY_STRAY",
    ),
    Damage(
        "entries ahead",
        lambda p: overwrite(
            queue_files(p, "u")[0], (90_000).to_bytes(8, "big") + bytes([0, 0, 0, 200]), 180
        ),
        "QUEUE_AHEAD",
    ),
    Damage("index file short", lambda p: truncate(index_files(p)[0], 100), "KEY_INDEX_DAMAGED"),
    Damage("index count", lambda p: overwrite(index_files(p)[0], b"\x7f", 36), "KEY_INDEX_DAMAGED"),
    Damage("index item", lambda p: flip_item(p, 5, 10), "KEY_INDEX_WRONG"),
    Damage("index hash", lambda p: flip_item(p, 5, 2), "KEY_INDEX_GAPS"),
    Damage("index chain", lambda p: flip_item(p, 50, 19), "KEY_INDEX_CHAINS"),
    Damage("index slot", clear_slot, "KEY_INDEX_CHAINS"),
    Damage(
        "index end",
        lambda p: overwrite(index_files(p)[-1], (90_000).to_bytes(8, "big"), 24),
        "KEY_INDEX_DAMAGED",
    ),
    Damage("index ahead", lambda p: move_end(p, 90_000), "KEY_INDEX_AHEAD"),
    Damage("foreign in index", lambda p: (p / "index/x").touch(), "FOREIGN_FILE"),
    Damage("foreign in log", lambda p: (p / "commitlog/x.tmp").touch(), "FOREIGN_FILE"),
    Damage("foreign in queue", lambda p: (p / "consumequeue/t/0/x").touch(), "FOREIGN_FILE"),
    Damage("foreign topic", lambda p: (p / "consumequeue/x").touch(), "FOREIGN_FILE"),
    Damage("foreign queue", lambda p: (p / "consumequeue/t/x").mkdir(), "FOREIGN_FILE"),
    Damage(
        "checkpoint ahead", lambda p: stale_checkpoint(p, 9_000_000_000_000), "CHECKPOINT_AHEAD"
    ),
    Damage(
        "state",
        lambda p: overwrite(p / "pyrocket/state", Random(1).randbytes(4096), 0),
        "STATE_DAMAGED",
    ),
    Damage("checkpoint zero", lambda p: stale_checkpoint(p, 0), "CHECKPOINT_BEHIND"),
    Damage("checkpoint gone", lambda p: (p / "checkpoint").unlink(), "CHECKPOINT_MISSING"),
    Damage("checkpoint short", lambda p: truncate(p / "checkpoint", 10), "CHECKPOINT_LENGTH"),
    Damage(
        "topics broken",
        lambda p: (p / "config/topics.json").write_text("{nothing"),
        "CONFIG_FROM_BACKUP",
    ),
    Damage("topics gone", lambda p: (p / "config/topics.json").unlink(), "CONFIG_FROM_BACKUP"),
    Damage(
        "topics and backup broken",
        lambda p: [(p / f"config/topics.json{end}").write_text("{nothing") for end in ("", ".bak")],
        "CONFIG_BROKEN",
        mended=False,
    ),
    Damage(
        "epochs broken",
        lambda p: (p / "pyrocket/epochs.json").write_text("{nothing"),
        "CONFIG_BROKEN",
        mended=False,
    ),
]
