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
    pyrocket/cursors.json                         the services' cursors
    pyrocket/ends.json                            ends of the queues at the last checkpoint
    pyrocket/retention.json                       retention of messages
    pyrocket/group_starts.json                    where groups start in topics
    pyrocket/broker.json                          the process that serves the store, while it runs
    pyrocket/reserve                              space that a broker keeps for a full disk
    pyrocket/pop.json                             messages that groups have received and acked
    pyrocket/members/                             locks of consumers without a broker
    pyrocket/locks.json                           queues that orderly consumers have locked
    pyrocket/sink.json                            batches published by sinks
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


@dataclass(frozen=True)
class Layout:
    """The paths of the store at `root`."""

    root: Path

    def __post_init__(self) -> None:
        """Forbid following links below the root."""
        protect(self.root)

    @cached_property
    def abort(self) -> Path:
        """Exists while the store may not have been shut down cleanly."""
        return self.root / "abort"

    @cached_property
    def checkpoint(self) -> Path:
        """RocketMQ's checkpoint: the store times up to which files were durable."""
        return self.root / "checkpoint"

    @cached_property
    def lock(self) -> Path:
        """Locked by each process that has the store open for writing."""
        return self.root / "lock"

    @cached_property
    def commit_log(self) -> Path:
        """Folder of the log."""
        return self.root / "commitlog"

    @cached_property
    def consume_queues(self) -> Path:
        """Folder of the queues."""
        return self.root / "consumequeue"

    def topic_queues(self, topic: str) -> Path:
        """Folder of a topic's queues."""
        return self.consume_queues / topic

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        """Folder of one queue."""
        return self.topic_queues(topic) / str(queue_id)

    @cached_property
    def index(self) -> Path:
        """Folder of the key index."""
        return self.root / "index"

    def config(self, name: str) -> Path:
        """One of RocketMQ's JSON files, such as `topics`."""
        return self.root / "config" / f"{name}.json"

    def config_backup(self, name: str) -> Path:
        """The previous version of one of RocketMQ's JSON files."""
        return self.root / "config" / f"{name}.json.bak"

    @cached_property
    def own_checkpoint(self) -> Path:
        """Our copy of the checkpoint. A RocketMQ broker that our lock rejects rewrites its own."""
        return self.own / "checkpoint"

    @cached_property
    def own(self) -> Path:
        """Folder of the files that are not RocketMQ's."""
        return self.root / "pyrocket"

    @cached_property
    def identity(self) -> Path:
        """The store's uuid, broker name and file sizes."""
        return self.own / "store.json"

    @cached_property
    def topic_ids(self) -> Path:
        """Ids of topics, and queue ends of deleted topics."""
        return self.own / "topics.json"

    @cached_property
    def epochs(self) -> Path:
        """The log offsets at which recoveries have truncated the log."""
        return self.own / "epochs.json"

    @cached_property
    def cursors(self) -> Path:
        """The services' cursors as of the last checkpoint."""
        return self.own / "cursors.json"

    @cached_property
    def retention(self) -> Path:
        """The retention of messages."""
        return self.own / "retention.json"

    @cached_property
    def group_starts(self) -> Path:
        """Where groups start in queues for which they have committed no offset."""
        return self.own / "group_starts.json"

    @cached_property
    def broker(self) -> Path:
        """The broker that serves the store, while it runs."""
        return self.own / "broker.json"

    @cached_property
    def reserve(self) -> Path:
        """The space that a broker keeps for a full disk."""
        return self.own / "reserve"

    @cached_property
    def sink_ledger(self) -> Path:
        """The last batch that each query has published completely."""
        return self.own / "sink.json"

    @cached_property
    def pop(self) -> Path:
        """The messages that consumer groups have received and acked."""
        return self.own / "pop.json"

    @cached_property
    def members(self) -> Path:
        """Folder of the locks of processes that consume for a group without a broker."""
        return self.own / "members"

    @cached_property
    def queue_locks(self) -> Path:
        """The owners of the queues that orderly consumers have locked."""
        return self.own / "locks.json"

    @cached_property
    def sink_markers(self) -> Path:
        """Folder of records of batches without rows."""
        return self.own / "sink"

    @cached_property
    def unclean_end(self) -> Path:
        """When the machine last stopped while the store was in use."""
        return self.sink_markers / "unclean.json"

    @cached_property
    def staging(self) -> Path:
        """Folder of staged rows: encoded by tasks, not published yet."""
        return self.own / "staging"

    @cached_property
    def timer_check(self) -> Path:
        """A RocketMQ 5 broker's progress with its timers."""
        return self.root / "config" / "timercheck"

    @cached_property
    def timer_log(self) -> Path:
        """Folder of the log from which a RocketMQ 5 broker rebuilds its timer wheel."""
        return self.root / "timerlog"

    @cached_property
    def timer_wheel(self) -> Path:
        """A RocketMQ 5 broker's timer wheel."""
        return self.root / "timerwheel"

    @cached_property
    def handed(self) -> Path:
        """The timers that were handed over to a RocketMQ 5 broker."""
        return self.own / "handed.json"

    @cached_property
    def timers(self) -> Path:
        """Folder of the timer index: one file per hour of due times."""
        return self.own / "timers"

    @cached_property
    def queue_ends(self) -> Path:
        """The ends of the queues at the last checkpoint or clean shutdown."""
        return self.own / "ends.json"

    @cached_property
    def state(self) -> Path:
        """The shared state."""
        return self.own / "state"

    @cached_property
    def pending_keys(self) -> Path:
        """Keys of messages that are not in the key index yet."""
        return self.own / "keys"

    @cached_property
    def mutex(self) -> Path:
        """Locked during an append."""
        return self.own / "mutex"

    @cached_property
    def turnstile(self) -> Path:
        """Locked by the next process to lock the mutex."""
        return self.own / "turnstile"

    @cached_property
    def flush_lock(self) -> Path:
        """Locked during an fsync of the log."""
        return self.own / "flush"

    @cached_property
    def clock(self) -> Path:
        """A clock for tests, which replaces the wall clock."""
        return self.own / "clock"

    @cached_property
    def scratch(self) -> Path:
        """Folder of incomplete files, on the same file system as their final paths."""
        return self.own / "tmp"

    @property
    def looks_like_a_store(self) -> bool:
        """Whether RocketMQ or pyrocket has created this directory completely."""
        if self.identity.exists():
            return True
        incomplete = self.own.is_dir() and not any(self.commit_log.glob("*"))
        return self.commit_log.is_dir() and not incomplete
