"""The names of all files and folders of a store.

    abort  checkpoint  lock                       RocketMQ's
    commitlog/<20 digits>                         start offset of the file
    consumequeue/<topic>/<queue>/<20 digits>      start offset in bytes
    index/<17 digits>                             local time of the file's creation
    config/*.json, *.json.bak                     RocketMQ's
    pyrocket/store.json                           identity and sizes
    pyrocket/topics.json                          topic ids, and queue ends of deleted topics
    pyrocket/epochs.json                          offsets at which recoveries truncated the log
    pyrocket/checkpoint                           our copy of the checkpoint
    pyrocket/cursors.json                         the services' cursors at the last checkpoint
    pyrocket/ends.json                            ends of the queues at the last checkpoint
    pyrocket/retention.json                       retention of messages
    pyrocket/group_starts.json                    where groups start in topics
    pyrocket/role.json                            the primary of a replica
    pyrocket/broker.json                          the process that serves the store, while it runs
    pyrocket/reserve                              space that a broker keeps for a full disk
    pyrocket/pop.json                             messages that groups have received and acked
    pyrocket/members/                             locks of consumers without a broker
    pyrocket/locks.json                           queues that orderly consumers have locked
    pyrocket/sink.json                            the last batch that each query has published
    pyrocket/sink/<32 hex digits>                 batches of a query without rows
    pyrocket/sink/unclean.json                    when the machine last stopped during use
    config/timercheck  timerlog/  timerwheel      RocketMQ 5's, for timers
    pyrocket/handed.json                          timers handed over to a RocketMQ 5 broker
    pyrocket/timers/<20 digits>                   timers, by the hour of their due time
    pyrocket/staging/<32 hex digits>/             rows of a query that are not published yet
    pyrocket/state                                the shared state
    pyrocket/keys                                 keys that are not in the key index yet
    pyrocket/mutex  turnstile  flush              locks, each with an event for waiting processes
    pyrocket/clock                                a clock, 8 bytes; only in tests
    pyrocket/tmp/                                 incomplete files

RocketMQ ignores `pyrocket/`, and rejects log and queue folders that contain other names.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyrocket.disk.tree import protect


def listed(folder: Path) -> list[Path]:
    """Return the entries of a folder; an empty list if the folder is missing."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _path(*names: str) -> cached_property[Path]:
    return cached_property(lambda layout: layout.root.joinpath(*names))


def _own(*names: str) -> cached_property[Path]:
    return _path("pyrocket", *names)


@dataclass(frozen=True)
class Layout:
    """The paths of the store at `root`; the table above explains them."""

    root: Path

    abort = _path("abort")
    """Exists while the store may not have been shut down cleanly."""

    checkpoint = _path("checkpoint")
    """The store times up to which files were durable."""

    lock = _path("lock")
    """Locked by each process that has the store open for writing."""

    commit_log = _path("commitlog")
    consume_queues = _path("consumequeue")
    index = _path("index")
    timer_check = _path("config", "timercheck")
    timer_log = _path("timerlog")
    timer_wheel = _path("timerwheel")

    own = _own()
    own_checkpoint = _own("checkpoint")
    """A copy: a RocketMQ broker that our lock rejects rewrites its own checkpoint."""

    identity = _own("store.json")
    topic_ids = _own("topics.json")
    epochs = _own("epochs.json")
    cursors = _own("cursors.json")
    queue_ends = _own("ends.json")
    retention = _own("retention.json")
    group_starts = _own("group_starts.json")
    role = _own("role.json")
    broker = _own("broker.json")
    reserve = _own("reserve")
    pop = _own("pop.json")
    members = _own("members")
    queue_locks = _own("locks.json")
    sink_ledger = _own("sink.json")
    sink_markers = _own("sink")
    unclean_end = _own("sink", "unclean.json")
    staging = _own("staging")
    handed = _own("handed.json")
    timers = _own("timers")
    state = _own("state")
    pending_keys = _own("keys")

    mutex = _own("mutex")
    """Locked during an append."""

    turnstile = _own("turnstile")
    """Locked by the next process to lock the mutex."""

    flush_lock = _own("flush")
    """Locked during an fsync of the log."""

    clock = _own("clock")
    scratch = _own("tmp")
    """On the same file system as the final paths."""

    def __post_init__(self) -> None:
        """Forbid following links below the root."""
        protect(self.root)

    def topic_queues(self, topic: str) -> Path:
        """Folder of a topic's queues."""
        return self.consume_queues / topic

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        """Folder of one queue."""
        return self.topic_queues(topic) / str(queue_id)

    def config(self, name: str) -> Path:
        """One of RocketMQ's JSON files, such as `topics`."""
        return self.root / "config" / f"{name}.json"

    def config_backup(self, name: str) -> Path:
        """The previous version of one of RocketMQ's JSON files."""
        return self.root / "config" / f"{name}.json.bak"

    @property
    def tables(self) -> tuple[Path, ...]:
        """Our files with the state of topics, groups and services, except cursors."""
        own = self.topic_ids, self.epochs, self.sink_ledger, self.pop, self.retention
        return *own, self.group_starts

    @property
    def small_files(self) -> tuple[Path, ...]:
        """`tables`, whether they exist or not, the sink's markers, and RocketMQ's JSON files."""
        config = [path for path in listed(self.root / "config") if ".json" in path.name]
        return *self.tables, *sorted(listed(self.sink_markers)), *sorted(config)

    @property
    def looks_like_a_store(self) -> bool:
        """Whether RocketMQ or pyrocket has created this directory completely."""
        if self.identity.exists():
            return True
        incomplete = self.own.is_dir() and not any(self.commit_log.glob("*"))
        return self.commit_log.is_dir() and not incomplete
