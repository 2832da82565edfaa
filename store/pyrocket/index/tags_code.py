"""What a queue entry says about a message besides its place.

The hash of its TAGS, 0 without; in the delay topic the time at which the message is due. Source:
`CommitLog.checkMessageAndReturnSize`, `ScheduleMessageService.computeDeliverTimestamp`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.properties import DELAY
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.formats.tags_hash import tags_hashes

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


def _levels(text: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the delay levels; 0 where there is none."""
    number = pc.if_else(pc.match_substring_regex(text, _LEVEL), text, pa.scalar("0"))
    return pc.fill_null(number, "0").cast(pa.int64()).to_numpy()
