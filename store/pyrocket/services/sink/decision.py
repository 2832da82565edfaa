"""Decides whether a batch is published, dropped because it was published before, or refused.

The ledger contains the last published batch of a query, and `empty_batches` the later batches
without rows. Spark numbers batches consecutively and repeats only the last batch. Any other number
means that the checkpoint or the store is outdated.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from pyrocket.disk.machine import BootTime
from pyrocket.errors import SinkError
from pyrocket.formats.publish_record import RECORD_VERSION, SinkRecord
from pyrocket.services.sink.batch import PublishPolicy, query_key
from pyrocket.services.sink.empty_batches import EmptyBatches
from pyrocket.services.sink.ledger import LedgerEntry, SinkLedger
from pyrocket.values.sink import ACCEPT, FAIL, PUBLISH

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decision:
    """The decision about a batch that is not refused.

    drop: whether the batch was published before. last: the query's last published batch.
    remark: a log line for the operator, or "". level: its log level.
    """

    drop: bool
    last: LedgerEntry | None
    remark: str = ""
    level: int = logging.ERROR

    def log(self) -> None:
        if self.remark:
            _log.log(self.level, "%s", self.remark)


@dataclass(frozen=True)
class _History:
    """The batches of a query in this store.

    last: the newest batch, with or without rows; -1 for none. time_ms: when `last` was recorded.
    complete: whether batches without rows were recorded too; if so, a gap after `last` means that
    batches are lost.
    """

    last: int
    time_ms: int
    complete: bool


class Decisions:
    """Decides for the store with this uuid. A decision is final only under the write lock."""

    def __init__(self, root: Path, store: str, ledger: SinkLedger, empty: EmptyBatches) -> None:
        self._root, self._store, self._ledger, self._empty = root, store, ledger, empty

    def decide(self, record: SinkRecord, policy: PublishPolicy) -> Decision:
        """Return the decision about a batch.

        Raises StoreDamagedError, and SinkError with one of the codes
        SINK_FENCED: a newer run of the query has published.
        SINK_BATCH_BEHIND: a later batch was published.
        SINK_BATCH_DIFFERS: this batch was published with other rows.
        SINK_BATCH_GAP: batches before this one are missing in the store.
        SINK_STORE_CHANGED: all batches before this one are missing in the store.
        """
        known = self._ledger.last(record.key)
        if known is not None:
            check_run(known, record)
            if record.batch < known.batch:
                raise _behind(known, record)
            if record.batch == known.batch:
                return _replayed(known, record, policy)
        # Applications choose their numbers freely; only Spark's numbers are consecutive.
        return self._after(known, record, policy) if record.run else Decision(False, known)

    def record_empty(self, record: SinkRecord) -> None:
        """Record a batch without rows that was not published before. Raises OSError."""
        newest, key = self._ledger.newest(record.identity), query_key(record.identity)
        after, marker = newest.batch if newest else -1, self._empty.of(key)
        if marker is None or marker.after != after or marker.last < record.batch:
            self._empty.record(key, after, record.batch)

    def _after(
        self, known: LedgerEntry | None, record: SinkRecord, policy: PublishPolicy
    ) -> Decision:
        history = self._history(record.identity)
        if record.batch <= max(history.last, known.batch if known else -1) + 1:
            return Decision(False, known)
        if history.last < 0:
            error = self._store_changed(record)
        elif not history.complete:
            return Decision(False, known, _not_recorded(record, history.last), logging.WARNING)
        else:
            error = self._gap(record, history.last)
            if self._empty.ended_uncleanly_since(history.time_ms):
                lost = (
                    "The machine has crashed since then, so markers of empty batches may be lost."
                )
                return Decision(False, known, f"{error.message} {lost}")
        if policy.on_gap != ACCEPT:
            raise error
        return Decision(
            False, known, f"{error.message} It is published because of onBatchGap=accept."
        )

    def _history(self, identity: str) -> _History:
        """Return the history of a query with all its targets."""
        newest, marker = self._ledger.newest(identity), self._empty.of(query_key(identity))
        if marker is not None and (newest is None or marker.after == newest.batch):
            return _History(marker.last, marker.time_ms, complete=True)
        if newest is None:
            return _History(-1, 0, complete=True)
        return _History(newest.batch, newest.time_ms, newest.version >= RECORD_VERSION)

    def _store_changed(self, record: SinkRecord) -> SinkError:
        return SinkError(
            f"{record.name} publishes batch {record.batch}, and the store {self._store} at"
            f" {self._root} has no earlier batch of it: the query wrote to another store before.",
            remedy="Mount or restore that store. To continue in this store, set the option"
            " onBatchGap=accept; to publish everything again, give the query a new checkpoint"
            " location.",
            code="SINK_STORE_CHANGED",
        )

    def _gap(self, record: SinkRecord, last: int) -> SinkError:
        return SinkError(
            f"{record.name} publishes batch {record.batch}, and its last batch in the store"
            f" {self._store} at {self._root} is {last}: {_missing(last + 1, record.batch - 1)}"
            " here. This is an older copy of the store that the query wrote to.",
            remedy="Restore the newest copy of the store. To continue without these batches, set"
            " the option onBatchGap=accept.",
            code="SINK_BATCH_GAP",
        )


def check_run(known: LedgerEntry, record: SinkRecord) -> None:
    """Raise SinkError (SINK_FENCED) if a newer run of the query has published.

    A run that has not published yet is newer if its batch began later than the last published one.
    A run that repeats the batch of a crashed run begins later; a run that was only slow began
    earlier.
    """
    run, began = record.run, BootTime(record.boot, record.began)
    if not run or run == known.run:
        return
    if run in known.past_runs or began.before(BootTime(known.boot, known.began)):
        raise SinkError(
            f"{record.name} runs twice: run {known.run} has taken over from run {run}.",
            remedy="Stop one of them; only the later one can publish.",
            code="SINK_FENCED",
        )


def _behind(known: LedgerEntry, record: SinkRecord) -> SinkError:
    return SinkError(
        f"{record.name} publishes batch {record.batch}, but has already published batch"
        f" {known.batch}: its checkpoint was deleted or is outdated.",
        remedy="Restore the checkpoint. To publish everything a second time, give the"
        " sink another identity: a new checkpoint location, or another txnAppId.",
        code="SINK_BATCH_BEHIND",
    )


def _replayed(known: LedgerEntry, record: SinkRecord, policy: PublishPolicy) -> Decision:
    if _is_same(known, record):
        return Decision(True, known)
    happened = (
        f"{record.name} published batch {record.batch} with {_figures(known)}, and repeats it"
        f" with {_figures(record)}."
    )
    if policy.on_difference == FAIL:
        raise SinkError(
            f"{happened} The checkpoint was restored, or the query does not produce the same rows"
            " from the same input.",
            remedy="Set the option onReplayDifference: drop keeps the published rows and drops"
            " the repeated ones, publish also publishes these, so that some rows exist twice.",
            code="SINK_BATCH_DIFFERS",
        )
    publishes = policy.on_difference == PUBLISH
    done = "These rows are published as well." if publishes else "These rows are dropped."
    return Decision(not publishes, known, f"{happened} {done}")


def _is_same(known: LedgerEntry, record: SinkRecord) -> bool:
    if not known.rows:  # Only a FENCE is known; the batch's own record is no longer in the log.
        return True
    if known.version < RECORD_VERSION:
        return known.rows == record.rows and known.bytes in (0, record.bytes)
    figures = ((entry.rows, entry.content_bytes, entry.content) for entry in (known, record))
    return next(figures) == next(figures)


def _figures(batch: LedgerEntry | SinkRecord) -> str:
    if batch.version < RECORD_VERSION:
        return f"{batch.rows} rows"
    return f"{batch.rows} rows of {batch.content_bytes} bytes (content sum {batch.content:x})"


def _not_recorded(record: SinkRecord, last: int) -> str:
    return (
        f"{record.name} publishes batch {record.batch} after batch {last}, which an earlier"
        " release published without recording the batches in between that had no rows."
    )


def _missing(first: int, last: int) -> str:
    return (
        f"batch {first} is missing" if first == last else f"batches {first} to {last} are missing"
    )
