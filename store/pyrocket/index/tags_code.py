"""What a queue entry says about a message besides its place.

The hash of its TAGS, 0 without; in the delay topic the time at which the message is due. Source:
`CommitLog.checkMessageAndReturnSize`, `ScheduleMessageService.computeDeliverTimestamp`.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.config import DELAY_LEVELS_MS
from pyrocket.formats.java_hash import java_hash_column
from pyrocket.formats.properties import DELAY, TAGS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import RecordFields

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_LEVEL = r"^[0-9]{1,9}$"


def tags_codes(run: RecordFields) -> npt.NDArray[np.int64]:
    """Return the tagsCode of each record."""
    properties = PropertyColumns(run.properties())
    tags = properties.column(TAGS).dictionary_encode()
    hashes = np.append(java_hash_column(tags.dictionary), 0).astype(np.int64)
    codes = hashes[pc.fill_null(tags.indices, len(hashes) - 1).to_numpy()]
    delayed = pc.equal(run.topics(), SCHEDULE_TOPIC.encode()).to_numpy(zero_copy_only=False)
    if not delayed.any():
        return codes
    levels = _levels(properties.column(DELAY))
    delays = np.array((0, *DELAY_LEVELS_MS))[np.minimum(levels, len(DELAY_LEVELS_MS))]
    return np.where(delayed & (levels > 0), run.store_timestamp + delays, codes)


def _levels(text: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the delay levels; 0 where there is none."""
    number = pc.if_else(pc.match_substring_regex(text, _LEVEL), text, pa.scalar("0"))
    return pc.fill_null(number, "0").cast(pa.int64()).to_numpy()
