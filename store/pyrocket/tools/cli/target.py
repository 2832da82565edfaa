"""The typed interface between commands and a store, in its directory or at its broker."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyrocket.tools.cli.messages import Messages, starting_at
from pyrocket.tools.session import Place, Session, open_session, open_sessions
from pyrocket.tools.summaries import (
    QueueLag,
    TopicInfo,
    at_any,
    lags_of_all,
    members_of,
    topic_of,
    topics_of,
)
from pyrocket.values.message import MessageQueue

if TYPE_CHECKING:
    from pyrocket.remote.admin import RemoteAdmin
    from pyrocket.store import Store
    from pyrocket.values.admin import CleanReport, GroupConfig, LiveMember, ResetTo


class AdminTarget:
    """The store of a command. Each method opens the store; all of them may raise PyrocketError.

    With name servers, methods that only read groups open the stores of all brokers; the others
    raise OptionError (BROKER_REQUIRED) if several brokers are known and none is named.
    """

    def __init__(self, place: Place) -> None:
        self.place, self.messages = place, Messages(place)

    @contextmanager
    def admin(self, *, write: bool = False) -> "Iterator[Store | RemoteAdmin]":
        """Open the store for a `with` block, which administers its topics, groups and retention."""
        with self._open(write=write) as store:
            yield store.admin

    def now_ms(self) -> int:
        """Return the current time of the store: that of its broker, or of this machine."""
        with self._open() as store:
            return store.source.now_ms()

    def info(self) -> dict[str, Any]:
        """Return the fields of `store info --json`; `retention` is a `Retention` or None."""
        from pyrocket.values.source import LogPart

        with self._open() as store:
            plan = store.source.plan_view("commitlog")
            parts = [part for part in plan if isinstance(part, LogPart)]
            topics = [topic for topic in topics_of(store) if topic.kind == "user"]
            return {
                "path": store.name,
                "uuid": store.hello.store,
                "brokerName": store.hello.broker,
                "epoch": store.hello.epoch,
                "topics": len(topics),
                "messages": sum(topic.messages for topic in topics),
                "groups": len(store.admin.groups.all()),
                "logStart": min((part.start for part in parts), default=0),
                "logEnd": max((part.end for part in parts), default=0),
                "logFileBytes": store.hello.log_file_bytes,
                "messageDelayLevel": store.hello.delay_levels,
                "retention": store.admin.retention,
            }

    def clean(self, hours: float | None, total_bytes: int | None, dry_run: bool) -> "CleanReport":
        """Delete the oldest log files; see `Store.clean`."""
        with self.admin(write=not dry_run) as admin:
            return admin.clean(hours=hours, total_bytes=total_bytes, dry_run=dry_run)

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name, system topics included."""
        with self._open() as store:
            return list(topics_of(store))

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises TopicNotFoundError with the most similar name."""
        with self._open() as store:
            return topic_of(store, name)

    def create_topic(
        self,
        name: str,
        queues: int,
        *,
        create_store: bool = False,
        message_type: str | None = None,
        ordered: bool = False,
    ) -> None:
        """Create a topic, and with `create_store` also a missing store.

        Raises InvalidInputError (TOPIC_EXISTS) if the topic exists.
        """
        with self._open(write=True, create=create_store) as store:
            topics, both = store.admin.topics, {"read_queues": queues, "write_queues": queues}
            topics.create(name, **both, ordered=ordered, exist_ok=False)
            if message_type is not None:
                topics.set_message_type(name, message_type)

    def groups(self) -> list[str]:
        with open_sessions(self.place) as stores:
            return list(
                dict.fromkeys(name for store in stores for name in store.admin.groups.all())
            )

    def group(self, name: str) -> "GroupConfig":
        """Return the settings of a group, at the first broker that has it.

        Raises GroupNotFoundError with the most similar name.
        """
        with open_sessions(self.place) as stores:
            return at_any(stores, lambda store: store.admin.groups.get(name))[0]

    def members(self, group: str) -> "list[LiveMember] | None":
        """Return the live members of a group, which only a broker knows; None for a directory."""
        with open_sessions(self.place) as stores:
            return members_of(stores, group)

    def create_group(self, name: str) -> bool:
        """Create a group; return whether it was missing. Raises GroupNameError."""
        with self.admin(write=True) as admin:
            is_new = name not in admin.groups.all()
            admin.groups.create(name)
            return is_new

    def lag(self, group: str = "") -> list[QueueLag]:
        """Return the lag of a group, or of all groups, in each queue of its topics.

        A group that has not started to consume has no lag. Raises GroupNotFoundError.
        """
        with open_sessions(self.place) as stores:
            return lags_of_all(stores, group)

    def offsets_of_reset(
        self, group: str, topic: str, to: "ResetTo"
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return a group's offsets in a topic, and those that a reset would commit, by queue id."""
        from pyrocket.values.admin import AtTime

        with self._open() as store:
            ranges = store.ranges(topic)
            before = _by_queue_id(store.source.committed(group, [topic]))
            if isinstance(to, Mapping):
                for queue_id, offset in to.items():
                    starting_at(replace(store.ranges(topic, queue_id)[0], start=0), offset)
                return before, dict(to)
            if isinstance(to, AtTime):
                wanted = {has.queue: to.ms for has in ranges}
                return before, _by_queue_id(store.source.offsets_at(wanted))
            first = to == "earliest"
            return before, {has.queue.queue_id: has.start if first else has.end for has in ranges}

    def _open(
        self, *, write: bool = False, create: bool = False
    ) -> AbstractContextManager[Session]:
        return open_session(self.place, write=write, create=create)


def _by_queue_id(offsets: Mapping[MessageQueue, int]) -> dict[int, int]:
    return {queue.queue_id: offset for queue, offset in sorted(offsets.items())}
