"""The header of an index file, its items and the log agree where it begins and ends, and when."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from pyrocket.formats.index_file import IndexHeader
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import IndexFileInfo

FOLLOWED = "it is not full, and yet another file follows it."


def wrong_slots(header: IndexHeader, filled: int) -> str:
    """Return what is wrong with the number of slots; RocketMQ up to 4.7.0 counted every item."""
    if filled <= header.slot_count < header.count:
        return ""
    return f"it says that it has {header.slot_count} slots that are not empty, and has {filled}."


class KeyTimes:
    """Compares the times of the headers of files with those of the log, run by run."""

    def __init__(self, files: Sequence[IndexFileInfo]) -> None:
        self._files = files
        self._left = sorted(
            (offset, number, word, time)
            for number, file in enumerate(files)
            for word, offset, time in (
                ("begins", file.header.begin_offset, file.header.begin_timestamp),
                ("ends", file.header.end_offset, file.header.end_timestamp),
            )
        )
        self._wrong: dict[int, str] = {}

    def feed(self, run: RecordFields) -> None:
        """Compare with the times of a run; what was compared is done with."""
        known, left = run.physical_offset, self._left
        first = bisect_left(left, (int(known[0]),))
        last = bisect_right(left, (int(known[-1]) + 1,))
        unseen = []
        for edge in left[first:last]:
            offset, number, word, time = edge
            row = int(known.searchsorted(offset))
            if row == len(known) or known[row] != offset:
                unseen.append(edge)
                continue
            stored = int(run.store_timestamp[row])
            if stored != time:
                what = f"it says that it {word} at {time} ms, and the log at {stored}."
                self._wrong.setdefault(number, what)
        self._left[first:last] = unseen

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield the names of files whose times are wrong, and what is."""
        for _, number, _, _ in self._left:
            if not self._files[number].times_agree:
                what = "it says that it begins or ends when its items deny it."
                self._wrong.setdefault(number, what)
        for number, what in sorted(self._wrong.items()):
            yield self._files[number].name, what
