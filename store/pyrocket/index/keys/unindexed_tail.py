"""The end of the log that the key index does not know yet, looked through by the reader.

Most of it writers have noted (`PendingKeys`), the rest is read. What has been looked through is
kept, as hashes and offsets, so that the next query goes on there.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.key_items import KeyItems, key_items
from pyrocket.index.keys.key_search import among
from pyrocket.index.keys.pending_keys import PendingKeys
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, walk

KEPT_ITEMS = 4 * 1024 * 1024
"""About 50 MB. A store without an index has more: they are looked for in the log each time."""


@dataclass(frozen=True)
class _Known:
    """The items of [start, end), as long as the store's `mark` stays what it is."""

    mark: int | None
    start: int
    end: int
    hashes: Ints
    offsets: Ints

    def since(self, start: int) -> "_Known":
        """Return what is known of [start, end)."""
        first = int(self.offsets.searchsorted(start))
        return _Known(self.mark, start, self.end, self.hashes[first:], self.offsets[first:])

    def until(self, end: int, items: KeyItems) -> "_Known":
        """Return the same with the items that follow, up to `end`."""
        hashes = np.concatenate((self.hashes, items.hashes))
        offsets = np.concatenate((self.offsets, items.offsets))
        return _Known(self.mark, self.start, end, hashes, offsets)


class UnindexedTail:
    """Looks through one log. Safe to share between threads: what is known is replaced whole.

    `notes` is where writers note keys.
    """

    def __init__(self, log: CommitLog, notes: Path | None = None) -> None:
        self._log, self._notes = log, notes
        self._known = _nothing(None, 0)

    def search(self, wanted: Ints, start: int, end: int, mark: int | None) -> Ints:
        """Return log offsets of messages in [start, end) that may have a key, in log order.

        The keys are those with one of the hashes. Where `end` is not known (WHOLE_LOG) the first
        record that is not whole ends the log. Another `mark`, or None, means that the log may have
        changed. Raises StoreDamagedError.
        """
        known = self._known
        if mark is not None and known.mark == mark and known.start <= start <= known.end <= end:
            known = known.since(start)
        else:
            known = _nothing(mark, start)
        reached, behind = known.end, list[Ints]()
        for items, until in self._parts(known.end, end):
            if known.end == reached and len(known.hashes) + len(items) <= KEPT_ITEMS:
                known = known.until(until, items)
            else:
                behind.append(items.offsets[among(items.hashes, wanted)])
            reached = until
        if end not in (reached, WHOLE_LOG):
            first = self._log.first_offset()
            if first <= start:
                raise _torn(reached, end)
            return self.search(wanted, first, end, None)  # The start was cleaned away.
        self._known = known
        return np.concatenate((known.offsets[among(known.hashes, wanted)], *behind))

    def _parts(self, start: int, end: int) -> Iterator[tuple[KeyItems, int]]:
        """Yield the items of the log's [start, end) part by part, and where each part ends."""
        reached, noted = start, self._noted(start, end)
        if noted is not None:
            first, last, items = noted
            for part, until in self._logged(start, first):
                yield part, until
                reached = until
            if reached != first:
                return
            yield items, last
            reached = last
        yield from self._logged(reached, end)

    def _logged(self, start: int, end: int) -> Iterator[tuple[KeyItems, int]]:
        """Read the log; where `end` is not known, up to the first record that is not whole."""
        for run in walk(self._log, start, end):
            whole = run if end != WHOLE_LOG else _whole(run)
            if len(whole):
                yield key_items(whole), end_of(whole)
            if len(whole) < len(run):
                return

    def _noted(self, start: int, end: int) -> tuple[int, int, KeyItems] | None:
        """Return a part [first, last) of [start, end) that is noted, and its items."""
        if self._notes is None or end == WHOLE_LOG:
            return None
        # Opened each time: after a recovery there is another file.
        with suppress(OSError), closing(PendingKeys(self._notes)) as notes:
            header = notes.header()
            first, last = max(header.start, start), min(header.end, end)
            items = notes.items(header) if first < last else None
            if items is not None:
                bounds = items.offsets.searchsorted([first, last])
                return first, last, items[slice(*bounds.tolist())]
        return None


_NO_OFFSETS = np.zeros(0, np.int64)


def _nothing(mark: int | None, start: int) -> _Known:
    return _Known(mark, start, start, np.zeros(0, np.int32), _NO_OFFSETS)


def _torn(reached: int, end: int) -> StoreDamagedError:
    return StoreDamagedError(
        f"corrupt log: it should go on until {end}, but no record follows {reached}.",
        remedy="Restore the log from a backup.",
    )


def _whole(run: RecordFields) -> RecordFields:
    """Return the first records of the run, up to one that is not whole."""
    good, bad = 0, len(run) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            run.head(middle).check_structure()
            good = middle
        except StoreDamagedError:
            bad = middle
    return run.head(good)
