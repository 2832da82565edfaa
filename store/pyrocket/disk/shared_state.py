"""The state shared by all processes of a store: one small mapped file, `pyrocket/state`.

    field name          meaning
    0     format        STATE_FORMAT; _RECOVERING while a recovery changes the files
    1     published     end of the valid log: readers ignore all bytes after it
    2     dispatched    log offset up to which the queues are complete and readers see messages
    3     reserved      end of what an append in progress may have written
    4     flushed       log offset up to which the log is durable
    5     indexed       log offset up to which the key index is complete
    6     structure     changes when topics or files are created or deleted
    7     store_time    last store timestamp, ms
    8,9   boot          the boot in which the state is valid
    10    device        of the file system
    11    inode         of this file: differs in a copy of the directory
    12,13 store         uuid of the store
    14    lock_mtime    of `lock`, ns: changes when a RocketMQ broker starts
    15    lock_inode    of `lock`
    16    holder        pid of the process that took the write lock last
    17    failed        1 after a failed write or fsync: no writes before a recovery
    18    checkpointed  log offset up to which the checkpoint covers log and queues
    19    checkpoint_time  when the checkpoint was written, ms
    20    appends       number of appends published since the file was created
    21    flushed_appends  number of these appends that the last flush covered
    22    group         appends that the last flush covered or that were published during it
    23    sync_ns       duration of its fsync
    24    rested        `published` at the last clean shutdown; 0 from the next append on
    25    key_file      name of the newest index file that we created, as a number
    26    key_file_inode  its inode
    27    next_due      the earliest time at which a service has work, ms; NEVER without work
    28    timer_queue_offset  queue offset up to which timers are in the index
    29,30 timer_read_time, timer_read_offset  the last timer delivered: due time, queue offset
    31,32 half, op      queue offsets up to which half and op messages are processed
    33    intent_end    apply the intent once `published` reaches this log offset; 0 without intent
    34    intent_count  number of updates, followed by a (field, value) pair for each, up to 16
    128…  level         for each delay level from 1 on: queue offset up to which it is delivered
    192   append_ns     duration of the last exclusive section that appended, per batch
    193   syncing       log offset up to which the last fsync to begin makes the log durable
    194   wanted        number of appends that the next fsync waits for; 0 for none
    195   changing      1 while topics are being created, changed or deleted
    200   rest_sum      checksum of the fields saved by a clean shutdown; 0 from the next append on
    511   written_by    format and release of the validating process: 4 numbers of 16 bits

Each field has 8 bytes in native byte order. The state stays valid after a reboot only if the store
was shut down cleanly. It is only a cache, which a recovery rebuilds from the other files. Each
field is read and written by one aligned 8-byte access (`memoryview.cast`), so that other processes
never see a half-written field.
"""

import mmap
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

from pyrocket.base.versions import RELEASE, VERSIONS, check_version
from pyrocket.disk import io
from pyrocket.disk.io import replace_file
from pyrocket.disk.machine import boot_id
from pyrocket.values.message import Position

_FORMATS = 0x7079726F_00000000
STATE_FORMAT = _FORMATS + VERSIONS["state"]
_RECOVERING = 0x7265636F_76657279
PAGE_BYTES = 4096

PUBLISHED, DISPATCHED, RESERVED, FLUSHED, INDEXED, STRUCTURE, STORE_TIME = range(1, 8)
_BOOT, _DEVICE, _INODE, _STORE, _LOCK_MTIME, _LOCK_INODE = 8, 10, 11, 12, 14, 15
HOLDER, FAILED, CHECKPOINTED, CHECKPOINT_TIME = 16, 17, 18, 19
APPENDS, FLUSHED_APPENDS, GROUP, SYNC_NS, RESTED = 20, 21, 22, 23, 24
KEY_FILE, KEY_FILE_INODE = 25, 26
NEXT_DUE, TIMER_QUEUE_OFFSET, TIMER_READ_TIME, TIMER_READ_OFFSET = 27, 28, 29, 30
HALF_CURSOR, OP_CURSOR = 31, 32
_INTENT_END, _INTENT_COUNT, _INTENT = 33, 34, 35
MAX_MOVES = 16
MAX_DELAY_LEVELS = 64
_LEVELS = 127
APPEND_NS, SYNCING, WANTED, CHANGING = range(192, 196)
_OF_FLUSHES = APPENDS, FLUSHED_APPENDS, GROUP, SYNC_NS, APPEND_NS, SYNCING, WANTED
REST_SUM, _SUMMED = 200, 1 << 32
_WRITTEN_BY = 511
_AT_REST = slice(1, 5), slice(7, 8), slice(17, 19), slice(24, 25), slice(28, 34), slice(128, 192)
"""Fields that change only after `mark_dirty`: not those of the key index, lock and due times."""

NEVER = 2**62
"""Value of NEXT_DUE if no service has work."""

CURSORS = (TIMER_QUEUE_OFFSET, TIMER_READ_TIME, TIMER_READ_OFFSET, HALF_CURSOR, OP_CURSOR)
"""The services' cursors, except those of the delay levels."""

_PLACE_FIELDS = (_BOOT, _BOOT + 1, _DEVICE, _INODE)
_SEAL_FIELDS = (*_PLACE_FIELDS, _STORE, _STORE + 1, _LOCK_MTIME, _LOCK_INODE)


def level_field(level: int) -> int:
    """Return the field with the cursor of a delay level, counted from 1."""
    if not 1 <= level <= MAX_DELAY_LEVELS:
        raise ValueError(f"there is no delay level {level}")
    return _LEVELS + level


class SharedState:
    """The mapped fields; `state[PUBLISHED]` reads one, assignment writes one."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        with io.opened(path, os.O_RDWR if writable else os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size < PAGE_BYTES:
                raise FileNotFoundError(f"{path} is too short for the shared state")
            # The rest of a longer file is ignored.
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, PAGE_BYTES, access=access)
            status = os.fstat(descriptor)
        self._identity = status.st_dev, status.st_ino
        self._fields = memoryview(self._map).cast("q")
        self._check_version(path)

    def _check_version(self, path: Path) -> None:
        """Raise UnsupportedError (STORE_NEWER) if two fields have the format of a later release.

        If only one of them has it, a bit may have flipped: the state is invalid and is rebuilt.
        """
        version, *release = _split(self._fields[_WRITTEN_BY])
        if version and self._fields[0] == _FORMATS + version:
            try:
                check_version(path, version, ".".join(map(str, release)))
            except BaseException:
                self.close()
                raise

    @classmethod
    def open_readable(cls, path: Path) -> "SharedState | None":
        """Map the state for reading; None if it is missing or corrupt."""
        try:
            page = cls(path, writable=False)
        except FileNotFoundError:
            return None
        if page.is_sound():
            return page
        page.close()
        return None

    @staticmethod
    def create(path: Path, scratch: Path) -> None:
        """Create the file if it is missing, with all bytes allocated. Needs the write lock.

        Without the write lock, one process could replace the file of another process, and one log
        would have two states.
        """
        if not path.exists() or path.stat().st_size < PAGE_BYTES:
            replace_file(path, bytes(PAGE_BYTES), scratch)

    def __getitem__(self, field: int) -> int:
        return self._fields[field]

    def __setitem__(self, field: int, value: int) -> None:
        self._fields[field] = value

    def position(self) -> Position:
        """Return the values that readers compare to detect changes."""
        fields = self._fields
        return Position(fields[PUBLISHED], fields[DISPATCHED], fields[STRUCTURE])

    def cursors(self) -> dict[int, int]:
        """Return the services' cursors that are not 0, by field."""
        fields = self._fields[: _LEVELS + 1 + MAX_DELAY_LEVELS].tolist()
        levels = range(_LEVELS + 1, len(fields))
        return {field: fields[field] for field in (*CURSORS, *levels) if fields[field]}

    def record_intent(self, end: int, moves: Mapping[int, int]) -> None:
        """Record field updates to be applied atomically once `published` reaches `end`.

        See `apply_intent`.
        """
        if len(moves) > MAX_MOVES:
            raise ValueError(f"{len(moves)} fields are too many for one intent")
        for index, (field, value) in enumerate(moves.items()):
            self._fields[_INTENT + 2 * index] = field
            self._fields[_INTENT + 2 * index + 1] = value
        self._fields[_INTENT_COUNT] = len(moves)
        self._fields[_INTENT_END] = end

    def apply_intent(self) -> None:
        """Apply the recorded updates if their append is published; otherwise drop them.

        Idempotent, because no other process sets these fields before this is done.
        """
        end = self._fields[_INTENT_END]
        if end and self._fields[PUBLISHED] >= end:
            for at in range(_INTENT, _INTENT + 2 * self._fields[_INTENT_COUNT], 2):
                self._fields[self._fields[at]] = self._fields[at + 1]
        self._fields[_INTENT_END] = 0

    def lower_due(self, due_ms: int) -> None:
        """Lower NEXT_DUE to this time (epoch ms) if it is later. Needs the write lock."""
        if due_ms < self._fields[NEXT_DUE]:
            self._fields[NEXT_DUE] = due_ms

    def is_valid(self, store: bytes, lock: tuple[int, int]) -> bool:
        """Whether the state is valid: for this boot and store, with no broker started since."""
        return bool(self._fields[0] == STATE_FORMAT) and self._seal(store, lock) == [
            self._fields[at] for at in _SEAL_FIELDS
        ]

    def mark_clean(self) -> None:
        """Mark the state clean, durably, so that it stays valid after a reboot."""
        self._fields[RESTED] = self._fields[PUBLISHED]
        self._fields[REST_SUM] = self._sum()
        self._map.flush()

    def mark_dirty(self) -> None:
        """Mark the state dirty, before it changes after a clean shutdown."""
        self._fields[REST_SUM] = 0
        self._fields[RESTED] = 0

    def is_sound(self) -> bool:
        """Whether a clean state matches its checksum; True for a dirty state.

        Without the checksum, damage to a file of plain numbers would stay undetected.
        """
        while expected := self._fields[REST_SUM]:
            if self._sum() == expected:
                return True
            if self._fields[REST_SUM] == expected:
                return False
        return True

    def _sum(self) -> int:
        return zlib.crc32(b"".join(self._fields[part].tobytes() for part in _AT_REST)) | _SUMMED

    def is_clean(self, store: bytes, lock: tuple[int, int]) -> bool:
        """Whether the state is clean: no writer or broker has run since a clean shutdown."""
        fields = self._fields
        seal = dict(zip(_SEAL_FIELDS, self._seal(store, lock), strict=True))
        return (
            fields[0] == STATE_FORMAT
            and fields[FAILED] == 0
            and fields[RESTED] == fields[PUBLISHED] != 0
            and self.is_sound()
            and all(fields[at] == seal[at] for at in seal if at not in (_BOOT, _BOOT + 1))
        )

    def was_interrupted(self) -> bool:
        """Whether the machine stopped while this store was in use; False for a copy of a store."""
        fields = self._fields
        inode = _signed(self._identity[1])
        of_other_boot = fields[_BOOT : _BOOT + 2].tolist() != _halves(boot_id())
        return fields[0] != 0 and fields[RESTED] == 0 and fields[_INODE] == inode and of_other_boot

    def is_file_at(self, path: Path) -> bool:
        """Whether the mapped file is still at `path`: the directory may have been replaced."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        return self._identity == (status.st_dev, status.st_ino)

    def validate_state(self, store: bytes, lock: tuple[int, int]) -> None:
        """Mark the state valid for this boot, this store and this lock file."""
        for at, value in zip(_SEAL_FIELDS, self._seal(store, lock), strict=True):
            self._fields[at] = value
        self._fields[FAILED] = 0
        self._fields[_WRITTEN_BY] = _joined(VERSIONS["state"], *map(int, RELEASE.split(".")))
        self._fields[0] = STATE_FORMAT

    def invalidate(self, lock: tuple[int, int] | None = None) -> None:
        """Mark the state invalid during a recovery. If this process dies, the next one recovers.

        `lock` is the identity of the lock file that this process holds.
        """
        self._fields[0] = 0
        self._fields[REST_SUM] = self._fields[_INTENT_END] = 0
        for at, value in zip(_PLACE_FIELDS, self._place(), strict=True):
            self._fields[at] = value
        self._fields[_LOCK_MTIME], self._fields[_LOCK_INODE] = lock or (0, 0)
        self._fields[0] = _RECOVERING

    def reset_flush_counters(self) -> None:
        """Reset the statistics of flushes. No other process may have the store open for writing."""
        for field in _OF_FLUSHES:
            self._fields[field] = 0

    def abandon_recovery(self) -> None:
        """Leave the state invalid after a failed recovery."""
        self._fields[0] = 0

    def is_recovering(self, lock: tuple[int, int] | None = None) -> bool:
        """Whether a recovery began in this boot and has not finished.

        False if `lock`, the current identity of the lock file, has changed since: a RocketMQ broker
        has started.
        """
        if self._fields[0] != _RECOVERING:
            return False
        held = self._fields[_LOCK_MTIME], self._fields[_LOCK_INODE]
        if lock and any(held) and held != lock:
            return False
        return [self._fields[at] for at in _PLACE_FIELDS] == self._place()

    def close(self) -> None:
        self._fields.release()
        self._map.close()

    def _seal(self, store: bytes, lock: tuple[int, int]) -> list[int]:
        return [*self._place(), *_halves(store), *lock]

    def _place(self) -> list[int]:
        return [*_halves(boot_id()), *map(_signed, self._identity)]


def _halves(value: bytes) -> list[int]:
    return [int.from_bytes(value[at : at + 8], sys.byteorder, signed=True) for at in (0, 8)]


def _joined(*numbers: int) -> int:
    return sum(number << 16 * at for at, number in enumerate(reversed(numbers)))


def _split(field: int) -> list[int]:
    return [field >> 16 * at & 0xFFFF for at in (3, 2, 1, 0)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def lock_identity(path: Path) -> tuple[int, int] | None:
    """Return a lock file's modification time (ns) and inode; a RocketMQ broker changes both."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino
