"""What becomes of a batch: published, dropped because it was published before, or refused.

The log tells which batch of a query was published last (`services.sink_ledger`), the notes which
ones after it had no rows (`services.empty_batches`). Spark counts batches one by one and repeats
only the last, so any other number means that a checkpoint or a store is not the newest one.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from pyrocket.disk.machine import Timestamp
from pyrocket.errors import SinkError
from pyrocket.formats.publish_record import RECORD_VERSION, SinkRecord
from pyrocket.services.sink.batch import ACCEPT, FAIL, PUBLISH, PublishPolicy, query_key
from pyrocket.services.sink.empty_batches import EmptyBatches
from pyrocket.services.sink.ledger import LedgerEntry, SinkLedger

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decision:
    """drop: whether the batch was published before. last: the last batch of its query with rows.

    remark: what an operator has to know about it, at a level of `logging`; empty for nothing.
    """

    drop: bool
    last: LedgerEntry | None
    remark: str = ""
    level: int = logging.ERROR

    def log(self) -> None:
        """Log the remark."""
        if self.remark:
            _log.log(self.level, "%s", self.remark)


@dataclass(frozen=True)
class _History:
    """last: the newest batch that is accounted for, -1 for none. time_ms: of what says so.

    complete: whether batches without rows are noted from there on.
    """

    last: int
    time_ms: int
    complete: bool


class Decisions:
    """Decides for one store; `store` is its uuid. Needs no lock; in a section it is final."""

    def __init__(self, root: Path, store: str, ledger: SinkLedger, empty: EmptyBatches) -> None:
        self._root, self._store, self._ledger, self._empty = root, store, ledger, empty

    def decide(self, record: SinkRecord, policy: PublishPolicy) -> Decision:
        """Return what becomes of a batch. Raises SinkError, StoreDamagedError.

        SINK_FENCED: another run has come after this one. SINK_BATCH_BEHIND: a later batch was
        published. SINK_BATCH_DIFFERS: this number was published with other rows. SINK_BATCH_GAP:
        batches before it are missing here. SINK_STORE_CHANGED: all batches before it are.
        """
        known = self._ledger.last(record.key)
        if known is not None:
            check_run(known, record)
            if record.batch < known.batch:
                raise _behind(known, record)
            if record.batch == known.batch:
                return _replayed(known, record, policy)
        # An application chooses its numbers; Spark counts.
        return self._after(known, record, policy) if record.run else Decision(False, known)

    def note_empty(self, record: SinkRecord) -> None:
        """Note a batch without rows that was not published before. Raises OSError."""
        newest, key = self._ledger.newest(record.identity), query_key(record.identity)
        after, note = newest.batch if newest else -1, self._empty.of(key)
        if note is None or note.after != after or note.last < record.batch:
            self._empty.note(key, after, record.batch)

    def _after(
        self, known: LedgerEntry | None, record: SinkRecord, policy: PublishPolicy
    ) -> Decision:
        history = self._history(record.identity)
        if record.batch <= max(history.last, known.batch if known else -1) + 1:
            return Decision(False, known)
        if history.last < 0:
            error = self._changed(record)
        elif not history.complete:
            return Decision(False, known, _not_noted(record, history.last), logging.WARNING)
        else:
            error = self._gap(record, history.last)
            if self._empty.ended_uncleanly_since(history.time_ms):
                lost = "The machine ended uncleanly since: notes of batches without rows are lost."
                return Decision(False, known, f"{error.message} {lost}")
        if policy.on_gap != ACCEPT:
            raise error
        return Decision(False, known, f"{error.message} This is accepted.")

    def _history(self, identity: str) -> _History:
        """Return the history of a query, which may have gone on with another target."""
        newest, note = self._ledger.newest(identity), self._empty.of(query_key(identity))
        if note is not None and (newest is None or note.after == newest.batch):
            return _History(note.last, note.time_ms, complete=True)
        if newest is None:
            return _History(-1, 0, complete=True)
        return _History(newest.batch, newest.time_ms, newest.version >= RECORD_VERSION)

    def _changed(self, record: SinkRecord) -> SinkError:
        return SinkError(
            f"{record.name} comes with batch {record.batch}, and the store {self._store} at"
            f" {self._root} has no batch of it: the query wrote to another store until now.",
            remedy="Mount or restore that store. To go on in this one set the option"
            " onBatchGap=accept; to publish everything again give the query a new checkpoint"
            " location.",
            code="SINK_STORE_CHANGED",
        )

    def _gap(self, record: SinkRecord, last: int) -> SinkError:
        return SinkError(
            f"{record.name} comes with batch {record.batch}, and the store {self._store} at"
            f" {self._root} ends with batch {last}: {_missing(last + 1, record.batch - 1)} here."
            " This is an older copy of the store that the query wrote to.",
            remedy="Restore the newest copy of the store. To go on without these batches set the"
            " option onBatchGap=accept.",
            code="SINK_BATCH_GAP",
        )


def check_run(known: LedgerEntry, record: SinkRecord) -> None:
    """Raise SinkError (SINK_FENCED) if another run of the query has come after this one.

    A run that has published nothing yet is told by when its batch began: a run that repeats what a
    dead one has left begins after it, one that was held up and comes too late began before.
    """
    run, began = record.run, Timestamp(record.boot, record.began)
    if not run or run == known.run:
        return
    if run in known.past_runs or began.before(Timestamp(known.boot, known.began)):
        raise SinkError(
            f"{record.name} runs twice: run {known.run} has taken over from run {run}.",
            remedy="Stop one of them; the later one goes on.",
            code="SINK_FENCED",
        )


def _behind(known: LedgerEntry, record: SinkRecord) -> SinkError:
    return SinkError(
        f"{record.name} has published batch {known.batch} already, and now comes batch"
        f" {record.batch}: its checkpoint has been removed or is an old one.",
        remedy="Restore the checkpoint. To publish everything again, and so twice, give the"
        " sink another identity: a new checkpoint location, or another txnAppId.",
        code="SINK_BATCH_BEHIND",
    )


def _replayed(known: LedgerEntry, record: SinkRecord, policy: PublishPolicy) -> Decision:
    if _is_the_same(known, record):
        return Decision(True, known)
    happened = (
        f"{record.name} published batch {record.batch} with {_figures(known)}, and now it comes"
        f" with {_figures(record)}."
    )
    if policy.on_difference == FAIL:
        raise SinkError(
            f"{happened} The checkpoint was restored, or the query does not make the same rows of"
            " the same input.",
            remedy="Set the option onReplayDifference: drop keeps what was published and leaves"
            " these rows out, publish publishes them as well, so that some are there twice.",
            code="SINK_BATCH_DIFFERS",
        )
    publishes = policy.on_difference == PUBLISH
    done = "These rows are published as well." if publishes else "These rows are dropped."
    return Decision(not publishes, known, f"{happened} {done}")


def _is_the_same(known: LedgerEntry, record: SinkRecord) -> bool:
    if not known.rows:  # Only the coming of a run is known: the log has lost the batch's record.
        return True
    if known.version < RECORD_VERSION:
        return known.rows == record.rows and known.bytes in (0, record.bytes)
    figures = ((one.rows, one.content_bytes, one.content) for one in (known, record))
    return next(figures) == next(figures)


def _figures(batch: LedgerEntry | SinkRecord) -> str:
    if batch.version < RECORD_VERSION:
        return f"{batch.rows} rows"
    return f"{batch.rows} rows of {batch.content_bytes} bytes (content sum {batch.content:x})"


def _not_noted(record: SinkRecord, last: int) -> str:
    return (
        f"{record.name} goes on with batch {record.batch} after batch {last}, which an earlier"
        " release published: it did not note which of those between had no rows."
    )


def _missing(first: int, last: int) -> str:
    return (
        f"batch {first} is missing" if first == last else f"batches {first} to {last} are missing"
    )
