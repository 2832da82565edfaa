"""What a queue entry says about a message besides its place.

The hash of its TAGS, 0 without; in the delay topic the time at which the message is due. Source:
`CommitLog.checkMessageAndReturnSize`, `ScheduleMessageService.computeDeliverTimestamp`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.hashes import tags_hashes
from pyrocket.formats.properties import DELAY
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record_crc import OUR_HOST
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC

_SECOND = 1000
_LEVEL = r"^[0-9]{1,9}$"


def tags_codes(run: RecordFields, delay_levels_ms: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the tagsCode of each record; level n waits `delay_levels_ms[n - 1]`."""
    properties = PropertyColumns(run.properties())
    codes = tags_hashes(properties)
    delayed = pc.equal(run.topics(), SCHEDULE_TOPIC.encode()).to_numpy(zero_copy_only=False)
    if not delayed.any():
        return codes
    levels = _levels(properties.column(DELAY))
    delays = np.array((0, *delay_levels_ms))[np.minimum(levels, len(delay_levels_ms))]
    return np.where(delayed & (levels > 0), run.store_timestamp + delays, codes)


def underivable(
    run: RecordFields, entries: Entries, found: Entries, *, ours_too: bool = False
) -> Bools:
    """Return which of the entries found are right though their tags code is not `entries`'.

    They are a broker's, of the same messages, which are by delay level: when those are due it has
    told by levels that it keeps nowhere. A code that is no whole seconds after the store time is
    damage. `entries` are of records of the run. With `ours_too` our levels are not known either.
    """
    records = run.part(np.searchsorted(run.physical_offset, entries["physical_offset"]))
    same = np.asarray(found["physical_offset"] == entries["physical_offset"], bool)
    same &= found["size"] == entries["size"]
    delays = found["tags_code"] - records.store_timestamp
    same &= (delays > 0) & (delays % _SECOND == 0)
    if same.any():
        same &= _levels(PropertyColumns(records.properties()).column(DELAY)) > 0
    return same if ours_too else same & ~records.has_store_host(OUR_HOST)


def _levels(text: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the delay levels; 0 where there is none."""
    number = pc.if_else(pc.match_substring_regex(text, _LEVEL), text, pa.scalar("0"))
    return pc.fill_null(number, "0").cast(pa.int64()).to_numpy()
