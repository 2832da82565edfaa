"""The writer of a store: recovery on open, exclusive sections, flushes, and clean shutdown.

Only a writer that holds the store exclusively (`WriterSession.claim`) recovers it or shuts it down
cleanly.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pyrocket.base.clock import Clock
from pyrocket.base.config import Retention, StoreConfig
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import WriteLock
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import (
    APPEND_NS,
    CHANGING,
    FAILED,
    PUBLISHED,
    STORE_TIME,
    STRUCTURE,
)
from pyrocket.engine.appender import Appender, Preface, Streamed
from pyrocket.engine.checkpointer import Checkpointer
from pyrocket.engine.cleaner import Cleaner
from pyrocket.engine.disk_room import DiskRoom, WriteFailure, delete_reserve_if_full
from pyrocket.engine.hooks import Hooks, RecoveryHooks
from pyrocket.engine.reader import StoreFiles
from pyrocket.engine.recovery import StoreParts, queues_agree, recover_alone
from pyrocket.engine.writer_session import WriterSession, last_holder, make_folders
from pyrocket.errors import StoreLockedError
from pyrocket.formats.record_batch import Chunk, EncodedBatch
from pyrocket.index.keys.index_builder import IndexBuilder
from pyrocket.index.queues.dispatcher import Dispatcher
from pyrocket.log.commit_log import Placed
from pyrocket.log.flusher import Flusher, FlushPolicy, FlushService, failing_on_sync_error
from pyrocket.metadata.identity import SealedLog, create_identity
from pyrocket.metadata.retention import RetentionFile
from pyrocket.metadata.role import RoleFile
from pyrocket.metadata.service_cursors import save_transaction_cursors
from pyrocket.metadata.topics import Topics


class Writer:
    """The writer of an open store. Safe to share between threads, not across a fork."""

    _follows = False

    def __init__(
        self,
        layout: Layout,
        config: StoreConfig,
        clock: Clock,
        recovery: RecoveryHooks,
        hooks: Callable[[], Hooks] = Hooks,
    ) -> None:
        """Open the directory; `hooks` is called when the services' hooks are first needed."""
        self._layout, self._clock = layout, clock
        if not self._follows and (refusal := RoleFile(layout).refusal()) is not None:
            raise refusal
        self._recovery_hooks, self._hooks = recovery, hooks
        self._timeout_ms, self._appended = config.lock_timeout_ms, False
        self.failure = WriteFailure(layout.scratch, clock)
        try:
            with translating_os_errors(layout.root, "open it again"):
                self._open(config)
        except BaseException:
            self._release()
            raise

    def _open(self, config: StoreConfig) -> None:
        layout, clock = self._layout, self._clock
        delete_reserve_if_full(layout)  # Opening the store may need its space.
        make_folders(layout, config.dir_mode)
        self._write_lock = WriteLock(layout.mutex, layout.turnstile, lambda: last_holder(layout))
        # Under one write lock: processes that create a store at once must create only one.
        with self._write_lock.hold(self._timeout_ms):
            self._session = WriterSession(layout)
            self.page = self._session.page
            self._session.sign()
            if not layout.looks_like_a_store:
                # Written before `store.json`, which makes the directory a store.
                RetentionFile(layout).keep(config.retention)
            self.identity = create_identity(layout, config, clock())
            topics = Topics(layout, clock)
            self._wire(topics)
            agree = partial(queues_agree, self._parts)
            if not self._session.state_is_valid(self.identity.key, self._log.ends_at, agree):
                self._recover()
            else:
                self._log.check_whole(self.page[PUBLISHED])
                self._keys.files.attach()
            self._session.exclude_others(config.exclusive)
            seals = None if self._follows else self.identity.config.property_crc
            SealedLog(layout).settle(self.page[PUBLISHED], seals, self.structure_changed)
            self._structure = self.page[STRUCTURE]

    def _wire(self, topics: Topics) -> None:
        config, layout = self.identity.config, self._layout
        section = partial(getattr, self._write_lock, "section")
        self.files = StoreFiles(layout, config, section)
        self._log, self._queues = self.files.log, self.files.queues
        self.dispatcher = Dispatcher(self._queues, topics.ended_at, config.delay_levels_ms)
        self._keys = IndexBuilder(layout, self._log, self.page, config, self._clock)
        self._parts = StoreParts(
            layout=layout,
            log=self._log,
            queues=self._queues,
            dispatcher=self.dispatcher,
            keys=self._keys,
            page=self.page,
            topics=topics,
            hooks=self._recovery_hooks,
            follows=self._follows,
        )
        self.structure_changed = self._parts.structure_changed
        self.changing_topics = self._parts.changing_topics
        self._appender = Appender(self._parts, self._clock, property_crc=bool(config.property_crc))
        self._checkpointer = Checkpointer(self._parts, self._clock)
        self._flusher = Flusher(
            self._log, self.page, layout.flush_lock, self._timeout_ms, self._after_sync
        )
        own, self._kept = config.retention, RetentionFile(layout)
        # A replica deletes what its primary has deleted.
        keep = self._kept.read if own is None and not self._follows else lambda: own
        flush, self.room = self._flusher.flush, DiskRoom(layout, self._log.file_bytes)
        self.cleaner = Cleaner(self._parts, self._clock, self.room, keep, flush, self._hooks)
        policy = FlushPolicy(
            config.flush_interval_ms, config.flush_least_pages, config.flush_thorough_interval_ms
        )
        self.flush_service = FlushService(policy, self.page, self._flusher)

    def _recover(self) -> None:
        """Recover the store and mark the shared state as valid; requires exclusive access.

        Raises StoreLockedError (STORE_NEEDS_RECOVERY) if other processes have the store open.
        """
        if not self._session.claim():
            raise StoreLockedError(
                f"{self._layout.root} needs recovery, but other processes have it open.",
                remedy="Close it everywhere first.",
                code="STORE_NEEDS_RECOVERY",
            )
        if self.page.was_interrupted():
            # This must precede the recovery, which marks the shared state valid for this boot.
            now = max(self._clock(), self.page[STORE_TIME])
            for hook in self._recovery_hooks.after_unclean_end:
                hook(now)
        recover_alone(self._parts, self._clock())
        self._session.validate_state(self.identity.key)
        self._session.share()

    @contextmanager
    def exclusive(self, *, even_if_full: bool = False) -> Iterator[None]:
        """Hold the write lock: only this process may change the log and the metadata.

        An OSError inside becomes StorePermissionError or StoreUnavailableError (WRITE_FAILED).
        Unless `even_if_full`, also raises DISK_FULL: see `DiskRoom.check_usable`.
        """
        with self._locked(self._timeout_ms, None if even_if_full else self.room.check_usable):
            yield
        self._flusher.notify_appended()
        self._keys.catch_up(lambda: self._locked(self._timeout_ms))
        self.cleaner.run_if_due(partial(self._locked, 0))
        for hook in self._hooks().after_section:
            hook()

    def run_maintenance(self) -> None:
        """Index new messages, and clean if due; skipped while another process is writing."""
        self._keys.catch_up(self.try_exclusive)
        self.cleaner.run_if_due(partial(self._locked, 0))
        self.failure.retry_if_due(partial(self._locked, 0), self._appender.write_zeros)

    def try_exclusive(self) -> AbstractContextManager[None]:
        """Hold the write lock without waiting for it, for services: other writes have priority.

        Raises StoreLockedError (LOCK_TIMEOUT) at once if the lock is held, and
        StoreUnavailableError (DISK_FULL): see `DiskRoom.check_reserved`.
        """
        return self._locked(0, self.room.check_reserved)

    @contextmanager
    def _locked(self, timeout_ms: int, check: Callable[[], None] | None = None) -> Iterator[None]:
        try:
            with self._write_lock.hold(timeout_ms):
                self._session.check_directory()
                self._session.sign()
                if self.page[CHANGING]:
                    self.structure_changed()
                if self.page[STRUCTURE] != self._structure:
                    self._structure = self.page[STRUCTURE]
                    self._queues.close()
                    self._appender.property_crc = self._log.sealed().is_open
                with self.failure.noting(self._layout.root):
                    if check is not None:
                        check()
                    self._appender.roll_forward()
                    yield
        finally:
            for hook in self._hooks().after_release:
                hook()

    def check_fits(self, batches: Sequence[EncodedBatch]) -> None:
        """Raise MessageError (RECORD_TOO_LARGE) if a record does not fit in a log file."""
        for batch in batches:
            if batch.data.size > self._log.max_record_bytes:
                self._log.check_fits(batch.sizes)

    def append(
        self,
        batches: Sequence[EncodedBatch],
        *,
        whole: bool = False,
        moves: Mapping[int, int] | None = None,
        make_room: bool = True,
    ) -> list[Placed]:
        """Append the batches as one; requires the write lock. See `Appender.append`.

        Without `make_room` the disk usage limit is not checked: this is for records that are
        re-appended so that their files can be deleted.
        """
        if make_room:
            self.cleaner.make_room(sum(batch.data.size for batch in batches))
        self._mark_in_use()
        start = self.page[PUBLISHED]
        appended = self._appender.append(batches, whole=whole, moves=moves)
        self.failure.end()
        self._keys.add_pending(start, appended)
        self.page[APPEND_NS] = self._write_lock.elapsed_ns // max(len(appended), 1)
        return appended

    def append_streamed(
        self, chunks: Iterable[Chunk], preface: Preface | None = None, *, total_bytes: int = 0
    ) -> Streamed:
        """Append `total_bytes` as one batch; requires the write lock. See the appender's method."""
        self.cleaner.make_room(total_bytes)
        self._mark_in_use()
        streamed = self._appender.append_streamed(chunks, preface)
        if streamed.appended is None:
            self._keys.defer(streamed.end - streamed.start)
        else:
            self._keys.add_pending(streamed.start, streamed.appended)
        return streamed

    def move(self, moves: Mapping[int, int]) -> None:
        """Set service cursors (field → value) atomically despite a kill. Needs the write lock."""
        self._mark_in_use()
        self.page.record_intent(self.page[PUBLISHED], moves)
        self.page.apply_intent()

    def _mark_in_use(self) -> None:
        """Create `abort` and mark the shared state dirty before the first append."""
        if self._appended:
            return
        if not self._layout.abort.exists():
            io.replace_file(self._layout.abort, b"", self._layout.scratch)
        self.page.mark_dirty()
        self._appended = True

    def set_retention(self, retention: Retention | None) -> None:
        """Save the retention durably, for this and all other writers."""
        with self.exclusive():
            self._kept.keep(retention)
        self.cleaner.refresh()

    @property
    def structure(self) -> int:
        """Version of the set of topics and files; changes when one is created or deleted."""
        return self.page[STRUCTURE]

    def flush(self) -> None:
        """Flush all records published before the call; see `Flusher.flush`."""
        with translating_os_errors(self._layout.root, "flush again"):
            self._flusher.flush()

    def flush_as_configured(self) -> None:
        """Flush, request a flush, or do nothing, as configured for appends."""
        config = self.identity.config
        if config.flush == "sync":
            self.flush_service.flush(config.flush_timeout_ms)
        elif config.flush == "async":
            self.flush_soon()

    def flush_soon(self) -> None:
        """Request a flush of all records published before the call; return without waiting."""
        self.flush_service.wake()

    def _after_sync(self, end: int, stored: int, cursors: Mapping[int, int]) -> None:
        with failing_on_sync_error(self.page):
            self._checkpointer.after_flush(end, stored, cursors)

    def close(self, *, clean: bool) -> None:
        """Close the writer; with `clean`, the last open writer shuts the store down cleanly."""
        try:
            if clean and self._session.is_in_place and not self.page[FAILED]:
                with (
                    translating_os_errors(self._layout.root, "open it again"),
                    self._write_lock.hold(self._timeout_ms),
                ):
                    self._session.sign()
                    if self._session.claim():
                        self._shut_down()
                    # Before the write lock is released: the next writer may claim the store.
                    self._session.leave()
        finally:
            self._release()

    def _shut_down(self) -> None:
        """Complete and flush the log, queues and key index, and only then delete `abort`.

        Without `abort`, a broker assumes that the queues are complete.
        """
        if not self._layout.abort.exists():
            return
        self._appender.roll_forward()
        for hook in self._hooks().before_clean_shutdown:
            hook()
        self._flusher.flush()
        with failing_on_sync_error(self.page):
            end, stored, cursors = self.page[PUBLISHED], self.page[STORE_TIME], self.page.cursors()
            self._checkpointer.advance(end, stored, cursors, index_timestamp=self._keys.complete())
        save_transaction_cursors(self._layout, cursors)
        io.clear_directory(self._layout.scratch)
        self.page.mark_clean()
        io.unlink(self._layout.abort)
        io.sync_directory(self._layout.root)

    def _release(self) -> None:
        parts = ("flush_service", "_flusher", "files", "_keys", "_write_lock", "_session")
        for held in [getattr(self, part, None) for part in parts]:
            if held is not None:
                held.close()
