"""Being a writer: presence, true words, recovery where they are not, and a clean end.

Every writer holds a shared lock on RocketMQ's `lock` file for as long as it has the store open, so
that a Java broker, which wants it alone, is refused. Whoever finds itself alone may recover at the
start and shut down cleanly at the end.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk import io
from pyrocket.disk.durable import clear_folder, read_or_none, replace_file
from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, Turns, lock_identity
from pyrocket.disk.machine import refuse_network_file_system
from pyrocket.disk.state_page import FAILED, HOLDER, PUBLISHED, STORE_TIME, STRUCTURE, StatePage
from pyrocket.errors import StoreFailedError, StoreLockedError, StoreUnavailableError
from pyrocket.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.index.appender import Appended, Appender
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.index.queues import Queues
from pyrocket.index.rebuild import recover, sync_queues
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.flusher import Flusher
from pyrocket.services.epochs import Epochs
from pyrocket.services.identity import load_identity, make_identity
from pyrocket.services.topics import Topics


class Writer:
    """The writing half of an open store. Safe to share between threads, not across a fork."""

    def __init__(self, layout: Layout, config: StoreConfig, clock: Clock) -> None:
        self._layout, self._clock = layout, clock
        self._timeout_ms = config.lock_timeout_ms
        self._appended = False
        self._process = os.getpid()
        _make_folders(layout)
        self._turns = Turns(layout.mutex, layout.turnstile, lambda: _holder(layout))
        try:
            # All of it in one turn: two processes that make a store at once must make one.
            with self._turns.turn(self._timeout_ms):
                self._come_in()
                known = load_identity(layout, config)
                self.identity = known if known.store_id else make_identity(layout, config, clock())
                topics = Topics(layout, clock)
                self._wire(topics)
                true = self.page.is_true(self.identity.key, self._lock_identity())
                if not true or self.page[FAILED]:
                    self._recover(topics)
                self._structure = self.page[STRUCTURE]
        except BaseException:
            self._let_go()
            raise

    def _wire(self, topics: Topics) -> None:
        config, layout = self.identity.config, self._layout
        run = FileRun(layout.commit_log, config.log_file_bytes, layout.scratch)
        self._log = CommitLog(run)
        self._queues = Queues(layout, config.queue_file_bytes, writable=True)
        self._dispatcher = Dispatcher(self._queues, topics.ended_at)
        self._appender = Appender(self._log, self._dispatcher, self.page, self._clock)
        self._flusher = Flusher(self._log, self.page, layout.flush_lock, self._timeout_ms)

    def _come_in(self) -> None:
        StatePage.create(self._layout.state, self._layout.scratch)
        self.page = StatePage(self._layout.state, writable=True)
        self.page[HOLDER] = self._process
        self._presence = FileLock(self._layout.lock, content=b"lock")
        if not self._presence.try_lock(shared=True):
            raise StoreLockedError(
                f"another process, such as a Java broker, holds {self._layout.lock} alone.",
                remedy="Stop it, or open the store read-only: that works at any time.",
            )

    def _lock_identity(self) -> tuple[int, int]:
        return lock_identity(self._layout.lock) or (0, 0)

    def _recover(self, topics: Topics) -> None:
        """Make the words true; only for whoever has the store alone."""
        if not self._presence.try_lock():
            raise StoreLockedError(
                f"{self._layout.root} needs recovery, but other processes have it open.",
                remedy="Close it everywhere first.",
                code="STORE_NEEDS_RECOVERY",
            )
        self.page.distrust()
        clear_folder(self._layout.scratch)
        clean = not self._layout.abort.exists() and not self.page[FAILED]
        checkpoint = decode_checkpoint(read_or_none(self._layout.checkpoint) or b"")
        ends = recover(
            self._log,
            self._queues,
            self._dispatcher,
            self.page,
            checkpoint,
            clean=clean,
            topics=topics.all(),
        )
        if not clean:
            Epochs(self._layout).begin(ends)
        self.page.vouch(self.identity.key, self._lock_identity())
        self._presence.try_lock(shared=True)

    @contextmanager
    def section(self) -> Iterator[None]:
        """Hold the turn: the log and the tables are this process's alone.

        An OSError inside becomes StoreUnavailableError (WRITE_FAILED).
        """
        with self._turns.turn(self._timeout_ms):
            self._check_place()
            self.page[HOLDER] = self._process
            if self.page[STRUCTURE] != self._structure:
                self._structure = self.page[STRUCTURE]
                self._queues.close()
            try:
                self._appender.roll_forward()
                yield
            except OSError as error:
                raise StoreUnavailableError(
                    f"a write to {self._layout.root} failed: {error}. Nothing of it is visible.",
                    remedy="Free space or repair the disk, then try again.",
                    code="WRITE_FAILED",
                ) from error

    def _check_place(self) -> None:
        """Refuse to write into whatever has taken this store's place."""
        if not self.page.is_at(self._layout.state):
            raise StoreFailedError(
                f"{self._layout.root} was removed or replaced while it was open.",
                remedy="Close it and open it again.",
                code="STORE_REPLACED",
            )

    def append(self, batches: Sequence[EncodedBatch]) -> list[Appended]:
        """Append the batches as one; the caller is in a section."""
        if not self._appended:
            self._announce()
        return self._appender.append(batches)

    def _announce(self) -> None:
        """Say that the store is in use before the first byte is written."""
        if not self._layout.abort.exists():
            replace_file(self._layout.abort, b"", self._layout.scratch)
        self._appended = True

    @property
    def log_end(self) -> int:
        """Where the log ends for readers."""
        return self.page[PUBLISHED]

    def structure_changed(self) -> None:
        """Tell every reader that topics or files came or went."""
        self.page[STRUCTURE] = self.page[STRUCTURE] + 1

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return where a queue ends; the caller is in a section."""
        return self._dispatcher.next_offset(topic, queue_id)

    def forget_queues(self) -> None:
        """Drop open files of queues: some are about to be removed."""
        self._queues.close()

    def flush(self) -> None:
        """Return when everything published before the call is durable."""
        self._flusher.flush()

    def close(self, *, clean: bool) -> None:
        """Leave; with `clean`, the last to leave shuts the store down cleanly."""
        is_ours = os.getpid() == self._process and self.page.is_at(self._layout.state)
        try:
            if clean and is_ours and not self.page[FAILED]:
                with self._turns.turn(self._timeout_ms):
                    self.page[HOLDER] = self._process
                    if self._presence.try_lock():
                        self._shut_down()
                    # Before the turn ends: the next to come in must not find us here.
                    self._presence.unlock()
        finally:
            self._let_go()

    def _shut_down(self) -> None:
        """Complete the queues, make all durable, and only then say that the end was clean.

        A Java broker trusts the queues of a store without `abort`.
        """
        if not self._layout.abort.exists():
            return
        self._appender.roll_forward()
        self._flusher.flush()
        self._sync_queues()
        clear_folder(self._layout.scratch)
        stored = self.page[STORE_TIME]
        checkpoint = encode_checkpoint(Checkpoint(stored, stored))
        replace_file(self._layout.checkpoint, checkpoint, self._layout.scratch)
        io.unlink(self._layout.abort)
        io.sync_directory(self._layout.root)

    def _sync_queues(self) -> None:
        try:
            sync_queues(self._queues)
        except io.SyncError as error:
            self.page[FAILED] = 1
            raise StoreFailedError(
                f"fsync of the queues failed: {error}.",
                remedy="Check the disk, close the store everywhere and open it again.",
            ) from error

    def _let_go(self) -> None:
        for part in ("_flusher", "_queues", "_turns", "_presence", "page"):
            held = getattr(self, part, None)
            if held is not None:
                held.close()
        log = getattr(self, "_log", None)
        if log is not None:
            log.run.close()


def _make_folders(layout: Layout) -> None:
    io.make_directory(layout.root)
    refuse_network_file_system(layout.root)
    for folder in (layout.own, layout.scratch, layout.commit_log, layout.consume_queues):
        io.make_directory(folder)


def _holder(layout: Layout) -> int:
    """Return the process that took the last turn; 0 where nobody has."""
    try:
        page = StatePage(layout.state, writable=False)
    except FileNotFoundError:
        return 0
    try:
        return page[HOLDER]
    finally:
        page.close()
