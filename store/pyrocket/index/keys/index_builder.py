"""Keeps the key index up to date with the log.

Each append saves its keys as pending keys (`PendingKeys`). While holding the write lock, a writer
adds the pending keys to the index when the index is `catch_up_bytes` behind the log or `put_items`
keys are pending, and always before a clean shutdown. Other keys are read from the log in slices of
about `slice_bytes`, one exclusive section each. One append indexes at most `at_once_bytes`, which
takes about 100 ms, or all its own messages if they have too many keys to save (`IndexLimits`).

INDEXED is the log offset up to which the index is complete. If INDEXED and the index files
disagree, the files win, because files can be deleted: the files are checked before each slice, and
soon after the folder has changed (`IndexFiles`). Readers search the rest of the log themselves
(`UnindexedTail`).

A RocketMQ broker loads the store before our lock rejects it. It deletes the index file that is not
full and the files that its checkpoint does not cover. It then builds new ones from its recovery
offset, possibly for seconds. Therefore items are appended to the last file only if our writer
created it (KEY_FILE in the shared state) or found it after a broker's clean shutdown. All other
files are valid only if they are full, because full files never change, and if no keys are missing
before them (`IndexCoverage`). Invalid files are deleted, which is harmless even if a broker is
still building them.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk.io import SMALL_FILE_BYTES, SyncError, read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import (
    DISPATCHED,
    INDEXED,
    KEY_FILE,
    KEY_FILE_INODE,
    STORE_TIME,
    SharedState,
)
from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.index_file import Geometry, PendingHeader, encode_pending_keys
from pyrocket.formats.record import read_header
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import IndexCoverage, KeyIndex
from pyrocket.index.keys.key_items import MAX_PENDING_KEYS, KeyItems, PendingKeys, key_items
from pyrocket.log.commit_log import CommitLog, Placed
from pyrocket.log.record_walk import end_of, record_missing, walk
from pyrocket.log.valid_end import read_checkpoint

_HEAD_BYTES = 8


class IndexFiles:
    """The index files of a store that is open for writing.

    All methods except `have_changed` need the write lock. `names` are the files that were valid at
    the last check, and the files created since.
    """

    def __init__(
        self, layout: Layout, log: CommitLog, page: SharedState, geometry: Geometry
    ) -> None:
        self._layout, self._log, self._page = layout, log, page
        self.index = KeyIndex(layout, geometry, self._made)
        self._span = IndexCoverage(log, self.index)
        self._folder, self._changed = str(layout.index), 0
        self.names: list[str] = []

    def after_recovery(self, *, clean: bool) -> None:
        """Initialize the files after a recovery, when no other writer exists.

        After an unclean shutdown only files that are known to have been durable are kept. The rest
        of the index is rebuilt while the store is in use.
        """
        files = self._valid()
        if not clean:
            files = files[: self.index.count_durable(read_checkpoint(self._layout).index_timestamp)]
        self._begin(files)

    def attach(self) -> None:
        """Initialize the files without a recovery."""
        self._begin(self._ours(self._valid()))

    def check(self) -> None:
        """Delete invalid files; lower INDEXED if the newest file that we created is missing."""
        files = self._ours(self._valid())
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        if made in map(_identity, files) or (made == _NONE and not files):
            self._keep(files)
        else:
            self._begin(files)

    def have_changed(self) -> bool:
        """Whether files may have been created or deleted since the last check."""
        return self._last_change() != self._changed

    def _last_change(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return 0

    def append(self, items: KeyItems, now_ms: int) -> None:
        """Append items to the valid files: see `KeyIndex.append`."""
        self.names = self.index.append(items, now_ms, self.names)

    def _valid(self) -> list[IndexFileInfo]:
        """Return the longest prefix of the files that is consistent with the log."""
        self._changed = self._last_change()
        files = self._span.contiguous_prefix(self.index.valid_prefix(self._page[DISPATCHED]))
        while files and not self._is_record(files[-1].header.end_offset):
            files.pop()
        return files

    def _ours(self, files: list[IndexFileInfo]) -> list[IndexFileInfo]:
        """Return the leading full files, and the next file if we created it."""
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        for count, file in enumerate(files):
            if not self.index.is_full(file.header):
                return files[: count + (_identity(file) == made)]
        return files

    def _begin(self, files: list[IndexFileInfo]) -> None:
        """Keep only these files and continue at their last record, which may lack items."""
        self._keep(files)
        self._lower_checkpoint()
        made = _identity(files[-1]) if files else _NONE
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = made
        end = files[-1].header.end_offset if files else 0
        self._page[INDEXED] = max(end, self._log.first_offset())

    def _keep(self, files: list[IndexFileInfo]) -> None:
        self.names = [file.name for file in files]
        self.index.keep_only(self.names)

    def _made(self, name: str, inode: int) -> None:
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = int(name), inode

    def _is_record(self, offset: int) -> bool:
        if offset < self._log.first_offset():
            return True
        head = self._log.read(offset, _HEAD_BYTES)
        return len(head) == _HEAD_BYTES and read_header(head).is_message

    def _lower_checkpoint(self) -> None:
        """Lower the checkpoint's index timestamp to the end time of the remaining files.

        Files that replace deleted files have the same end times, but are not durable yet.
        """
        until = self.index.full_until()
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            checkpoint = decode_checkpoint(read_or_none(path, SMALL_FILE_BYTES) or b"")
            if checkpoint.index_timestamp > until:
                content = encode_checkpoint(replace(checkpoint, index_timestamp=until))
                replace_file(path, content, self._layout.scratch)


_NONE = 0, 0


def _identity(file: IndexFileInfo) -> tuple[int, int]:
    return int(file.name), file.inode


_log = logging.getLogger(__name__)

_MAX_AGAIN = 3
"""Number of attempts to build a slice before building the index fails."""


@dataclass(frozen=True)
class IndexLimits:
    """Limits for building the index.

    catch_up_bytes: bytes of the log that may be unindexed. put_items: pending keys that are added
    together. slice_bytes: an exclusive section ends after the run of the log (16 MiB at most) that
    reaches this size. at_once_bytes: bytes that one append indexes; the next one continues.
    max_pending: pending keys that are saved.
    """

    catch_up_bytes: int = 64 * 1024 * 1024
    put_items: int = 128 * 1024
    slice_bytes: int = 8 * 1024 * 1024
    at_once_bytes: int = 64 * 1024 * 1024
    max_pending: int = MAX_PENDING_KEYS


class IndexBuilder:
    """Builds the key index of one store that is open for writing.

    Attributes:
        files: The files of the index.
        index: The same files, as readers use them.
        limits: The limits for building the index.
    """

    def __init__(
        self, layout: Layout, log: CommitLog, page: SharedState, config: StoreConfig, clock: Clock
    ) -> None:
        self._layout, self._log, self._page, self._clock = layout, log, page, clock
        geometry = Geometry(config.index_slots, config.index_items)
        self.files = IndexFiles(layout, log, page, geometry)
        self.index = self.files.index
        self._pending = PendingKeys(layout.pending_keys, writable=True)
        self._enabled = config.key_index
        self.limits = IndexLimits()
        self._pending_count, self._left, self._keyless_until = 0, 0, 0

    def after_recovery(self, *, clean: bool) -> None:
        """Delete the pending keys and set INDEXED: see `IndexFiles.after_recovery`."""
        self._pending.remove()
        self.files.after_recovery(clean=clean)

    def add_pending(self, start: int, appended: Sequence[Placed]) -> None:
        """Save the keys of the batches just appended at `start` as pending. Needs the write lock.

        Never raises: keys that are not saved are read from the log.
        """
        stored = self._page[STORE_TIME]
        pairs = [(append.physical_offsets, append.batch.keys) for append in appended]
        known = [
            (offsets[keys.rows], stored, keys.hashes) for offsets, keys in pairs if keys is not None
        ]
        self._save(start, known if len(known) == len(pairs) else None)

    def add_received(self, start: int, runs: Iterable[RecordFields]) -> None:
        """Save the keys of records just appended at `start`, as `add_pending` does."""
        items = map(key_items, runs if self._enabled else ())
        self._save(start, [(keys.offsets, keys.times, keys.hashes) for keys in items])

    def _save(self, start: int, known: Sequence[tuple[Ints, int | Ints, Ints]] | None) -> None:
        """Save keys: their log offsets, store times and hashes; None if they are not known."""
        self._pending_count, most = 0, self.limits.max_pending
        if not self._enabled or known is None or sum(len(keys[0]) for keys in known) > most:
            return
        try:
            self._pending_count = self._pending.add(
                start,
                self._page[DISPATCHED],
                b"".join(encode_pending_keys(*keys) for keys in known),
                keep=self._page[INDEXED] < start,
                max_pending=most,
            )
        except OSError as error:
            _log.warning("the keys of an append to %s were not saved: %s", self._layout.root, error)

    def defer(self, size: int) -> None:
        """Leave the last `size` bytes to `catch_up`: they have too many keys to save as pending."""
        self._left = size

    def catch_up(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Index the log slice by slice, one exclusive section each, while the index is far behind.

        A failure does not affect messages; the next append tries again. Does nothing without the
        file `abort`: after a clean shutdown the index is durable.
        """
        page, before, done = self._page, -1, 0
        most, self._left = max(self.limits.at_once_bytes, self._left), 0
        try:
            if self._enabled and self.files.have_changed():
                with turn():
                    self.files.check()
            while self._is_behind() and done < most:
                if page[INDEXED] == before or not self._layout.abort.exists():
                    return
                before = page[INDEXED]
                with turn():
                    done += self._build_slice()
        except (PyrocketError, OSError) as error:
            if getattr(error, "code", "") != "LOCK_TIMEOUT":
                _log.warning("the key index of %s is behind: %s", self._layout.root, error)

    def _is_behind(self) -> bool:
        if not self._enabled:
            return False
        behind, limits = self._page[DISPATCHED] - self._page[INDEXED], self.limits
        return behind > limits.catch_up_bytes or (
            behind > 0 and self._pending_count >= limits.put_items
        )

    def complete(self) -> int:
        """Index all readable messages and flush the index. Needs the write lock.

        Returns the checkpoint's index timestamp: the end time of the last full file. A damaged log
        is indexed up to the damage, which queries report. Raises StoreUnavailableError
        (WRITE_FAILED), SyncError.
        """
        root, what = self._layout.root, "the key index of {root} could not be completed: {error}."
        again = "open the store and close it again"
        with translating_os_errors(root, again, what=what, through=(SyncError,)):
            try:
                self.files.check()
                self._build_all()
            except StoreDamagedError as error:
                _log.warning("the key index of %s is incomplete: %s", root, error)
        self.index.sync()
        self._pending.remove()
        return self.index.full_until()

    def close(self) -> None:
        self._pending.close()

    def _build_all(self) -> None:
        """Index the log up to DISPATCHED.

        Raises StoreDamagedError if the new files are invalid at every attempt; a single attempt may
        fail because a broker deletes files in the meantime.
        """
        again = 0
        while self._enabled and self._page[INDEXED] < self._page[DISPATCHED]:
            before = self._page[INDEXED]
            self._build_slice()
            again += self._page[INDEXED] <= before
            if again == _MAX_AGAIN:
                raise StoreDamagedError(
                    f"the index files just built up to log offset {before} are invalid.",
                    remedy="Queries read the log instead; run `pyrocket verify`.",
                )

    def _build_slice(self) -> int:
        """Index the next slice from pending keys or the log; return its length in the log."""
        self.files.check()
        # Without files, indexing continues after the part of the log that is known to have no keys.
        reached = self._page[INDEXED] if self.files.names else self._keyless_until
        start, header = max(reached, self._log.first_offset()), self._pending.header()
        end = self._page[DISPATCHED]
        if start < header.end <= end:
            if header.start <= start and self._put_pending(header, start):
                return header.end - start
            end = header.start if start < header.start else end
        return self._index_log(start, end) - start

    def _put_pending(self, header: PendingHeader, start: int) -> bool:
        """Add the pending keys starting at log offset `start`; return False if they are missing."""
        items = self._pending.items(header)
        if items is None:
            return False
        items = items[int(items.offsets.searchsorted(start)) :]
        self.files.append(items, self._clock())
        self._page[INDEXED], self._pending_count = header.end, 0
        return True

    def _index_log(self, start: int, end: int) -> int:
        """Index the first slice of [start, end) of the log; return the end of the slice."""
        reached, keyless = start, not self.files.names
        for run in walk(self._log, start, end):
            self.files.append(key_items(run), self._clock())
            self._page[INDEXED] = reached = end_of(run)
            keyless = keyless and not self.files.names
            if keyless:
                self._keyless_until = reached
            if reached - start >= self.limits.slice_bytes:
                return reached
        if reached != end:
            raise record_missing(reached, end)
        return reached
