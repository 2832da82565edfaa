"""How the members of a consumer group share the queues of a topic: RocketMQ's strategies.

Each member computes its own queues from the list of all queues and the list of all members. The
results agree if all members have the same lists, in RocketMQ's order (`sort_queues`,
`sort_members`), and use the same strategy. RocketMQ's own clients can therefore be members of the
same group. Source: the classes of `org.apache.rocketmq.client.consumer.rebalance` and
`ConsistentHashRouter`, whose results these functions reproduce.

In the allocation by consistent hash a member has several points on a ring, its virtual nodes. A key
belongs to the member with the first point at or after the hash of the key; after the last point,
the ring continues at the first. The hash of a string is the first four bytes of the MD5 of its
UTF-8 bytes, big-endian.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5
from typing import TypeVar

from pyrocket.errors import InvalidInputError
from pyrocket.values.message import MessageQueue


class HashRing:
    """A ring with `virtual_nodes` points for each name.

    The points are the hashes of `name-0`, `name-1`, and so on. If two points have the same hash,
    the later one replaces the earlier one. A name that is given twice receives twice as many
    points.
    """

    def __init__(self, names: Iterable[str], virtual_nodes: int) -> None:
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for name in names:
            first = sum(owner == name for owner in owners.values()) if name in seen else 0
            for number in range(first, first + virtual_nodes):
                owners[_hash(f"{name}-{number}")] = name
            seen.add(name)
        self._points = sorted(owners)
        self._owners = [owners[point] for point in self._points]

    def owner(self, key: str) -> str | None:
        """Return the name to which a key belongs; None if the ring is empty."""
        if not self._points:
            return None
        return self._owners[bisect_left(self._points, _hash(key)) % len(self._points)]


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


_T = TypeVar("_T")

Strategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns the queues of one member: `strategy(group, client_id, queues, members)`.

`group` is the name of the consumer group, which RocketMQ's strategies do not use. `client_id` is
the id of the member. `queues` and `members` are all queues and the client ids of all members,
sorted.

All strategies of this module except `by_config` return no queues if `members` does not contain
`client_id`. They raise InvalidInputError (ALLOCATION_ILLEGAL) if an argument other than `group` is
empty.
"""

ROOM_SEPARATOR = "@"
"""Separates the name of a machine room from the rest of a broker's name."""


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in RocketMQ's order: by topic, broker and id. Source: `MessageQueue.compareTo`.

    Strings are compared by UTF-16 code units, as in Java.
    """
    return sorted(
        queues, key=lambda queue: (_units(queue.topic), _units(queue.broker), queue.queue_id)
    )


def sort_members(client_ids: Iterable[str]) -> list[str]:
    """Return client ids in RocketMQ's order: by UTF-16 code units, as Java compares strings."""
    return sorted(client_ids, key=_units)


def averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Allocate consecutive queues; if queues remain, the first members receive one more each.

    This is RocketMQ's default, `AllocateMessageQueueAveragely`. See `Strategy` for the arguments.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(5)]
    >>> [queue.queue_id for queue in averagely("billing", "c1", queues, ["c1", "c2"])]
    [0, 1, 2]
    """
    index = _index(client_id, queues, members)
    if index is None:
        return []
    size, remainder = divmod(len(queues), len(members))
    start = index * size + min(index, remainder)
    return list(queues[start : start + size + (index < remainder)])


def by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Allocate queues to the members in turn, one at a time.

    Source: `AllocateMessageQueueAveragelyByCircle`. See `Strategy` for the arguments.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(5)]
    >>> [queue.queue_id for queue in by_circle("billing", "c1", queues, ["c1", "c2"])]
    [0, 2, 4]
    """
    index = _index(client_id, queues, members)
    return [] if index is None else list(queues[index :: len(members)])


def by_config(assigned: Sequence[MessageQueue]) -> Strategy:
    """Return a strategy that always allocates the queues in `assigned`.

    The strategy checks none of its arguments. Source: `AllocateMessageQueueByConfig`.
    """
    return lambda group, client_id, queues, members: list(assigned)


def by_consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """Return a strategy that moves few queues when a member joins or leaves.

    `virtual_nodes` is the number of points of each member on the hash ring, 0 or more; with 0, no
    member receives a queue. Raises InvalidInputError (ALLOCATION_ILLEGAL) if it is negative.
    Source: `AllocateMessageQueueConsistentHash`.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> [queue.queue_id for queue in by_consistent_hash()("billing", "c1", queues, ["c1", "c2"])]
    [1, 3]
    """
    if virtual_nodes < 0:
        raise _illegal(f"virtual_nodes is {virtual_nodes}.", "Use 0 or more; RocketMQ uses 10.")

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if _index(client_id, queues, members) is None:
            return []
        ring = HashRing(members, virtual_nodes)
        return [queue for queue in queues if ring.owner(_java_text(queue)) == client_id]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Return a strategy that allocates only the queues of brokers in the given machine rooms.

    A broker in the room `east` is called `east@name`. Each member receives the same number of
    consecutive queues; if queues remain, the first members receive one of them each. Queues of
    brokers in other rooms are not allocated. Source: `AllocateMessageQueueByMachineRoom`.

    >>> queues = [MessageQueue("orders", room, 0) for room in ["east@a", "east@b", "west@c"]]
    >>> by_machine_room({"east"})("billing", "c2", queues, ["c1", "c2"])
    [MessageQueue(topic='orders', broker='east@b', queue_id=0)]
    """

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        index = _index(client_id, queues, members)
        if index is None:
            return []
        own = in_machine_rooms(queues, rooms)
        size = len(own) // len(members)
        remaining = own[size * len(members) :]
        return own[index * size : (index + 1) * size] + remaining[index : index + 1]

    return allocate


def in_machine_rooms(queues: Iterable[MessageQueue], rooms: Collection[str]) -> list[MessageQueue]:
    """Return the queues of brokers that are named `room@name`, with one of the given rooms.

    As in Java's `String.split`, separators at the end of the name are ignored.
    """
    selected = []
    for queue in queues:
        parts = queue.broker.rstrip(ROOM_SEPARATOR).split(ROOM_SEPARATOR)
        if len(parts) == 2 and parts[0] in rooms:
            selected.append(queue)
    return selected


def machine_room_nearby(
    inner: Strategy,
    room_of_queue: Callable[[MessageQueue], str | None],
    room_of_member: Callable[[str], str | None],
) -> Strategy:
    """Return a strategy that allocates queues to members in the same machine room if there are any.

    The members of a room share its queues by the strategy `inner`. All members share the queues of
    a room without members, also by `inner`. The result contains the queues of the member's own
    room, followed by those of other rooms in the order of the rooms' names.

    `room_of_queue` and `room_of_member` return the machine room of a queue's broker and of a
    client id. The strategy raises InvalidInputError (ALLOCATION_ILLEGAL) if one of them returns an
    empty string or None. Source: `AllocateMachineRoomNearby`.
    """

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if _index(client_id, queues, members) is None:
            return []
        queues_in, members_in = _by_room(queues, room_of_queue), _by_room(members, room_of_member)
        own = room_of_member(client_id)
        shared = sorted(queues_in.keys() - members_in.keys(), key=_units)
        allocated = []
        if own in queues_in:
            allocated += inner(group, client_id, queues_in[own], members_in[own])
        for room in shared:
            allocated += inner(group, client_id, queues_in[room], members)
        return allocated

    return allocate


def _index(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> int | None:
    for name, given in (("client_id", client_id), ("queues", queues), ("members", members)):
        if not given:
            raise _illegal(
                f"{name} is empty.", "Pass a client id, at least one queue and at least one member."
            )
    return members.index(client_id) if client_id in members else None


def _by_room(items: Iterable[_T], room_of: Callable[[_T], str | None]) -> dict[str, list[_T]]:
    rooms: dict[str, list[_T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise _illegal(
                f"The machine room of {item!r} is {room!r}.",
                "Return a non-empty string for every queue and member.",
            )
        rooms.setdefault(room, []).append(item)
    return rooms


def _units(text: str) -> bytes:
    """Return a sort key with the order of Java's `String.compareTo`."""
    return text.encode("utf-16-be", "surrogatepass")


def _java_text(queue: MessageQueue) -> str:
    """Return `MessageQueue.toString()`, which RocketMQ hashes."""
    fields = f"topic={queue.topic}, brokerName={queue.broker}, queueId={queue.queue_id}"
    return f"MessageQueue [{fields}]"


def _illegal(message: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(message, remedy=remedy, code="ALLOCATION_ILLEGAL")
