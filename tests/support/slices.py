"""Raw slices decoded, for tests that compare messages."""

import numpy as np
from pyrocket import decode_slices
from pyrocket.errors import PyrocketError
from pyrocket.formats.record_columns import build_columns


def decoded(slices, columns=("body",), **options):
    """The batches of slices, in their order."""
    return decode_slices(slices, columns, **options)


def scan_ranges(store, topic, ranges, columns=("body",), *, verify_crc=False, **options):
    """Small ranges as one batch; None if they have to be read one by one."""
    found = store.raw.slice_of_ranges(topic, ranges, **options)
    try:
        return None if found is None else found.decode_in_order(columns, verify_crc=verify_crc)
    except PyrocketError:
        return None


def decode_run(fields, queue, first_offset, columns, *, verify_crc=False):
    """Records as columns, checked to be those of a queue from an offset on."""
    fields.check_places(queue.topic, queue.queue_id, np.arange(len(fields)) + first_offset)
    return build_columns(fields, queue, columns, verify_crc=verify_crc)
