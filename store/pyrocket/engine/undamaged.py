"""Reads of a queue that skip damaged messages, so that one of them does not stop a service."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.record_slice import RecordSlice

_log = logging.getLogger(__name__)


def read_undamaged(
    reader: Reader, topic: str, queue_id: int, start: int, end: int, *, log_damaged: bool = False
) -> Iterator[RecordSlice]:
    """Yield the readable messages of [start, end), a few MiB at a time.

    With `log_damaged`, an error is logged for each of the others.
    """
    while start < end:
        piece = first_undamaged(reader, topic, queue_id, start, end)
        if piece is not None:
            yield piece
            start += len(piece.records)
            continue
        if log_damaged:
            _log.error("message %d of queue %d of %s is damaged", start, queue_id, topic)
        start += 1


def first_undamaged(
    reader: Reader, topic: str, queue_id: int, start: int, end: int
) -> RecordSlice | None:
    """Return the first messages of [start, end); None if the very first cannot be read."""
    while start < end:
        with suppress(StoreDamagedError, OffsetOutOfRangeError):
            return next(reader.records(topic, queue_id, start, end))
        end = start + (end - start) // 2
    return None
