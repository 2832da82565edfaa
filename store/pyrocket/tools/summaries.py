"""Topics, queues and consumer groups of an open store as typed values, read from its views.

Both the commands and the notebook tables show these. pyarrow is imported only when a store is read,
so that `pyrocket --help` is fast.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pyrocket.errors import GroupNotFoundError, StorePermissionError
from pyrocket.values.admin import GroupLag, LiveMember

if TYPE_CHECKING:
    from pyrocket.tools.session import Session

_T = TypeVar("_T")

TopicKind = Literal["user", "retry", "dead-letter", "system"]


@dataclass(frozen=True)
class QueueInfo:
    """A queue of a topic, with the offsets [minimum, maximum) of its messages.

    bytes: their approximate size in the log.
    first, last: the store times of the oldest and the newest message, UTC.
    """

    queue_id: int
    minimum: int
    maximum: int
    bytes: int | None
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True)
class TopicInfo:
    """A topic with sums over its queues; `queues` includes empty queues.

    A topic that is missing in the topic table has 0 read and write queues. Of brokers of RocketMQ,
    `bytes` and `first` are unknown.
    """

    name: str
    kind: TopicKind
    perm: int
    ordered: bool
    read_queues: int
    write_queues: int
    messages: int
    bytes: int | None
    first: datetime | None
    last: datetime | None
    queues: tuple[QueueInfo, ...]


@dataclass(frozen=True)
class QueueLag(GroupLag):
    """The lag of a group in a queue at a broker, with its approximate bytes in the log."""

    broker: str = ""
    bytes: int = 0


class LagSum(NamedTuple):
    """The lag of a group in a topic: messages, their approximate bytes in the log, and age.

    Attributes:
        group: The consumer group.
        topic: The topic.
        lag: The number of messages.
        bytes: Their approximate size.
        delay_ms: The age of the oldest message of the lag; 0 if there is no lag.
    """

    group: str
    topic: str
    lag: int
    bytes: int
    delay_ms: int


def topics_of(session: "Session", name: str = "") -> Iterator[TopicInfo]:
    """Yield all topics, ordered by name, or only the topic `name` if it exists.

    A user without rights on the whole store gets the topics for which the user has any right.
    """
    from pyrocket.metadata.topics import is_system_topic

    names = session.source.topics()
    try:
        rows = [*_rows(session, "topics", topics=[name] if name else [])]
    except StorePermissionError:
        if name:
            raise
        rows = [*_rows(session, "topics", topics=[*names])] if names else []
    for row in rows:
        kind = row["kind"]
        if kind == "user" and is_system_topic(row["topic"], session.hello.broker, names):
            kind = "system"
        read_queues, write_queues = row["readQueues"] or 0, row["writeQueues"] or 0
        queues = [_queue(queue) for queue in row["queues"]]
        yield TopicInfo(
            name=row["topic"],
            kind=kind,
            perm=row["perm"] or 0,
            ordered=row["topic"] in names and names[row["topic"]].ordered,
            read_queues=read_queues,
            write_queues=write_queues,
            messages=row["messages"],
            bytes=row["bytes"],
            first=row["firstStoreTimestamp"],
            last=row["lastStoreTimestamp"],
            queues=_with_empty(queues, max(read_queues, write_queues)),
        )


def topic_of(session: "Session", name: str) -> TopicInfo:
    """Return one topic. Raises TopicNotFoundError, which suggests the most similar name."""
    topic = next(topics_of(session, name), None)
    if topic is not None:
        return topic
    # Succeeds if the topic was created in the meantime, otherwise raises.
    new = session.source.topic(name)
    queues = _with_empty([], max(new.read_queues, new.write_queues))
    settings = new.perm, new.ordered, new.read_queues, new.write_queues, 0, 0
    return TopicInfo(name, "user", *settings, first=None, last=None, queues=queues)


def lags_of(session: "Session", group: str = "") -> list[QueueLag]:
    """Return the lag of a group, or of all groups, in each queue of its topics.

    A group that has not started to consume has no lag. A user without rights on the whole store
    gets the groups for which the user has any right. Raises GroupNotFoundError.
    """
    now_ms = session.source.now_ms()
    try:
        rows = [*_rows(session, "groups", group=group)]
    except StorePermissionError:
        if group:
            raise
        groups = session.admin.groups.all()
        rows = [row for name in groups for row in _rows(session, "groups", group=name)]
    broker = session.hello.broker
    return [_lag(row, broker, now_ms) for row in rows if row["topic"] is not None]


def lags_of_all(sessions: "Iterable[Session]", group: str = "") -> list[QueueLag]:
    """Return the lags at some brokers, ordered by group, topic, broker and queue.

    Raises GroupNotFoundError if no broker has the group.
    """
    lags = chain.from_iterable(at_any(sessions, lambda session: lags_of(session, group)))
    return sorted(lags, key=attrgetter("group", "topic", "broker", "queue_id"))


def at_any(sessions: "Iterable[Session]", ask: "Callable[[Session], _T]") -> list[_T]:
    """Return the answers of the brokers that have a group.

    Raises GroupNotFoundError if no broker has it.
    """
    answers, missing = [], []
    for session in sessions:
        try:
            answers.append(ask(session))
        except GroupNotFoundError as error:  # noqa: PERF203 - a call to a broker takes longer
            missing.append(error)
    if missing and not answers:
        raise missing[0]
    return answers


def members_of(sessions: "Iterable[Session]", group: str) -> "list[LiveMember] | None":
    """Return the live members of a group at some brokers; None if a session is a directory.

    A member differs if its subscriptions differ from the group's at any broker.
    """
    from pyrocket.engine.parts.group_admin import Groups

    live: dict[str, LiveMember] = {}
    for session in sessions:
        groups = session.admin.groups
        if isinstance(groups, Groups):
            return None
        for member in groups.members(group):
            known = live.get(member.client_id, member)
            live[member.client_id] = replace(member, differs=member.differs or known.differs)
    return [live[client_id] for client_id in sorted(live)]


def sum_by_topic(lags: Iterable[QueueLag]) -> list[LagSum]:
    """Return the sums of lags that are ordered by group and topic."""
    sums = []
    for (group, topic), parts in groupby(lags, attrgetter("group", "topic")):
        known = list(parts)
        lag, size = sum(part.lag for part in known), sum(part.bytes for part in known)
        sums.append(LagSum(group, topic, lag, size, max(part.delay_ms for part in known)))
    return sums


def _with_empty(queues: Iterable[QueueInfo], count: int) -> tuple[QueueInfo, ...]:
    """Add the queues with ids below `count` that have never had a message."""
    known = {queue.queue_id: queue for queue in queues}
    empty = (
        QueueInfo(queue_id, minimum=0, maximum=0, bytes=0, first=None, last=None)
        for queue_id in set(range(count)) - known.keys()
    )
    return tuple(sorted([*known.values(), *empty], key=attrgetter("queue_id")))


def _queue(row: dict[str, Any]) -> QueueInfo:
    return QueueInfo(
        queue_id=row["queueId"],
        minimum=row["minOffset"],
        maximum=row["maxOffset"],
        bytes=row["bytes"],
        first=row["firstStoreTimestamp"],
        last=row["lastStoreTimestamp"],
    )


def _lag(row: dict[str, Any], broker: str, now_ms: int) -> QueueLag:
    oldest = row["nextStoreTimestamp"]
    return QueueLag(
        group=row["consumerGroup"],
        topic=row["topic"],
        queue_id=row["queueId"],
        committed=row["committedOffset"],
        minimum=row["minOffset"],
        maximum=row["maxOffset"],
        delay_ms=0 if oldest is None else max(now_ms - int(oldest.timestamp() * 1000), 0),
        first=row["maxOffset"] - row["lag"],
        broker=broker,
        bytes=row["lagBytes"],
    )


def _rows(session: "Session", view: str, **narrowed: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a view by column name."""
    from pyrocket.views.pending import VIEW_COLUMNS

    columns = list(VIEW_COLUMNS[view])
    for part in session.source.plan_view(view, **narrowed):
        for batch in session.source.read_view(part, columns, verify_crc=False):
            yield from batch.to_pylist()
