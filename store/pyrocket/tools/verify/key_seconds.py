"""Items of the key index have the times of their records: a query for a time goes by them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import seconds_after
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import IndexFileInfo

MessageLocations = npt.NDArray[np.void]
"""Of items: the number of the `file`, and the `seconds` after its begin."""

_PLACE = np.dtype([("file", "i8"), ("seconds", "i8")])
_ANY = -1 << 40


def places_of(file: int, seconds: npt.ArrayLike, *, first: bool) -> MessageLocations:
    """Return the places of a block of items; if it is the `first`, of all from the first item on.

    That one counts from where the file before it ended, and nobody looks at its time.
    """
    known = np.asarray(seconds, np.int64)
    places = np.empty(len(known), _PLACE)
    places["file"], places["seconds"] = file, known
    places["seconds"][: int(first)] = _ANY
    return places


def mistimed(
    run: RecordFields, offsets: Ints, places: MessageLocations, files: Sequence[IndexFileInfo]
) -> npt.NDArray[np.int64]:
    """Return the files of those items, of records at these log offsets, whose time is another's."""
    rows = np.minimum(np.searchsorted(run.physical_offset, offsets), len(run) - 1)
    known = (run.physical_offset[rows] == offsets) & (places["seconds"] != _ANY)
    stored, wrong = run.store_timestamp[rows], np.zeros(len(places), bool)
    for number in np.unique(places["file"]).tolist():
        expected = seconds_after(files[number].header.begin_timestamp, stored)
        wrong |= known & (places["file"] == number) & (places["seconds"] != expected)
    return places["file"][wrong]
