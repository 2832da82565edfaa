"""An index file as it was when somebody looked, and whether its header is to be believed.

One flipped bit in a header hides all keys of a file from whoever believes it, or those behind it.
So the header is compared with the first and the last item, whenever it has changed: its times to
the second, because items know them to the second. `IndexCoverage` compares them with the log.
"""

from dataclasses import dataclass

import numpy as np

from pyrocket.formats.index_file import ITEM, IndexHeader, seconds_after
from pyrocket.index.keys.index_file import IndexFile

_LOOKS = 3


@dataclass(frozen=True)
class IndexFileInfo:
    """A file as it was when somebody looked; `inode` tells it from others of its name.

    flaw: what the header says of the log that its items deny; "" where they agree. times_fit:
    whether the times of the header are as far apart as the items are.
    """

    name: str
    inode: int
    header: IndexHeader
    flaw: str = ""
    times_fit: bool = True


def look_at(name: str, file: IndexFile, known: IndexFileInfo | None = None) -> IndexFileInfo:
    """Look at an open file, one with `known`'s header only at that. Raises StoreDamagedError.

    A header may be read while it is being written: it is read again where it makes no sense.
    """
    looks = 0
    while True:
        header, looks = file.header(), looks + 1
        if known is not None and known.inode == file.inode and known.header == header:
            return known
        first, last = _NO_ITEM, _NO_ITEM
        if header.count > 1:
            first, last = file.items(1, 2)[0], file.items(header.count - 1, header.count)[0]
        flaw, fit = _flaw(header, first, last), _times_fit(header, int(last["seconds"]))
        if looks == _LOOKS or (fit and not flaw):
            return IndexFileInfo(name, file.inode, header, flaw, fit)


_NO_ITEM = np.zeros(1, ITEM)[0]


def _flaw(header: IndexHeader, first: np.void, last: np.void) -> str:
    if header.count == 1:
        moved = header.begin_offset != header.end_offset
        moved |= header.begin_timestamp != header.end_timestamp
        return (
            "it says that it has no items, and yet goes on from where it begins." if moved else ""
        )
    begin, end = int(first["physical_offset"]), int(last["physical_offset"])
    if header.begin_offset != begin:
        return f"it says that it begins at {header.begin_offset}, and its first item at {begin}."
    if header.end_offset != end:
        return f"it says that it ends at {header.end_offset}, and its last item at {end}."
    return ""


def _times_fit(header: IndexHeader, seconds: int) -> bool:
    """Whether the last item is as much later as the header says; RocketMQ counts none from 0."""
    begin, end = header.begin_timestamp, header.end_timestamp
    if header.count == 1:
        return True
    expected = int(seconds_after(begin, np.array([end]))[0])
    return begin >= 0 and (begin <= end or begin == 0) and seconds == expected
