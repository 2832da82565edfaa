"""Converts slices of records to blocks and back. Blocks also carry the counts of a `ScanTally`."""

from collections.abc import Iterable, Iterator, Sequence

from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.formats.wire_block import decode_block, encode_block, pieces
from pyrocket.values.message import MessageQueue, QueueRange


def blocks_of(
    slices: Iterable[RecordSlice | None], tally: ScanTally, ranges: Sequence[QueueRange] = ()
) -> Iterator[bytes]:
    """Yield each slice as blocks, and each None as a block that has only counts.

    If `slices` raises an error, a block with the counts so far precedes it.
    """
    sent = ScanTally()
    at = 0
    try:
        for part in slices:
            if part is None:
                yield _block(None, at, tally, sent)
                continue
            while at < len(ranges) - 1 and not _is_of(part, ranges[at]):
                at += 1
            for piece in pieces(part):
                yield _block(piece, at, tally, sent)
    except PyrocketError:
        yield _block(None, at, tally, sent)
        raise
    yield _block(None, at, tally, sent)


def _is_of(part: RecordSlice, each: QueueRange) -> bool:
    return part.queue == each.queue and each.start <= part.first_offset < each.end


def _block(part: RecordSlice | None, at: int, tally: ScanTally, sent: ScanTally) -> bytes:
    entries, records = tally.entries - sent.entries, tally.records - sent.records
    sent.entries, sent.records = tally.entries, tally.records
    return encode_block(part, range_index=at, entries=entries, records=records)


def blocks_in(
    replies: Iterable[bytes], queues: list[MessageQueue], log_file_bytes: int, tally: ScanTally
) -> Iterator[tuple[int, RecordSlice]]:
    """Yield each slice with the index of its range, and add the counts of its block to `tally`."""
    for data in replies:
        block = decode_block(data, queues, log_file_bytes)
        tally.entries += block.entries
        tally.records += block.records
        if block.part is not None:
            tally.messages += len(block.part)
            yield block.range, block.part
