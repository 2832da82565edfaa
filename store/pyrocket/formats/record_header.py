"""The 88 bytes before the body of a record with IPv4 hosts, as numpy sees them.

`record` has the table; with an IPv6 host what follows it lies 12 bytes further.
"""

import numpy as np

from pyrocket.formats.record import HEADER_BYTES

HEADER = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "S8"),
        ("store_timestamp", ">i8"),
        ("store_host", "S8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES


def offset_of(field: str) -> int:
    """Return where a field begins."""
    return int(HEADER.fields[field][1]) if HEADER.fields else 0
