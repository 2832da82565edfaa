"""Decodes raw slices, for tests that compare messages."""

import numpy as np
from pyrocket import decode_slices
from pyrocket.errors import PyrocketError
from pyrocket.formats.record_columns import build_columns


def decoded(slices, columns=("body",), **options):
    """Return the batches of slices, in order."""
    return decode_slices(slices, columns, **options)


def scan_ranges(store, topic, ranges, columns=("body",), *, verify_crc=False, **options):
    """Return small ranges as one batch, or None if they must be scanned separately."""
    found = store.raw.slice_of_ranges(topic, ranges, **options)
    try:
        return None if found is None else found.decode_in_order(columns, verify_crc=verify_crc)
    except PyrocketError:
        return None


def decode_run(fields, queue, first_offset, columns, *, verify_crc=False):
    """Return records as columns; check that they are the records of a queue, starting at an
    offset.
    """
    fields.check_places(queue.topic, queue.queue_id, np.arange(len(fields)) + first_offset)
    return build_columns(fields, queue, columns, verify_crc=verify_crc)
