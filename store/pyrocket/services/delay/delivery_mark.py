"""What a parked message and the copy of it that was delivered have in common, as one text each.

Its id alone does not do: RocketMQ parks a message again and again that a consumer could not
process, with one id and mostly another level.
"""

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.properties import DELAY, REAL_QID, REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import RecordFields

_NAMES = (UNIQ_KEY, DELAY, TIMER_OUT_MS, REAL_TOPIC, REAL_QID)


def delivery_marks(run: RecordFields) -> pa.StringArray:
    """Return the mark of each message, parked or delivered, of a checked run."""
    properties = PropertyColumns(run.properties())
    numbers = (run.field("born_timestamp"), run.field("crc"), run.body_length)
    return pc.binary_join_element_wise(
        *map(properties.column, _NAMES),
        *(pa.array(each).cast(pa.string()) for each in numbers),
        "\x01",
        null_handling="replace",
    )


def are_delivered(run: RecordFields) -> pa.BooleanArray:
    """Return which messages of a checked run were parked once: they are where they were to go."""
    properties = PropertyColumns(run.properties())
    home = properties.column(REAL_TOPIC).cast(pa.binary())
    waited = pc.or_(
        pc.is_valid(properties.column(DELAY)), pc.is_valid(properties.column(TIMER_OUT_MS))
    )
    return pc.fill_null(pc.and_(waited, pc.equal(home, run.topics())), False)
