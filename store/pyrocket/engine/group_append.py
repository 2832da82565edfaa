"""Group append: the first of several concurrent threads appends for all in one exclusive section.

Threads share one acquisition of the write lock, one update of the shared state and, later, one
fsync, as in LevelDB's writer queue. An invalid append fails alone; a failed write fails all appends
of the group.
"""

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.record_batch import Appended, EncodedBatch
from pyrocket.formats.system_topics import POP_TOPIC

_MAX_BYTES = 4 * 1024 * 1024
"""Maximum size of the appends of a group after the first one, which may have any size."""

CheckBatches = Callable[[Writer, Sequence[EncodedBatch]], None]
"""Raises an error if batches must not be appended; called with the write lock."""


@dataclass
class _Entry:
    """The append of one thread, and its result."""

    batches: Sequence[EncodedBatch]
    whole: bool
    appended: list[Appended] = field(default_factory=list)
    error: Exception | None = None
    done: bool = False

    @property
    def size(self) -> int:
        return sum(batch.data.size for batch in self.batches)


class GroupAppend:
    """The appends of one open store, in the order in which they were requested."""

    def __init__(self, check: CheckBatches) -> None:
        self._check = check
        self._waiting: deque[_Entry] = deque()
        self._leading = threading.Lock()

    def append(
        self, writer: Writer, batches: Sequence[EncodedBatch], *, whole: bool = False
    ) -> list[Appended]:
        """Append the batches as one: all become visible together, or none.

        With `whole`, this also holds after a power loss.
        """
        entry = _Entry(batches, whole)
        self._waiting.append(entry)
        with self._leading:
            while not entry.done:
                self._serve(writer, self._next_group())
        if entry.error is not None:
            raise entry.error
        return entry.appended

    def append_all(
        self, writer: Writer, requests: Sequence[Sequence[EncodedBatch]]
    ) -> list[list[Appended] | Exception]:
        """Append requests of several clients as one group; return the result or error of each."""
        group = [_Entry(batches, whole=False) for batches in requests]
        with self._leading:
            self._serve(writer, group)
        return [entry.appended if entry.error is None else entry.error for entry in group]

    def _next_group(self) -> list[_Entry]:
        group, size = [self._waiting.popleft()], 0
        while self._waiting and size + self._waiting[0].size <= _MAX_BYTES:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _serve(self, writer: Writer, group: list[_Entry]) -> None:
        try:
            with writer.exclusive():
                for entry in group:
                    self._refuse_if_illegal(writer, entry)
                _refuse_if_full(writer, [entry for entry in group if not entry.done])
                self._append(writer, [entry for entry in group if not entry.done])
        except Exception as error:
            _fail(group, error)
        except BaseException:
            # Only this thread is interrupted; the others get an error.
            _fail(group, _interrupted())
            raise

    def _refuse_if_illegal(self, writer: Writer, entry: _Entry) -> None:
        try:
            writer.check_fits(entry.batches)
            self._check(writer, entry.batches)
        except Exception as error:
            entry.error, entry.done = error, True

    def _append(self, writer: Writer, legal: list[_Entry]) -> None:
        if not legal:
            return
        batches = [batch for entry in legal for batch in entry.batches]
        whole = any(entry.whole for entry in legal)
        appended = iter(writer.append(batches, whole=whole, make_room=False))
        for entry in legal:
            entry.appended = [next(appended) for _ in entry.batches]
            entry.done = True


def _refuse_if_full(writer: Writer, legal: list[_Entry]) -> None:
    """Refuse messages if the disk is full, but not the acks of consumer groups."""
    messages = [one for one in legal if any(each.topic != POP_TOPIC for each in one.batches)]
    try:
        if messages:
            writer.cleaner.make_room(sum(entry.size for entry in messages))
    except StoreUnavailableError as error:
        _fail(messages, error)


def _fail(group: list[_Entry], error: Exception) -> None:
    for entry in group:
        if not entry.done:
            entry.error, entry.done = copy.copy(error), True


def _interrupted() -> StoreUnavailableError:
    return StoreUnavailableError(
        "a thread of this process was interrupted while it appended for several threads; it is"
        " not known whether this message is stored.",
        remedy="Check the end of its queue, or send it again and expect a duplicate.",
        code="APPEND_INTERRUPTED",
    )
