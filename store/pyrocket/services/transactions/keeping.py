"""Undecided half messages that would be lost with old log files are put back before those go.

Whoever cleans does that, for all groups: nothing is counted and nobody is asked. They are the first
of their queue, so the half cursor passes them and no op message is needed. A producer that still
names the original is understood (`Ending`).
"""

from collections.abc import Sequence

from pyrocket.engine.writer import Writer
from pyrocket.formats.half_message import HalfMessage
from pyrocket.services.transactions.ledger import Ledger
from pyrocket.services.transactions.records import OWN_TOPICS, moved

_MAX_BYTES = 8 * 1024 * 1024


def keep_undecided(ledger: Ledger, writer: Writer, log_start: int) -> None:
    """Put back what lies before a log offset; see `Hooks.before_removal`."""
    with ledger.lock:
        ledger.catch_up(writer)
        going = [half for half in ledger.undecided if half.physical_offset < log_start]
        _put_back(ledger, writer, going)


def move_prefix(ledger: Ledger, writer: Writer, end: int) -> None:
    """Put back what lies before a queue offset; in a turn, caught up, and holding the lock."""
    going = [half for half in ledger.undecided if half.queue_offset < end]
    _put_back(ledger, writer, going)


def _put_back(ledger: Ledger, writer: Writer, going: Sequence[HalfMessage]) -> None:
    while going:
        part, size = 0, 0
        while part < len(going) and (not part or size + going[part].size <= _MAX_BYTES):
            size += going[part].size
            part += 1
        _put_back_part(ledger, writer, [half.queue_offset for half in going[:part]])
        going = going[part:]


def _put_back_part(ledger: Ledger, writer: Writer, offsets: Sequence[int]) -> None:
    ledger.catch_up(writer)
    ledger.make_rooms(writer, OWN_TOPICS)
    moves = ledger.undecided.settlement(offsets).moves
    writer.append(moved(ledger.reader, offsets), moves=moves, make_room=False)
