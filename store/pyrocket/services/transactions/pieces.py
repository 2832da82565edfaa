"""Messages of a queue as raw records; damaged ones are passed over, so that they block nobody."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.index.queues.scanner import Slice

_log = logging.getLogger(__name__)


def pieces(
    reader: Reader, topic: str, start: int, end: int, queue_id: int = 0, *, tell: bool = False
) -> Iterator[Slice]:
    """Yield the messages [start, end) of a queue that can be read; `tell` logs the others."""
    while start < end:
        piece = _piece(reader, topic, queue_id, start, end)
        if piece is not None:
            yield piece
            start += len(piece.records)
            continue
        if tell:
            _log.error("message %d of queue %d of %s is damaged", start, queue_id, topic)
        start += 1


def _piece(reader: Reader, topic: str, queue_id: int, start: int, end: int) -> Slice | None:
    """Return the first messages of [start, end); None if not even the first can be read."""
    while start < end:
        piece = _readable(reader, topic, queue_id, start, end)
        if piece is not None:
            return piece
        end = start + (end - start) // 2
    return None


def _readable(reader: Reader, topic: str, queue_id: int, start: int, end: int) -> Slice | None:
    with suppress(StoreDamagedError, OffsetOutOfRangeError):
        return next(reader.records(topic, queue_id, start, end))
    return None
