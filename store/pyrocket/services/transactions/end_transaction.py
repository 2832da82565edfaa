"""Commit and rollback: RocketMQ's END_TRANSACTION, for a store that can look before it decides.

The message and the op message that says so are one append: whoever dies, there are both or none.
RocketMQ does not look whether a half message is still undecided, and a repeated commit stores the
message again; here it is refused. A half message that was put back since is found by its copy.
Source: `EndTransactionProcessor`.
"""

from dataclasses import replace

from pyrocket.engine.writer import Writer
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError, TransactionError
from pyrocket.formats.half_message import HalfMessage, read_halves
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.metadata.topics import TopicConfig
from pyrocket.services.transactions.ledger import Ledger
from pyrocket.services.transactions.model import HalfMessageRef, LocalTransactionState
from pyrocket.services.transactions.records import (
    OWN_TOPICS,
    commit_message,
    op_messages,
    record_of,
)


class Ending:
    """Decides half messages of one store; safe to share between threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def end(
        self,
        writer: Writer,
        place: HalfMessageRef,
        state: LocalTransactionState,
        *,
        from_check: bool,
        record: Record | None = None,
    ) -> None:
        """Commit or roll back; UNKNOWN changes nothing.

        `record` is the half message's, if that is at hand. With `from_check` it is the answer to a
        question, which may come as late as it likes. Raises TransactionError: _NOT_FOUND,
        _GROUP_WRONG, _OFFSET_WRONG, _ENDED, _TOO_LATE, and _TOPIC_GONE for a commit into a topic
        that was deleted.
        """
        if state is LocalTransactionState.UNKNOWN:
            return
        ledger = self._ledger
        with writer.exclusive(), ledger.lock:
            ledger.catch_up(writer)
            half = self._find(place)
            if not from_check:
                self._check_in_time(half)
            batches: list[EncodedBatch] = []
            if state is LocalTransactionState.COMMIT:
                batches.append(self._commit(writer, half, record))
            settled = ledger.undecided.settlement([half.queue_offset])
            ledger.make_rooms(writer, OWN_TOPICS)
            ops = sorted({half.queue_offset, *settled.ops})
            batches.append(op_messages(ops, ledger.clock()))
            # It had room when it was sent; and old files that go take half messages with them.
            *_, written = writer.append(batches, moves=settled.moves, make_room=False)
            ledger.undecided.note_ops(int(written.queue_offsets[0]), ops)

    def _commit(self, writer: Writer, half: HalfMessage, record: Record | None) -> EncodedBatch:
        ledger, target = self._ledger, self._target(half)
        # A copy may have been made of it since, which is what is named, and has lost the flag.
        named = (
            replace(record, physical_offset=half.physical_offset)
            if record
            else record_of(ledger.reader, half)
        )
        batch = commit_message(named, target, ledger.delays, ledger.clock())
        ledger.make_rooms(writer, ledger.delays.rooms([batch.topic]))
        writer.check_fits([batch])
        return batch

    def _target(self, half: HalfMessage) -> TopicConfig:
        target = self._ledger.topics.all().get(half.topic)
        if target is None:
            raise TransactionError(
                f"the message is for topic {half.topic!r}, which is not there.",
                remedy="Create the topic again, or roll the transaction back.",
                code="TRANSACTION_TOPIC_GONE",
            )
        return target

    def _find(self, place: HalfMessageRef) -> HalfMessage:
        """Return what is undecided of the half message that was meant."""
        undecided = self._ledger.undecided
        half = undecided.find(place.queue_offset)
        if half is not None and half.physical_offset == place.physical_offset:
            _check_group(half, place)
            return half
        meant = self._stored(place)
        found = undecided.newest_copy(meant) if meant else None
        if found is None and meant is None:
            found = undecided.of_transaction(place.transaction_id, place.group)
        if found is not None:
            return found
        raise TransactionError(
            f"the transaction of the half message at offset {place.queue_offset} has ended: it was"
            " committed, rolled back or discarded before.",
            remedy="Nothing was changed.",
            code="TRANSACTION_ENDED",
        )

    def _stored(self, place: HalfMessageRef) -> HalfMessage | None:
        """Return the half message at the place, checked; None if it is gone with its log file."""
        at = place.queue_offset
        known = self._ledger.reader.system_offsets(HALF_TOPIC)
        if at < known.minimum:
            return None
        if at >= known.maximum:
            raise _not_found(place)
        half = self._read(at)
        if half is None or half.physical_offset != place.physical_offset:
            raise TransactionError(
                f"the half message at offset {at} is not at log offset {place.physical_offset}.",
                remedy="Give both as the send returned them.",
                code="TRANSACTION_OFFSET_WRONG",
            )
        _check_group(half, place)
        return half

    def _read(self, at: int) -> HalfMessage | None:
        try:
            piece = next(self._ledger.reader.records(HALF_TOPIC, 0, at, at + 1))
        except (OffsetOutOfRangeError, StoreDamagedError):
            return None
        return next(read_halves(piece.records))

    def _check_in_time(self, half: HalfMessage) -> None:
        """Refuse a decision that comes after questions have begun, as RocketMQ does from 5.1.1 on.

        Only a message with a time of its own, before which nobody asks, has this limit.
        """
        ledger = self._ledger
        if half.immune_s is None:
            return
        most_ms = max(half.immune_s * 1000, ledger.policy.timeout_ms)
        age_ms = ledger.clock() - half.born_timestamp
        if age_ms > most_ms:
            raise TransactionError(
                f"the decision comes {age_ms} ms after the message was made, {most_ms} ms at most"
                " were asked for.",
                remedy="The listener will be asked.",
                code="TRANSACTION_TOO_LATE",
            )


def _check_group(half: HalfMessage, place: HalfMessageRef) -> None:
    if half.group != place.group:
        raise TransactionError(
            f"the half message at offset {half.queue_offset} is of producer group"
            f" {half.group!r}, not {place.group!r}.",
            code="TRANSACTION_GROUP_WRONG",
        )


def _not_found(place: HalfMessageRef) -> TransactionError:
    return TransactionError(
        f"there is no half message at offset {place.queue_offset}.",
        remedy="It is of another store.",
        code="TRANSACTION_NOT_FOUND",
    )
