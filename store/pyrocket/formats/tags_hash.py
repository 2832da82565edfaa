"""The number by which RocketMQ filters tags: Java's hash of the TAGS property, 0 without one."""

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pyrocket.formats.java_hash import java_hash_column
from pyrocket.formats.properties import TAGS
from pyrocket.formats.property_columns import PropertyColumns


def tags_hashes(properties: PropertyColumns) -> npt.NDArray[np.int64]:
    """Return the hash of each record's tags."""
    tags = properties.column(TAGS).dictionary_encode()
    hashes = np.append(java_hash_column(tags.dictionary), 0).astype(np.int64)
    return hashes[pc.fill_null(tags.indices, len(hashes) - 1).to_numpy()]
