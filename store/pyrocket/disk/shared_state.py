"""Words that all processes of one store share: one small mapped file, `pyrocket/state`.

    word  name          meaning
    0     format        STATE_FORMAT; _RECOVERING while a recovery changes the files
    1     published     end of the valid log: bytes past it don't exist for anyone
    2     dispatched    how far the queues are complete: what readers see
    3     reserved      end of what an append in progress may have touched
    4     flushed       how far the log is durable
    5     indexed       how far the key index is complete
    6     structure     moves when topics or files come and go
    7     store_time    last store timestamp given, ms
    8,9   boot          the boot in which the words are true
    10    device        of the file system
    11    inode         of this file: a copy of the directory has another
    12,13 store         uuid of the store
    14    lock_mtime    of `lock`, ns: a Java broker that ran since has changed it
    15    lock_inode    of `lock`
    16    holder        pid of who took the last turn
    17    failed        1 after a failed write or fsync: nobody writes before a recovery
    18    checkpointed  how far log and queues are durable, as the checkpoint says
    19    checkpoint_time  when it was written last, ms
    20    appends       appends published since the page was made
    21    flushed_appends  how many of them the last flush found
    22    group         how many came to the last flush, or too late for it
    23    sync_ns       how long its fsync took
    24    rested        published, as of the last clean end; 0 since the first append after it
    25    key_file      name of the last file of the key index, as a number: the one we have made
    26    key_file_inode  its inode
    27    next_due      the earliest time at which a service has something to do, ms; NEVER for none
    28    timer_queue_offset  queue offset up to which timers are in the index
    29,30 timer_read_time, timer_read_offset  the last timer delivered: due time, queue offset
    31,32 half, op      queue offsets up to which half messages and their ends are settled
    33    intent_end    published, once the moves that follow are to be made; 0 for none
    34    intent_count  how many; then (word, value) for each, up to 16
    128…  level         from level 1 on: the queue offset up to which it is delivered
    192   append_ns     how long the last turn in which something was appended took, a batch
    193   syncing       up to where the last fsync that began makes the log durable: see `Flusher`
    194   wanted        the number of appends for which the next fsync waits; 0 for none
    200   rest_sum      of the words that a clean end leaves as they are; 0 since the first append
    511   written_by    format and release of who made the words true: 4 numbers of 16 bits

Native byte order, 8 bytes each. The words outlive a boot only if a clean end left them at rest.
They are a cache of the truth, the log is the truth. Each is read and written by one aligned 8-byte
access (`memoryview.cast`), which no other process can see half of.
"""

import mmap
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.io import replace_file
from pyrocket.disk.machine import boot_id
from pyrocket.message import Position
from pyrocket.versions import RELEASE, VERSIONS, check_version

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
APPEND_NS, SYNCING, WANTED = range(192, 195)
_OF_FLUSHES = APPENDS, FLUSHED_APPENDS, GROUP, SYNC_NS, APPEND_NS, SYNCING, WANTED
REST_SUM, _SUMMED = 200, 1 << 32
_WRITTEN_BY = 511
_AT_REST = slice(1, 5), slice(7, 8), slice(17, 19), slice(24, 25), slice(28, 34), slice(128, 192)
"""What moves only after `mark_dirty`: not the fields of the key index, the lock and what is due."""

NEVER = 2**62
"""As a time at which something is due: nothing is."""

CURSORS = (TIMER_QUEUE_OFFSET, TIMER_READ_TIME, TIMER_READ_OFFSET, HALF_CURSOR, OP_CURSOR)
"""Where the services are, besides the delay levels."""

_PLACE_WORDS = (_BOOT, _BOOT + 1, _DEVICE, _INODE)


def level_word(level: int) -> int:
    """Return the word with the cursor of a delay level, counted from 1."""
    if not 1 <= level <= MAX_DELAY_LEVELS:
        raise ValueError(f"there is no delay level {level}")
    return _LEVELS + level


class SharedState:
    """The mapped words; `page[PUBLISHED]` reads one, assignment writes one."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        descriptor = io.open_file(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            if os.fstat(descriptor).st_size < PAGE_BYTES:
                raise FileNotFoundError(f"{path} is too short to be the page")
            # What follows the page in a longer file is never looked at.
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, PAGE_BYTES, access=access)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        self._identity = status.st_dev, status.st_ino
        self._words = memoryview(self._map).cast("q")
        self._check_version(path)

    def _check_version(self, path: Path) -> None:
        """Raise UnsupportedError (STORE_NEWER) if two words agree on a format of a later release.

        One of them alone may be a flipped bit: such a page is invalid, and is rebuilt.
        """
        version, *release = _split(self._words[_WRITTEN_BY])
        if version and self._words[0] == _FORMATS + version:
            try:
                check_version(path, version, ".".join(map(str, release)))
            except BaseException:
                self.close()
                raise

    @classmethod
    def open_readable(cls, path: Path) -> "SharedState | None":
        """Map the page for reading; None where there is none, or a damaged one."""
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
        """Make the page, all its bytes allocated, if there is none yet; the caller has the turn.

        Two pages, one renamed over the other, would be two truths about one log.
        """
        if not path.exists() or path.stat().st_size < PAGE_BYTES:
            replace_file(path, bytes(PAGE_BYTES), scratch)

    def __getitem__(self, word: int) -> int:
        return self._words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[word] = value

    def position(self) -> Position:
        """Return what a reader needs to know."""
        words = self._words
        return Position(words[PUBLISHED], words[DISPATCHED], words[STRUCTURE])

    def cursors(self) -> dict[int, int]:
        """Return the services' cursors that have moved, by word."""
        words = self._words[: _LEVELS + 1 + MAX_DELAY_LEVELS].tolist()
        levels = range(_LEVELS + 1, len(words))
        return {word: words[word] for word in (*CURSORS, *levels) if words[word]}

    def record_intent(self, end: int, moves: Mapping[int, int]) -> None:
        """Have words moved, all or none, iff `published` gets to `end`: see `apply_intent`."""
        if len(moves) > MAX_MOVES:
            raise ValueError(f"{len(moves)} words are too many for one intent")
        for index, (word, value) in enumerate(moves.items()):
            self._words[_INTENT + 2 * index] = word
            self._words[_INTENT + 2 * index + 1] = value
        self._words[_INTENT_COUNT] = len(moves)
        self._words[_INTENT_END] = end

    def apply_intent(self) -> None:
        """Make the intended moves if what they belong to is published; drop them otherwise.

        Repeating it does no harm: nobody else moves these words before it is done.
        """
        end = self._words[_INTENT_END]
        if end and self._words[PUBLISHED] >= end:
            for at in range(_INTENT, _INTENT + 2 * self._words[_INTENT_COUNT], 2):
                self._words[self._words[at]] = self._words[at + 1]
        self._words[_INTENT_END] = 0

    def lower_due(self, due_ms: int) -> None:
        """Note that a service has something to do at a time. The caller is in a section."""
        if due_ms < self._words[NEXT_DUE]:
            self._words[NEXT_DUE] = due_ms

    def is_valid(self, store: bytes, lock: tuple[int, int]) -> bool:
        """Whether the words were written in this boot, for this store, and by us alone."""
        return bool(self._words[0] == STATE_FORMAT) and self._seal(store, lock) == [
            self._words[at] for at in self._seal_words()
        ]

    def mark_clean(self) -> None:
        """Say durably that these words are those of a clean end, in whatever boot they are read."""
        self._words[RESTED] = self._words[PUBLISHED]
        self._words[REST_SUM] = self._sum()
        self._map.flush()

    def mark_dirty(self) -> None:
        """Say that the words begin to move."""
        self._words[REST_SUM] = 0
        self._words[RESTED] = 0

    def is_sound(self) -> bool:
        """Whether words at rest are as the clean end left them; True if they are not at rest.

        Nothing else tells that a file of numbers has been damaged.
        """
        while told := self._words[REST_SUM]:
            if self._sum() == told:
                return True
            if self._words[REST_SUM] == told:
                return False
        return True

    def _sum(self) -> int:
        return zlib.crc32(b"".join(self._words[part].tobytes() for part in _AT_REST)) | _SUMMED

    def is_clean(self, store: bytes, lock: tuple[int, int]) -> bool:
        """Whether a clean end left the words, and nobody, Java included, has written since."""
        words = self._words
        seal = dict(zip(self._seal_words(), self._seal(store, lock), strict=True))
        return (
            words[0] == STATE_FORMAT
            and words[FAILED] == 0
            and words[RESTED] == words[PUBLISHED] != 0
            and self.is_sound()
            and all(words[at] == seal[at] for at in seal if at not in (_BOOT, _BOOT + 1))
        )

    def was_interrupted(self) -> bool:
        """Whether the machine ended while the store was in use, here: not that of a copy."""
        words = self._words
        inode = _signed(self._identity[1])
        of_other_boot = words[_BOOT : _BOOT + 2].tolist() != _halves(boot_id())
        return words[0] != 0 and words[RESTED] == 0 and words[_INODE] == inode and of_other_boot

    def is_file_at(self, path: Path) -> bool:
        """Whether this is the page at `path`, and not one of a directory that was replaced."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        return self._identity == (status.st_dev, status.st_ino)

    def validate_state(self, store: bytes, lock: tuple[int, int]) -> None:
        """Declare the words true from now on."""
        for at, value in zip(self._seal_words(), self._seal(store, lock), strict=True):
            self._words[at] = value
        self._words[FAILED] = 0
        self._words[_WRITTEN_BY] = _joined(VERSIONS["state"], *map(int, RELEASE.split(".")))
        self._words[0] = STATE_FORMAT

    def invalidate(self, lock: tuple[int, int] | None = None) -> None:
        """Declare the words false while this process recovers; if it dies, the next one does.

        `lock` is the identity of the lock that it holds.
        """
        self._words[0] = 0
        self._words[REST_SUM] = self._words[_INTENT_END] = 0
        for at, value in zip(_PLACE_WORDS, self._place(), strict=True):
            self._words[at] = value
        self._words[_LOCK_MTIME], self._words[_LOCK_INODE] = lock or (0, 0)
        self._words[0] = _RECOVERING

    def reset_flush_counters(self) -> None:
        """Begin anew with what only says how flushes went; nobody else writes."""
        for word in _OF_FLUSHES:
            self._words[word] = 0

    def abandon_recovery(self) -> None:
        """Say that the recovery has ended without true words."""
        self._words[0] = 0

    def is_recovering(self, lock: tuple[int, int] | None = None) -> bool:
        """Whether a recovery began in this boot and has not finished.

        Not so if `lock`, the lock's identity now, is another: a Java broker has come since.
        """
        if self._words[0] != _RECOVERING:
            return False
        held = self._words[_LOCK_MTIME], self._words[_LOCK_INODE]
        if lock and any(held) and held != lock:
            return False
        return [self._words[at] for at in _PLACE_WORDS] == self._place()

    def close(self) -> None:
        """Unmap."""
        self._words.release()
        self._map.close()

    @staticmethod
    def _seal_words() -> tuple[int, ...]:
        return (_BOOT, _BOOT + 1, _DEVICE, _INODE, _STORE, _STORE + 1, _LOCK_MTIME, _LOCK_INODE)

    def _seal(self, store: bytes, lock: tuple[int, int]) -> list[int]:
        return [*self._place(), *_halves(store), *lock]

    def _place(self) -> list[int]:
        return [*_halves(boot_id()), *map(_signed, self._identity)]


def _halves(value: bytes) -> list[int]:
    return [int.from_bytes(value[at : at + 8], sys.byteorder, signed=True) for at in (0, 8)]


def _joined(*numbers: int) -> int:
    return sum(number << 16 * at for at, number in enumerate(reversed(numbers)))


def _split(word: int) -> list[int]:
    return [word >> 16 * at & 0xFFFF for at in (3, 2, 1, 0)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
