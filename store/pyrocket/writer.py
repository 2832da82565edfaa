"""Being a writer: recovery where the words are not true, sections, flushes and a clean end.

Whoever finds itself alone in the directory may recover at the start and shut down cleanly at the
end; `presence` tells who is there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyrocket.cleaner import Cleaner
from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk import io
from pyrocket.disk.durable import clear_folder, replace_file
from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import Turns
from pyrocket.disk.state_page import (
    CHECKPOINT_TIME,
    FAILED,
    PUBLISHED,
    RESTED,
    STORE_TIME,
    STRUCTURE,
)
from pyrocket.errors import PyrocketError, StoreFailedError, StoreLockedError, StoreUnavailableError
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.index.appender import Appended, Appender
from pyrocket.index.checkpointer import Checkpointer, read_checkpoint
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.index.key_builder import KeyBuilder
from pyrocket.index.queues import Queues
from pyrocket.index.rebuild import recover
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.flush_service import FlushPolicy, FlushService
from pyrocket.log.flusher import Flusher
from pyrocket.presence import Presence, last_holder, make_folders
from pyrocket.services.epochs import Epochs
from pyrocket.services.identity import settle_identity
from pyrocket.services.queue_ends import QueueEnds
from pyrocket.services.retention import CleanReport
from pyrocket.services.topics import Topics

_YEAR_MS = 365 * 24 * 3_600_000


class Writer:
    """The writing half of an open store. Safe to share between threads, not across a fork."""

    def __init__(self, layout: Layout, config: StoreConfig, clock: Clock) -> None:
        self._layout, self._clock = layout, clock
        self._timeout_ms = config.lock_timeout_ms
        self._appended = False
        try:
            make_folders(layout)
            self._turns = Turns(layout.mutex, layout.turnstile, lambda: last_holder(layout))
            # All of it in one turn: two processes that make a store at once must make one.
            with self._turns.turn(self._timeout_ms):
                self._presence = Presence(layout)
                self.page = self._presence.page
                self._presence.sign()
                self.identity = settle_identity(layout, config, clock())
                topics = Topics(layout, clock)
                self._wire(topics)
                if not self._presence.words_are_true(self.identity.key, self._log.ends_at):
                    self._recover(topics)
                else:
                    self._keys.join()
                self._structure = self.page[STRUCTURE]
        except OSError as error:
            self._let_go()
            raise _not_written(layout, error) from error
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
        self._keys = KeyBuilder(layout, self._log, self.page, config, self._clock)
        self._checkpointer = Checkpointer(
            layout,
            self._queues,
            self.page,
            self._clock,
            config.log_file_bytes,
            self._keys.sync_full,
        )
        self._flusher = Flusher(
            self._log, self.page, layout.flush_lock, self._timeout_ms, self._after_sync
        )
        indexes = self._queues, self._keys
        tell, keep, flush = self.structure_changed, config.retention, self._flusher.flush
        self._cleaner = Cleaner(layout, self._log, *indexes, topics, self._clock, keep, tell, flush)
        policy = FlushPolicy.of(config)
        self._flush_service = FlushService(policy, self.page, self._flusher.flush)

    def _recover(self, topics: Topics) -> None:
        """Make the words true; only for whoever has the store alone."""
        if not self._presence.claim():
            raise StoreLockedError(
                f"{self._layout.root} needs recovery, but other processes have it open.",
                remedy="Close it everywhere first.",
                code="STORE_NEEDS_RECOVERY",
            )
        self.page.distrust()
        clear_folder(self._layout.scratch)
        clean = not self._layout.abort.exists() and not self.page[FAILED]
        checkpoint = read_checkpoint(self._layout)
        try:
            ends = recover(
                self._log,
                self._queues,
                self._dispatcher,
                self.page,
                checkpoint,
                clean=clean,
                topics=topics.all(),
                least=QueueEnds(self._layout).read(),
            )
            if not clean:
                Epochs(self._layout).begin(ends)
            self._keys.settle(clean=clean)
        except PyrocketError:
            self.page.give_up()
            raise
        self.page[CHECKPOINT_TIME] = now = self._clock()
        if self.page[STORE_TIME] > now + _YEAR_MS:
            # No checksum covers a record's time, and later ones must not follow a flipped bit.
            self.page[STORE_TIME] = now
        self._presence.vouch(self.identity.key)
        self._presence.share()

    @contextmanager
    def section(self) -> Iterator[None]:
        """Hold the turn: the log and the tables are this process's alone.

        An OSError inside becomes StoreUnavailableError (WRITE_FAILED).
        """
        with self._turn(self._timeout_ms):
            yield
        self._keys.catch_up(lambda: self._turn(self._timeout_ms))
        self._cleaner.run_if_due(lambda: self._turn(0))

    @contextmanager
    def _turn(self, timeout_ms: int) -> Iterator[None]:
        with self._turns.turn(timeout_ms):
            self._check_place()
            self._presence.sign()
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

    def check_fits(self, batches: Sequence[EncodedBatch]) -> None:
        """Raise MessageError (RECORD_TOO_LARGE) if a record has no room in a log file."""
        for batch in batches:
            self._log.check_fits(batch.sizes)

    def append(self, batches: Sequence[EncodedBatch], *, whole: bool = False) -> list[Appended]:
        """Append the batches as one; the caller is in a section. See `Appender.append`."""
        self._cleaner.make_room()
        if not self._appended:
            self._announce()
        start = self.page[PUBLISHED]
        appended = self._appender.append(batches, whole=whole)
        self._keys.note(start, appended)
        return appended

    def _announce(self) -> None:
        """Say that the store is in use before the first byte is written."""
        if not self._layout.abort.exists():
            replace_file(self._layout.abort, b"", self._layout.scratch)
        self.page[RESTED] = 0
        self._appended = True

    def clean(self, *, hours: float | None, total_bytes: int | None) -> CleanReport:
        """Remove by hand what exceeds the limits; see `Cleaner.clean`."""
        return self._cleaner.clean(self.section, hours=hours, total_bytes=total_bytes)

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

    def flush(self, timeout_ms: int | None = None) -> None:
        """Return when everything published before the call is durable; see `Flusher.flush`."""
        self._flusher.flush(timeout_ms)

    def flush_soon(self) -> None:
        """Have everything published before the call flushed in a while, without waiting."""
        self._flush_service.wake()

    def _after_sync(self, end: int, stored: int) -> None:
        with self._failing_for_good():
            self._checkpointer.after_flush(end, stored)

    def close(self, *, clean: bool) -> None:
        """Leave; with `clean`, the last to leave shuts the store down cleanly."""
        try:
            if clean and self._presence.is_here and not self.page[FAILED]:
                with self._turns.turn(self._timeout_ms):
                    self._presence.sign()
                    if self._presence.claim():
                        self._shut_down()
                    # Before the turn ends: the next to come in must not find us here.
                    self._presence.leave()
        except OSError as error:
            raise _not_written(self._layout, error) from error
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
        with self._failing_for_good():
            end, stored = self.page[PUBLISHED], self.page[STORE_TIME]
            self._checkpointer.advance(end, stored, index_timestamp=self._keys.complete())
        ends = {key: self._dispatcher.next_offset(*key) for key in self._queues.on_disk()}
        QueueEnds(self._layout).note(ends)
        clear_folder(self._layout.scratch)
        self.page.rest()
        io.unlink(self._layout.abort)
        io.sync_directory(self._layout.root)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except io.SyncError as error:
            self.page[FAILED] = 1
            raise StoreFailedError(
                f"fsync of the indexes failed: {error}.",
                remedy="Check the disk, close the store everywhere and open it again.",
            ) from error

    def _let_go(self) -> None:
        service = getattr(self, "_flush_service", None)
        if service is not None:
            service.stop()
        for part in ("_flusher", "_queues", "_keys", "_turns", "_presence"):
            held = getattr(self, part, None)
            if held is not None:
                held.close()
        log = getattr(self, "_log", None)
        if log is not None:
            log.run.close()


def _not_written(layout: Layout, error: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{layout.root} could not be written: {error}. Nothing is lost by it.",
        remedy="Free space or repair the disk, then open it again.",
        code="WRITE_FAILED",
    )
