"""Where parked messages are to go: their properties REAL_TOPIC and REAL_QID, in columns."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import REAL_QID, REAL_TOPIC
from pyrocket.formats.property_columns import PropertyColumns

_QUEUE_ID = "^[0-9]{1,9}$"


@dataclass(frozen=True)
class RealPlaces:
    """Of each message, the place of its topic in `names`, and its queue; -1 where it has none."""

    names: list[str]
    codes: npt.NDArray[np.int32]
    queue_ids: Ints


def real_places(properties: PropertyColumns) -> RealPlaces:
    """Return where the messages with these properties are to go."""
    topics = properties.column(REAL_TOPIC).dictionary_encode()
    codes = pc.fill_null(topics.indices, -1).to_numpy()
    return RealPlaces(
        topics.dictionary.to_pylist(), codes, numbers(properties.column(REAL_QID), _QUEUE_ID)
    )


def numbers(text: pa.StringArray, pattern: str) -> Ints:
    """Return what matches `pattern`, whole numbers, and -1 where nothing does."""
    number = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar("-1"))
    return pc.fill_null(number, "-1").cast(pa.int64()).to_numpy()
