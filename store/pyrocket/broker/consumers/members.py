"""The live members of consumer groups. Source: `ConsumerManager`, `ConsumerGroupInfo`."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyrocket.disk.io import make_directory, opened, read_or_none, write_at
from pyrocket.disk.lock import FileLock
from pyrocket.errors import BrokerBusyError, InvalidInputError, StoreLockedError
from pyrocket.filters.message_filter import check_expression
from pyrocket.values.admin import LiveMember
from pyrocket.values.consuming import ConsumerData, Heartbeat, MessageModel, Subscription

MAX_CLIENT_ID_BYTES = 255
MAX_BYTES = 64 << 20
"""Maximum memory of all members, about."""

_MEMBER_BYTES, _SUBSCRIPTION_BYTES = 1000, 400
EXPIRY_MS = 120_000
"""Time without a heartbeat after which a member is removed."""


@dataclass
class _Member:
    incarnation: str
    data: ConsumerData
    seen_ms: int
    bytes: int


class Members:
    """The members of all groups, with times of `steady_clock`. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, _Member]] = {}
        self._watchers: tuple[Callable[[str], None], ...] = ()
        self._bytes = 0

    def watch(self, changed: Callable[[str], object]) -> Callable[[], None]:
        """Call `changed`, which must not block, with each group whose members or subscriptions have
        changed; return a function that ends this.
        """

        def watcher(group: str) -> None:
            changed(group)

        def stop() -> None:
            with self._lock:
                self._watchers = tuple(other for other in self._watchers if other is not watcher)

        with self._lock:
            self._watchers = (*self._watchers, watcher)
        return stop

    def heartbeat(self, beat: Heartbeat, now_ms: int) -> bool:
        """Add or keep a client in the groups of its heartbeat.

        Returns whether it was a live member of all these groups. Raises InvalidInputError
        (DUPLICATE_CLIENT) if another live client has the same id, BrokerBusyError (MEMBERS_FULL).
        """
        changed, renewed = list[str](), True
        try:
            with self._lock:
                for data in beat.consumers:
                    members = self._groups.setdefault(data.group, {})
                    if self._expire(members, now_ms):
                        changed.append(data.group)
                    data = replace(data, starts={})  # They don't concern other members.
                    known = members.get(beat.client_id)
                    if known is not None and known.incarnation != beat.incarnation:
                        raise _duplicate(beat.client_id, data.group)
                    renewed = renewed and known is not None
                    if known is None or known.data != data:
                        changed.append(data.group)
                    # The last heartbeat is the last entry; see `subscriptions`.
                    size = known.bytes if known and known.data == data else _size(data)
                    self._make_room(size - (known.bytes if known else 0), now_ms)
                    self._remove(members, beat.client_id)
                    members[beat.client_id] = _Member(beat.incarnation, data, now_ms, size)
                    self._bytes += size
        finally:  # The client has joined the groups before one that refuses it.
            self._notify(sorted({*changed}))
        return renewed

    def unregister(self, client_id: str, group: str) -> None:
        """Remove a client from a group; an unknown client is ignored."""
        with self._lock:
            known = self._remove(self._groups.get(group, {}), client_id)
        self._notify([group] if known else [])

    def remove_all(self, group: str) -> None:
        """Remove all members of a group; their next heartbeats add them as new members."""
        with self._lock:
            known = self._groups.pop(group, {})
            self._bytes -= sum(member.bytes for member in known.values())
        self._notify([group] if known else [])

    def _make_room(self, size: int, now_ms: int) -> None:
        """Remove members that are gone if there is no room. Raises BrokerBusyError."""
        if size > 0 and self._bytes + size > MAX_BYTES:
            for members in self._groups.values():
                self._expire(members, now_ms)
        if size > 0 and self._bytes + size > MAX_BYTES:
            raise BrokerBusyError(
                f"the subscriptions of all members have {MAX_BYTES} bytes.",
                remedy="Stop clients, or subscribe with shorter expressions.",
                code="MEMBERS_FULL",
            )

    def _remove(self, members: dict[str, _Member], client_id: str) -> bool:
        known = members.pop(client_id, None)
        self._bytes -= known.bytes if known else 0
        return known is not None

    def _expire(self, members: dict[str, _Member], now_ms: int) -> bool:
        """Remove the members whose last heartbeat is too old; return whether there were any."""
        gone = [name for name, member in members.items() if now_ms - member.seen_ms >= EXPIRY_MS]
        for name in gone:
            self._remove(members, name)
        return bool(gone)

    def rebalancing(self, group: str, now_ms: int) -> list[str]:
        """Return the sorted ids of the live members that share the queues."""
        members = self._live(group, now_ms).items()
        shared = MessageModel.CLUSTERING
        return sorted(name for name, member in members if member.data.message_model is shared)

    def ids(self, group: str, now_ms: int) -> list[str]:
        """Return the sorted client ids of a group's live members."""
        return sorted(self._live(group, now_ms))

    def groups(self, now_ms: int) -> list[str]:
        """Return the sorted names of all groups that have members."""
        with self._lock:
            names = sorted(self._groups)
        return [name for name in names if self._live(name, now_ms)]

    def is_member(self, client_id: str, incarnation: str, group: str, now_ms: int) -> bool:
        known = self._live(group, now_ms).get(client_id)
        return known is not None and known.incarnation == incarnation

    def subscriptions(self, group: str, now_ms: int) -> Mapping[str, Subscription]:
        """Return the subscriptions of the group by topic: those of the last heartbeat."""
        members = [*self._live(group, now_ms).values()]
        return members[-1].data.subscriptions if members else {}

    def differing(self, group: str, now_ms: int) -> list[str]:
        """Return the sorted ids of the members whose subscriptions are not those of the group."""
        members = self._live(group, now_ms)
        shared = _expressions(self.subscriptions(group, now_ms))
        return sorted(
            name
            for name, member in members.items()
            if _expressions(member.data.subscriptions) != shared
        )

    def live(self, group: str, now_ms: int) -> list[LiveMember]:
        """Return a group's live members, sorted by their ids."""
        differing = {*self.differing(group, now_ms)}
        return [LiveMember(name, name in differing) for name in self.ids(group, now_ms)]

    def _live(self, group: str, now_ms: int) -> dict[str, _Member]:
        with self._lock:
            return {
                name: member
                for name, member in self._groups.get(group, {}).items()
                if now_ms - member.seen_ms < EXPIRY_MS
            }

    def _notify(self, groups: list[str]) -> None:
        for group in groups:
            for watcher in self._watchers:
                watcher(group)


class HeldGroups:
    """The groups consumed by this process without a broker. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a lock file for each group."""
        self._folder, self._lock, self._held = folder, threading.Lock(), dict[str, FileLock]()

    def hold(self, group: str) -> None:
        """Hold a group for this process.

        The members of another process would not know of these, and consume the same messages.
        Raises StoreLockedError (GROUP_IN_USE).
        """
        with self._lock:
            if group in self._held:
                return
            make_directory(self._folder)
            lock = FileLock(self._folder / group)
            if not lock.try_lock():
                lock.close()
                raise _in_use(group, lock.path)
            # For the error in another process.
            with opened(lock.path, os.O_WRONLY | os.O_TRUNC) as descriptor:
                write_at(descriptor, b"%d" % os.getpid(), 0)
            self._held[group] = lock

    def release(self, group: str) -> None:
        """Release a group that has no more members in this process."""
        with self._lock:
            if (lock := self._held.pop(group, None)) is not None:
                lock.close()

    def close(self) -> None:
        for group in [*self._held]:
            self.release(group)


def check_heartbeat(beat: Heartbeat) -> None:
    """Check the ids and the expressions of a heartbeat.

    Raises InvalidInputError (CLIENT_ID_INVALID, EXPRESSION_TOO_LONG).
    """
    for client_id in (beat.client_id, beat.incarnation, *beat.producer_groups):
        check_client_id(client_id)
    for data in beat.consumers:
        for subscription in data.subscriptions.values():
            check_expression(subscription.expression)


def check_client_id(client_id: str) -> None:
    """Raise InvalidInputError (CLIENT_ID_INVALID) unless an id has 1 to 255 bytes."""
    if not 0 < len(client_id.encode()) <= MAX_CLIENT_ID_BYTES:
        raise InvalidInputError(
            f"the client id {client_id[:40]!r} has {len(client_id.encode())} bytes.",
            remedy=f"Use an id of 1 to {MAX_CLIENT_ID_BYTES} bytes.",
            code="CLIENT_ID_INVALID",
        )


def _size(data: ConsumerData) -> int:
    """Return about how much memory a member takes up."""
    texts = sum(
        len(topic) + len(subscription.expression)
        for topic, subscription in data.subscriptions.items()
    )
    return _MEMBER_BYTES + _SUBSCRIPTION_BYTES * len(data.subscriptions) + texts


def _expressions(subscriptions: Mapping[str, Subscription]) -> dict[str, tuple[str, str]]:
    return {
        topic: (subscription.kind, subscription.expression)
        for topic, subscription in subscriptions.items()
    }


def _duplicate(client_id: str, group: str) -> InvalidInputError:
    return InvalidInputError(
        f"another client with the id {client_id!r} is a member of the group {group!r}.",
        remedy="Set a different `instance` for each client, or none; after a crash, an id can be"
        f" used again after {EXPIRY_MS // 1000} s.",
        code="DUPLICATE_CLIENT",
    )


def _in_use(group: str, file: Path) -> StoreLockedError:
    holder = (read_or_none(file) or b"").decode(errors="replace")
    return StoreLockedError(
        f"the group {group!r} is consumed by process {holder}, over the same directory.",
        remedy="Start the group's consumers in one process, or run `pyrocket broker` and use its"
        " endpoint.",
        code="GROUP_IN_USE",
    )
