"""The log and the queues of an open store, shared by all its parts."""

from collections.abc import Callable
from dataclasses import dataclass

from pyrocket.base.config import StoreConfig
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.identity import SealedLog


def _outside() -> int:
    return 0


@dataclass(frozen=True)
class StoreFiles:
    """Shared by the reader, the writer and the services of one open store, and by its threads."""

    log: CommitLog
    queues: QueueTable

    @classmethod
    def to_read(cls, layout: Layout, config: StoreConfig) -> "StoreFiles":
        """Return the files of a store that is open for reading."""
        return cls._of(layout, config, writable=False, section=_outside)

    @classmethod
    def to_write(
        cls, layout: Layout, config: StoreConfig, section: Callable[[], int]
    ) -> "StoreFiles":
        """Return the files for a writer; `section` numbers its exclusive sections, 0 outside."""
        return cls._of(layout, config, writable=True, section=section)

    @classmethod
    def _of(
        cls, layout: Layout, config: StoreConfig, *, writable: bool, section: Callable[[], int]
    ) -> "StoreFiles":
        log_bytes, queue_bytes = config.log_file_bytes, config.queue_file_bytes
        files = FileQueue(
            layout.commit_log, log_bytes, layout.scratch, writable=writable, section=section
        )
        queues = QueueTable(layout, queue_bytes, writable=writable, section=section)
        return cls(CommitLog(files, SealedLog(layout)), queues)

    def close(self) -> None:
        """Close all open files; they are opened again when they are used."""
        self.queues.close()
        self.log.run.close()
