"""Commit and rollback: RocketMQ's END_TRANSACTION.

One append contains the committed message and its op message, so a crash leaves both or neither.
RocketMQ does not check whether a half message is still undecided, and stores the message again if a
commit is repeated. Here, a repeated decision is rejected. A decision about a half message that was
re-appended applies to its newest copy. Source: `EndTransactionProcessor`.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyrocket.engine.writer import Writer
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError, TransactionError
from pyrocket.formats.half_message import HalfMessage, read_halves
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.services.transactions.bridge import TransactionBridge
from pyrocket.services.transactions.records import commit_message, record_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.transactions import HalfMessageRef, LocalTransactionState


class EndTransactionProcessor:
    """Commits and rolls back half messages of one store; thread-safe."""

    def __init__(self, bridge: TransactionBridge) -> None:
        self._bridge = bridge

    def end(
        self,
        writer: Writer,
        ref: HalfMessageRef,
        state: LocalTransactionState,
        *,
        from_check: bool,
        record: Record | None = None,
    ) -> None:
        """Commit or roll back; UNKNOWN changes nothing.

        record: the half message as stored, if the caller has it.
        from_check: whether the decision answers a check; such a decision is accepted at any time.

        Raises TransactionError with the code TRANSACTION_NOT_FOUND, _GROUP_WRONG, _OFFSET_WRONG,
        _ENDED, _TOO_LATE, or _TOPIC_GONE for a commit to a topic that was deleted.
        """
        if state is LocalTransactionState.UNKNOWN:
            return
        with self._bridge.exclusive(writer):
            half = self._find(ref)
            if not from_check:
                self._check_in_time(half)
            self._end(writer, [half], state, record)

    def end_by_id(
        self,
        writer: Writer,
        group: str,
        transaction_id: str,
        state: LocalTransactionState,
        topic: str = "",
    ) -> None:
        """Commit or roll back the undecided half message with this id; UNKNOWN changes nothing.

        If its send was repeated, this ends all its copies, and commits one of them.

        topic: Its topic, if the caller may decide only messages of one topic.

        Raises TransactionError with the code TRANSACTION_NOT_FOUND, or _TOPIC_GONE.
        """
        with self._bridge.exclusive(writer):
            halves = self._bridge.halves.of_transaction(transaction_id, group)
            if not halves or topic not in ("", halves[0].topic):
                raise TransactionError(
                    f"no undecided message has the transaction id {transaction_id!r}.",
                    remedy="Nothing was changed.",
                    code="TRANSACTION_NOT_FOUND",
                )
            if state is not LocalTransactionState.UNKNOWN:
                self._end(writer, halves, state, None)

    def _end(
        self,
        writer: Writer,
        halves: Sequence[HalfMessage],
        state: LocalTransactionState,
        record: Record | None,
    ) -> None:
        batches = []
        if state is LocalTransactionState.COMMIT:
            batches.append(self._commit(writer, halves[-1], record))
        ended = [half.queue_offset for half in halves]
        self._bridge.append(writer, batches, ended, named=ended)

    def _commit(self, writer: Writer, half: HalfMessage, record: Record | None) -> EncodedBatch:
        bridge, target = self._bridge, self._target(half)
        # `record` may be the original's; a copy's own record refers to the copy and lacks the flag.
        named = (
            replace(record, physical_offset=half.physical_offset)
            if record
            else record_of(bridge.reader, half)
        )
        batch = commit_message(named, target, bridge.delays, bridge.clock())
        bridge.ensure_topics(bridge.delays.rooms([batch.topic]))
        writer.check_fits([batch])
        return batch

    def _target(self, half: HalfMessage) -> TopicConfig:
        target = self._bridge.topics.all().get(half.topic)
        if target is None:
            raise TransactionError(
                f"the message is for topic {half.topic!r}, which does not exist.",
                remedy="Create the topic again, or roll the transaction back.",
                code="TRANSACTION_TOPIC_GONE",
            )
        return target

    def _find(self, ref: HalfMessageRef) -> HalfMessage:
        """Return the undecided half message, or its newest copy."""
        halves = self._bridge.halves
        half = halves.find(ref.queue_offset)
        if half is not None and half.physical_offset == ref.physical_offset:
            _check_group(half, ref)
            return half
        stored = self._stored(ref)
        undecided = halves.newest_copy(stored) if stored else None
        if undecided is None and stored is None:
            undecided = next(iter(halves.of_transaction(ref.transaction_id, ref.group)), None)
        if undecided is not None:
            return undecided
        raise TransactionError(
            f"the transaction of the half message at offset {ref.queue_offset} has ended: it was"
            " committed, rolled back or discarded.",
            remedy="Nothing was changed.",
            code="TRANSACTION_ENDED",
        )

    def _stored(self, ref: HalfMessageRef) -> HalfMessage | None:
        """Return the half message that `ref` identifies, or None if its log file was deleted."""
        at = ref.queue_offset
        known = self._bridge.reader.system_offsets(HALF_TOPIC)
        if at < known.minimum:
            return None
        if at >= known.maximum:
            raise TransactionError(
                f"there is no half message at offset {at}.",
                remedy="Use the store that it was sent to.",
                code="TRANSACTION_NOT_FOUND",
            )
        half = self._read(at)
        if half is None or half.physical_offset != ref.physical_offset:
            raise TransactionError(
                f"the half message at offset {at} is not at log offset {ref.physical_offset}.",
                remedy="Pass both offsets that the send returned.",
                code="TRANSACTION_OFFSET_WRONG",
            )
        _check_group(half, ref)
        return half

    def _read(self, at: int) -> HalfMessage | None:
        try:
            piece = next(self._bridge.reader.records(HALF_TOPIC, 0, at, at + 1))
        except (OffsetOutOfRangeError, StoreDamagedError):
            return None
        return next(read_halves(piece.records))

    def _check_in_time(self, half: HalfMessage) -> None:
        """Reject a decision made after the checks have begun, as RocketMQ has done since 5.1.1.

        This limit exists only for messages with an immunity time.
        """
        if half.immune_s is None:
            return
        max_ms = max(half.immune_s * 1000, self._bridge.policy.timeout_ms)
        age_ms = self._bridge.clock() - half.born_timestamp
        if age_ms > max_ms:
            raise TransactionError(
                f"the decision was {age_ms} ms after the message was created; its immunity time"
                f" allows {max_ms} ms.",
                remedy="The listener will be asked.",
                code="TRANSACTION_TOO_LATE",
            )


def _check_group(half: HalfMessage, ref: HalfMessageRef) -> None:
    if half.group != ref.group:
        raise TransactionError(
            f"the half message at offset {half.queue_offset} belongs to producer group"
            f" {half.group!r}, not to {ref.group!r}.",
            code="TRANSACTION_GROUP_WRONG",
        )
