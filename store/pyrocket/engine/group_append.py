"""Threads that append at the same time do it in one section: the first serves all who wait.

One turn at the lock, one move of each shared word and, later, one fsync then serve them together,
as LevelDB's writer queue does. Each append still succeeds or fails for itself where the fault is
its own; a failed write fails all that were written together.
"""

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.record_batch import Appended, EncodedBatch

_MAX_BYTES = 4 * 1024 * 1024
"""Of followers in one section; a leader's own batch may be of any size."""

Check = Callable[[Writer, Sequence[EncodedBatch]], None]
"""Raises if batches may not be appended; called in the section."""


@dataclass
class _Entry:
    """What one thread wants appended, and what became of it."""

    batches: Sequence[EncodedBatch]
    whole: bool
    appended: list[Appended] = field(default_factory=list)
    error: BaseException | None = None
    done: bool = False

    @property
    def size(self) -> int:
        return sum(batch.data.size for batch in self.batches)


class GroupAppend:
    """The appends of one open store, in the order in which they came."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._waiting: deque[_Entry] = deque()
        self._leading = threading.Lock()

    def append(
        self, writer: Writer, batches: Sequence[EncodedBatch], *, whole: bool = False
    ) -> list[Appended]:
        """Append the batches as one: all become visible together, or none.

        With `whole` a loss of power makes no difference to that.
        """
        entry = _Entry(batches, whole)
        self._waiting.append(entry)
        with self._leading:
            while not entry.done:
                self._serve(writer, self._next_group())
        if entry.error is not None:
            raise entry.error
        return entry.appended

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
                self._append(writer, [entry for entry in group if not entry.done])
        except Exception as error:
            _fail(group, error)
        except BaseException:
            # An interrupt is this thread's alone.
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
        appended = iter(writer.append(batches, whole=any(entry.whole for entry in legal)))
        for entry in legal:
            entry.appended = [next(appended) for _ in entry.batches]
            entry.done = True


def _fail(group: list[_Entry], error: Exception) -> None:
    for entry in group:
        if not entry.done:
            entry.error, entry.done = copy.copy(error), True


def _interrupted() -> StoreUnavailableError:
    return StoreUnavailableError(
        "a thread of this process was interrupted while it appended for several; whether this"
        " message is stored is not known.",
        remedy="Read the end of its queue, or send again and expect it twice.",
        code="APPEND_INTERRUPTED",
    )
