"""`Consumers`: the broker's part of consumer groups that rebalance; and the reads of their pulls.

Source of the reads: `DefaultMessageStore.getMessage`, `PullMessageProcessor`.
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from pyrocket.base.clock import Clock, steady_clock
from pyrocket.broker.append_queue import Append
from pyrocket.broker.consumers.members import HeldGroups, Members, check_client_id, check_heartbeat
from pyrocket.broker.consumers.queue_locks import QueueLocks
from pyrocket.broker.pop.retries import dead_letter, retry_copy
from pyrocket.broker.pop.values import DeliveryLag
from pyrocket.broker.sends import converted
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.group_admin import group_has_members
from pyrocket.engine.parts.group_lag import EARLIEST
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.errors import (
    FailedSend,
    InvalidInputError,
    MessageNotFoundError,
    PyrocketError,
    QueueNotFoundError,
)
from pyrocket.filters.message_filter import MessageFilter, check_expression
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import SYSTEM_PREFIX, dead_letter_topic, retry_topic
from pyrocket.services.consumption import MAX_SCAN, Consumption, no_group
from pyrocket.store import Store, consumption_of
from pyrocket.values.admin import Backoff, GroupConfig, GroupLag, ResetTo
from pyrocket.values.consuming import (
    Committed,
    GroupPosition,
    GroupStart,
    GroupStarts,
    Heartbeat,
    Pull,
    PullStatus,
    RawPulled,
    Subscription,
)
from pyrocket.values.message import AppendResult, MessageQueue

MAX_MESSAGES = 1024
MAX_BODY_BYTES = 256 << 10
"""Maximum bytes of the bodies of one reply, as in RocketMQ; the first body may be larger."""


class Pulls:
    """Reads messages of one store. Safe to share between threads."""

    def __init__(self, store: Store, *, is_replica: bool = False) -> None:
        """A replica may be behind: there, an offset after the queue's end is not corrected."""
        self._storage, self._is_replica = consumption_of(store), is_replica
        self._last: dict[tuple[str, str, int], int] = {}

    def pull(self, request: Pull) -> RawPulled:
        """Return the messages of a queue from an offset on; do not wait for new ones.

        Raises GroupNotFoundError, StorePermissionError if the group may not consume,
        QueueNotFoundError, and InvalidInputError (ILLEGAL_FILTER_EXPRESSION).
        """
        self._storage.consuming_group(request.group)
        check_queue(self._storage, request.queue)
        topic, queue_id = request.queue.topic, request.queue.queue_id
        epochs, start = self._storage.epochs, request.offset
        epoch, available = epochs.current, self._storage.bounds(topic, queue_id)
        end = epochs.valid_end(request.epoch, topic, queue_id, available.maximum)
        self._last[request.group, topic, queue_id] = start
        if self._is_replica and start > available.maximum:
            return RawPulled(PullStatus.NO_NEW_MSG, start, available, epoch=request.epoch)
        if not available.minimum <= start <= end:
            nearest = max(min(start, end), available.minimum)
            return RawPulled(PullStatus.OFFSET_ILLEGAL, nearest, available, epoch=epoch)
        fetched = self._storage.fetch(
            topic,
            queue_id,
            start,
            min(available.maximum, start + MAX_SCAN),
            filter_of(request.subscription),
            min(max(request.max_messages, 1), MAX_MESSAGES),
            MAX_BODY_BYTES,
            decode=False,
        )
        status = _status(fetched.raw, start, fetched.reached)
        return RawPulled(status, fetched.reached, available, fetched.raw, epoch)

    def pull_queue(
        self,
        queue: MessageQueue,
        group: str,
        offset: int,
        subscription: Subscription,
        max_messages: int,
        hold_ms: int,
        epoch: int | None = None,
    ) -> RawPulled:
        """Answer the call PullQueue, without waiting for new messages; see `pull`."""
        return self.pull(Pull(queue, group, offset, subscription, max_messages, epoch=epoch))

    def last(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset from which a group last pulled; earlier messages were delivered.

        Returns 0 if the group has not pulled since the broker started.
        """
        return self._last.get((group, topic, queue_id), 0)

    def forget(self, group: str) -> None:
        for key in [*self._last]:
            if key[0] == group:
                self._last.pop(key, None)


def check_queue(storage: Consumption, queue: MessageQueue) -> None:
    """Raise QueueNotFoundError unless a queue exists."""
    if not _exists(storage, queue):
        raise QueueNotFoundError(
            f"{queue} does not exist.", remedy="It was deleted; ask for the route again."
        )


def _exists(storage: Consumption, queue: MessageQueue) -> bool:
    topic = storage.topic(queue.topic)
    return topic is not None and 0 <= queue.queue_id < topic.read_queues


@lru_cache
def filter_of(subscription: Subscription) -> MessageFilter:
    """Return the filter of a subscription.

    Raises InvalidInputError (ILLEGAL_FILTER_EXPRESSION, EXPRESSION_TOO_LONG).
    """
    check_expression(subscription.expression)
    if subscription.kind == "SQL92":
        return MessageFilter.parse(sql=subscription.expression)
    return MessageFilter.parse(tags=subscription.expression or "*")


def _status(records: list[bytes], start: int, reached: int) -> PullStatus:
    if records:
        return PullStatus.FOUND
    return PullStatus.NO_NEW_MSG if reached == start else PullStatus.NO_MATCHED_MSG


_FIRST_LEVEL = 3
"""The delay level of the first retry: 10 s with RocketMQ's levels."""

_INT32_MAX = 2**31 - 1


class Consumers:
    """Members, locks, pulls and commits of one store. Safe to share between threads."""

    def __init__(
        self,
        store: Store,
        append: Append,
        *,
        creates_groups: bool = True,
        holds_groups: bool = False,
        ages: Clock = steady_clock,
    ) -> None:
        """Load the locks.

        creates_groups: Whether the first heartbeat of a group creates it.
        holds_groups: Whether other processes may open the store, but not consume for its groups.
        ages: The clock of members and locks.
        """
        self._store, self._storage = store, consumption_of(store)
        self._append, self._creates_groups, self.ages = append, creates_groups, ages
        self.members, self._committing = Members(), threading.Lock()
        self.locks = QueueLocks(Layout(store.path), ages())
        self.held = HeldGroups(Layout(store.path).members) if holds_groups else None
        self.pulls = Pulls(store)

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Add or keep a client in the groups of its heartbeat; missing groups are created.

        The starts of the groups are stored before. Returns whether the client was a live member of
        all these groups. Raises GroupNotFoundError, GroupNameError, TopicNameError,
        StoreDamagedError, BrokerBusyError (MEMBERS_FULL), InvalidInputError (CLIENT_ID_INVALID,
        EXPRESSION_TOO_LONG, DUPLICATE_CLIENT), StoreUnavailableError (GROUP_STARTS_FULL), and
        StoreLockedError (GROUP_IN_USE).
        """
        check_heartbeat(heartbeat)
        for data in heartbeat.consumers:
            config = self.group(data.group)
            if self.held is not None:
                self.held.hold(data.group)
            self._storage.ensure_topics({retry_topic(data.group): max(config.retry_queues, 1)})
            self._storage.starts.add(data.group, data.starts)
        return self.members.heartbeat(heartbeat, self.ages())

    def leave(self, client_id: str, group: str) -> None:
        self.members.unregister(client_id, group)
        if self.held is not None and not self.members.ids(group, self.ages()):
            self.held.release(group)

    def close(self) -> None:
        """Let other processes consume for all groups."""
        if self.held is not None:
            self.held.close()

    def group_starts(self, group: str) -> GroupStarts:
        """Return the starts of a group, and the end of the log."""
        starts = self._storage.starts
        return GroupStarts(starts.end(), starts.of(group))

    def start_offset(
        self, group: str, queue: MessageQueue, start: GroupStart | None = None
    ) -> GroupPosition:
        """Return where a group starts to consume a queue; see `ClientTransport`."""
        check_queue(self._storage, queue)
        starts, epoch = self._storage.starts, self._storage.epochs.current
        if start is None:
            committed = self.committed(group, queue)
            if committed is not None:
                return GroupPosition(committed, epoch)
            start = starts.of(group).get(queue.topic, EARLIEST)
        return GroupPosition(starts.first_offset(queue.topic, queue.queue_id, start), epoch)

    def group(self, name: str) -> GroupConfig:
        """Return a group, or create it if allowed. Raises GroupNotFoundError, GroupNameError."""
        config = self._storage.group(name)
        if config is None and not self._creates_groups:
            raise no_group(name)
        return config or self._store.groups.create(name)

    def lock(
        self, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, bool]:
        """Lock or renew queues for a client; see `QueueLocks.lock`.

        Queues that do not exist are not locked. Raises InvalidInputError (CLIENT_ID_INVALID),
        GroupNotFoundError.
        """
        check_client_id(client_id)
        if self._storage.group(group) is None:
            raise no_group(group)
        there = [queue for queue in queues if _exists(self._storage, queue)]
        return self.locks.lock(group, client_id, there, self.ages())

    def unlock(self, group: str, client_id: str, queues: Collection[MessageQueue]) -> None:
        self.locks.unlock(group, client_id, queues, self.ages())

    def check_filter(self, topic: str, subscription: Subscription) -> None:
        """Compile an expression. Raises InvalidInputError (ILLEGAL_FILTER_EXPRESSION)."""
        filter_of(subscription)

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that a group has committed for a queue; None if there is none."""
        offsets = self._storage.offsets().get((queue.topic, group), {})
        return offsets.get(queue.queue_id)

    def commit(
        self,
        group: str,
        client_id: str,
        incarnation: str,
        offsets: Mapping[MessageQueue, int],
        epoch: int | None = None,
    ) -> dict[MessageQueue, Committed]:
        """Commit offsets of a live member; return the new state of the committed queues.

        An offset is lowered to where a recovery has truncated the queue since the `epoch` in which
        it was learned. It replaces a higher one only if that is after the end of the queue. Queues
        that other clients have locked are not committed. Raises InvalidInputError (COMMIT_FENCED)
        if the client is not a live member of the group.
        """
        with self._committing:
            now = self.ages()
            if not self.members.is_member(client_id, incarnation, group, now):
                raise _fenced(group, client_id)
            own = {
                queue: offset
                for queue, offset in offsets.items()
                if self.locks.owner(group, queue.topic, queue.queue_id, now) in (None, client_id)
            }
            for topic in {queue.topic for queue in own}:
                of_topic = {q.queue_id: at for q, at in own.items() if q.topic == topic}
                self._commit(group, topic, of_topic, epoch)
            return {queue: self._state(group, queue) for queue in own}

    def reset(self, group: str, topic: str, to: ResetTo, *, force: bool = False) -> dict[int, int]:
        """Reset a group's offsets in a topic, and return them; see `Groups.reset`.

        A group with live members that share its queues is reset only with `force`. It then has no
        members until their next heartbeats, so that none commits the offset of an earlier pull.
        Raises InvalidInputError (GROUP_HAS_MEMBERS).
        """
        with self._committing:
            members = self.members.rebalancing(group, self.ages())
            if members and not force:
                raise group_has_members(group, members)
            after = self._store.groups.reset(group, topic, to, force=force)
            if members:
                self.members.remove_all(group)
        return dict(after)

    def _commit(
        self, group: str, topic: str, offsets: Mapping[int, int], epoch: int | None
    ) -> None:
        config = self._storage.topic(topic)
        if config is None:
            return
        within = {
            queue_id: min(offset, self._valid_end(topic, queue_id, epoch))
            for queue_id, offset in offsets.items()
            if queue_id < config.read_queues
        }
        self._store.groups.commit(group, topic, within)

    def _valid_end(self, topic: str, queue_id: int, epoch: int | None) -> int:
        end = self._storage.bounds(topic, queue_id).maximum
        return self._storage.epochs.valid_end(epoch, topic, queue_id, end)

    def lags(self) -> Iterator[tuple[str, str, list[DeliveryLag]]]:
        """Yield each group, each topic in which it has offsets, and the lags of the topic's queues.

        Messages are in flight from the committed offset to that of the last pull, as in RocketMQ.
        The groups of RocketMQ's own services are omitted.
        """
        for (group, topic), parts in groupby(
            self._store.groups.lag(), attrgetter("group", "topic")
        ):
            if not topic.lower().startswith(SYSTEM_PREFIX):
                yield group, topic, [self._lag(lag) for lag in parts]

    def _lag(self, one: GroupLag) -> DeliveryLag:
        pulled = self.pulls.last(one.group, one.topic, one.queue_id)
        flying = min(max(pulled - one.start, 0), one.lag)
        return DeliveryLag(one.maximum, one.start, flying, one.lag - flying, one.delay_ms)

    def _state(self, group: str, queue: MessageQueue) -> Committed:
        available = self._storage.bounds(queue.topic, queue.queue_id)
        return Committed(available.minimum, available.maximum, self.committed(group, queue) or 0)

    def send_back(
        self,
        group: str,
        queue: MessageQueue,
        queue_offset: int,
        delay_level: int,
        max_reconsume_times: int,
        failed_attempts: int = 1,
    ) -> "Future[None]":
        """Copy a message to the retry topic or the dead-letter topic; see `ClientTransport`.

        Raises GroupNotFoundError, GroupNameError, and MessageNotFoundError if the message was
        deleted or cannot be read. Source: `SendMessageProcessor.consumerSendMsgBack`.
        """
        config = self.group(group)
        record = self._storage.read(queue.topic, queue.queue_id, queue_offset)
        if record is None:
            raise MessageNotFoundError(
                f"message {queue_offset} of {queue} was deleted or is damaged.",
                remedy="Consume the message again: it cannot be sent back.",
            )
        most = config.retry_max_times if max_reconsume_times < 0 else max_reconsume_times
        copy = None
        if delay_level >= 0 and record.reconsume_times < most:
            copy = self._retry(record, config, delay_level)
        if copy is None:
            self._storage.ensure_topics({dead_letter_topic(group): 1})
            attempts = record.reconsume_times + max(failed_attempts, 1)
            copy = dead_letter(record, group, attempts=min(attempts, _INT32_MAX))
        return converted(self._append(ReceivedRecords({}, [copy])), _check_stored)

    def _retry(self, record: Record, config: GroupConfig, level: int) -> EncodedBatch | None:
        """Return the copy for the retry topic, None if too long; level 0 is the group's delay."""
        levels = self._storage.delay_levels_ms
        if level == 0 and config.backoff == Backoff():
            level = _FIRST_LEVEL + record.reconsume_times
        delay_ms = (
            levels[min(level, len(levels)) - 1]
            if level
            else config.backoff.delay_ms(record.reconsume_times)
        )
        self._storage.ensure_topics({retry_topic(config.name): max(config.retry_queues, 1)})
        return retry_copy(
            self._storage,
            record,
            config,
            attempts=record.reconsume_times + 1,
            delay_ms=delay_ms,
            due_ms=self._store.now() + delay_ms,
        )


def _check_stored(appended: "Future[AppendResult]") -> None:
    """Raise the error of an append, unless it says that the copy is stored.

    Otherwise the consumer would consume both the message and its copy.
    """
    error = appended.exception()
    is_stored = isinstance(error, PyrocketError) and error.failed_send is FailedSend.STORED
    if error is not None and not is_stored:
        raise error


def _fenced(group: str, client_id: str) -> InvalidInputError:
    return InvalidInputError(
        f"{client_id!r} is not a live member of the group {group!r}.",
        remedy="Its offsets are committed after its next heartbeat.",
        code="COMMIT_FENCED",
    )
