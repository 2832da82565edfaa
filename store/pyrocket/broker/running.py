"""The state of a running broker: the offsets of its log, and RocketMQ's running flags.

Source: `RunningFlags`. An append writes to the log and the queues; after an error in either, all
writes are rejected.
"""

from pathlib import Path

from pyrocket.base.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, FAILED, FLUSHED, PUBLISHED, SharedState
from pyrocket.engine.disk_room import DiskRoom
from pyrocket.metadata.broker_file import BrokerFile
from pyrocket.metadata.identity import load_identity
from pyrocket.metadata.retention import RetentionFile
from pyrocket.values.source import RunningState


def running_state(path: Path, is_disk_full: bool | None = None) -> RunningState:
    """Return the state of the store in a directory.

    `is_disk_full` is the answer of the store's writer; without it, another process serves the store
    and the disk is examined by the same rules. Raises FileNotFoundError.
    """
    layout = Layout(path)
    page = SharedState(layout.state, writable=False)
    try:
        published, flushed, dispatched = page[PUBLISHED], page[FLUSHED], page[DISPATCHED]
        failed = bool(page[FAILED])
    finally:
        page.close()
    full = _is_disk_full(layout) if is_disk_full is None else is_disk_full
    return RunningState(published, flushed, dispatched, failed, full)


def _is_disk_full(layout: Layout) -> bool:
    file_bytes = load_identity(layout, StoreConfig()).config.log_file_bytes
    is_served = BrokerFile(layout).read() is not None
    room = DiskRoom(layout, file_bytes, keeps_reserve=is_served)
    return room.is_full(RetentionFile(layout).read())
