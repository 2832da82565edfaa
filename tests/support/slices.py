"""Decodes raw slices, for tests that compare messages."""

import numpy as np
from pyrocket import MessageQueue, QueueRange, StoreSource, decode_slices
from pyrocket.errors import PyrocketError
from pyrocket.formats.record_columns import build_columns


def decoded(slices, columns=("body",), **options):
    """Return the batches of slices, in order."""
    return decode_slices(slices, columns, **options)


def range_of(topic, queue_id, start, end):
    return QueueRange(MessageQueue(topic, "broker-a", queue_id), start, end)


def span_of(store, *place):
    """Return the place and the size of a range in the log."""
    (span,) = StoreSource(store).sizes([range_of(*place)])
    return span


def cuts_of(store, *place, marks):
    """Return the offsets up to which a range has these numbers of bytes."""
    (cuts,) = StoreSource(store).split_at_bytes([(range_of(*place), marks)])
    return cuts


def scan_ranges(store, topic, ranges, columns=("body",), *, verify_crc=False, **options):
    """Return small ranges as one batch, or None if they must be scanned separately."""
    places = [range_of(topic, *place) for place in ranges]
    found = StoreSource(store).joined_slice(places, **options)
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
