"""The state of a running broker: the offsets of its log, and RocketMQ's running flags.

Source: `RunningFlags`. An append writes to the log and the queues; after an error in either, all
writes are rejected.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pyrocket.config import Retention
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, FAILED, FLUSHED, PUBLISHED, SharedState

_READ, _WRITE = 4, 2
"""RocketMQ's PermName."""


@dataclass(frozen=True)
class RunningState:
    """The offsets of the log, and the reasons why the broker rejects appends.

    Attributes:
        write_error: A write or fsync has failed; the store can only be read.
        disk_full: The file system is fuller than RocketMQ's limit for appends.
    """

    published: int
    flushed: int
    dispatched: int
    write_error: bool
    disk_full: bool

    @property
    def is_writable(self) -> bool:
        """Whether appends are accepted."""
        return not (self.write_error or self.disk_full)

    @property
    def permission(self) -> int:
        """RocketMQ's permission of the broker: 6 to read and write, 4 to read."""
        return _READ | (_WRITE if self.is_writable else 0)

    @property
    def trouble(self) -> str:
        """The reasons why appends are rejected; empty if they are accepted."""
        reasons = {"a write or fsync failed": self.write_error, "the disk is full": self.disk_full}
        return ", ".join(text for text, holds in reasons.items() if holds)


def running_state(path: Path, retention: Retention | None = None) -> RunningState:
    """Return the state of the store in a directory. Raises FileNotFoundError."""
    page = SharedState(Layout(path).state, writable=False)
    try:
        published, flushed, dispatched = page[PUBLISHED], page[FLUSHED], page[DISPATCHED]
        failed = bool(page[FAILED])
    finally:
        page.close()
    full = _used(path) > (retention or Retention()).full_ratio
    return RunningState(published, flushed, dispatched, failed, full)


def _used(path: Path) -> float:
    blocks = os.statvfs(path)
    taken = blocks.f_blocks - blocks.f_bfree
    return taken / ((taken + blocks.f_bavail) or 1)
