"""Checks the rights that calls need, by one table.

    fetch                                    subscribe on the topic
    append, stage, publish                   publish on each topic
    offsets of a group                       subscribe on the group; to commit, also on each topic
    checks of a producer group               publish on any topic; each check: on its topic
    create, alter, delete, reset             admin
    register a broker                        admin on the whole store
    routes of topics                         any right on each
    topics, and bounds to plan reads         none; lists those on which the user has rights
    sizes of topics; lag, members of groups  any right on each
    dead letters of a group                  subscribe on the group
    other views, system topics               admin on the whole store

A call that is missing from the table needs `admin` on the whole store.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyrocket.base.credentials import parse
from pyrocket.broker.access import (
    ADMIN,
    GROUP,
    PUBLISH,
    STORE,
    SUBSCRIBE,
    TOPIC,
    Access,
    Need,
    not_authenticated,
)
from pyrocket.errors import (
    GroupNotFoundError,
    PyrocketError,
    StorePermissionError,
    TopicNotFoundError,
)
from pyrocket.formats.system_topics import (
    CLOSED_TO_SENDERS,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
)
from pyrocket.server.incoming import CallOrigin
from pyrocket.values.consuming import Heartbeat
from pyrocket.values.lookup import LookupRequest, MessageLocations
from pyrocket.values.message import Message, MessageQueue, QueueRange
from pyrocket.values.sink import Staged
from pyrocket.values.source import ReadPlan, RetryPart, TablePart

WHOLE_STORE = Need(ADMIN, STORE)
CREATE = "create"

_RIGHTS: list[tuple[str, tuple[tuple[str, str, str], ...]]] = [
    ("Hello Watch Status Plan Topics Holds FinishStaging Groups Retention Flush", ()),
    ("Topic MessageType", (("any", TOPIC, "name"),)),
    ("Bounds Retired", ((SUBSCRIBE, TOPIC, "topics"),)),
    ("QueueBounds Truncations", ((SUBSCRIBE, TOPIC, "queues"),)),
    ("OffsetsAt", ((SUBSCRIBE, TOPIC, "times_ms"),)),
    ("Mark", ((SUBSCRIBE, TOPIC, "offsets"),)),
    ("Sizes Slices JoinedSlice", ((SUBSCRIBE, TOPIC, "ranges"),)),
    ("SplitAtBytes", ((SUBSCRIBE, TOPIC, "splits"),)),
    ("Locate", ((SUBSCRIBE, TOPIC, "request"),)),
    ("SlicesAt", ((SUBSCRIBE, TOPIC, "locations"),)),
    ("PlanView ReadView", (("view", STORE, ""),)),
    ("Committed", ((SUBSCRIBE, GROUP, "group"),)),
    ("Commit", ((SUBSCRIBE, GROUP, "group"), (SUBSCRIBE, TOPIC, "offsets"))),
    ("Prepare", ((PUBLISH, TOPIC, "topic"), (CREATE, TOPIC, "topic"))),
    ("Append Stage", ((PUBLISH, TOPIC, "topics"),)),
    ("Publish", ((PUBLISH, TOPIC, "staged"), (CREATE, TOPIC, "staged"))),
    ("Discard", ((PUBLISH, TOPIC, "staged"),)),
    ("CreateTopic UpdateTopic DeleteTopic", ((ADMIN, TOPIC, "name"),)),
    ("Group Lag Members", (("any", GROUP, "group"),)),
    ("CreateGroup UpdateGroup ResetGroup DeleteGroup", ((ADMIN, GROUP, "group"),)),
    ("SetRetention Clean Replicate Acknowledge", ((ADMIN, STORE, ""),)),
    # Producers and consumers of `pyrocket.client`.
    ("SendMessages SendHalf", ((PUBLISH, TOPIC, "queue"), (CREATE, TOPIC, "queue"))),
    ("CreateMissing", ((PUBLISH, TOPIC, "name"), (CREATE, TOPIC, "name"))),
    ("EndHalf", ((PUBLISH, TOPIC, "topic"),)),
    ("JoinGroups", (("join", STORE, ""),)),
    ("LeaveGroup GroupStarts GroupMembers", ((SUBSCRIBE, GROUP, "group"),)),
    ("CheckFilter", ((SUBSCRIBE, TOPIC, "topic"),)),
    ("Notifications", (("follow", STORE, ""),)),
    (
        "PullQueue StartOffset CommittedOffset SendBack",
        ((SUBSCRIBE, TOPIC, "queue"), (SUBSCRIBE, GROUP, "group")),
    ),
    ("LockQueues UnlockQueues", ((SUBSCRIBE, TOPIC, "queues"), (SUBSCRIBE, GROUP, "group"))),
    ("CommitOffsets", ((SUBSCRIBE, TOPIC, "offsets"), (SUBSCRIBE, GROUP, "group"))),
    # The name server.
    ("Register", ((ADMIN, STORE, ""),)),
    ("Routes", (("any", TOPIC, "topics"),)),
    ("ClusterTopics Brokers", ()),
    # RocketMQ's own protocol.
    ("QueryRoute", (("any", TOPIC, "topics"),)),
    ("QueryOffset", ((SUBSCRIBE, TOPIC, "topics"),)),
    ("Heartbeat NotifyClientTermination", ((SUBSCRIBE, GROUP, "groups"),)),
    (
        "Telemetry",
        (
            (PUBLISH, TOPIC, "publishing"),
            (SUBSCRIBE, TOPIC, "subscribed"),
            (SUBSCRIBE, GROUP, "groups"),
        ),
    ),
    ("SendMessage", ((PUBLISH, TOPIC, "topics"), (CREATE, TOPIC, "topics"))),
    ("RecallMessage EndTransaction", ((PUBLISH, TOPIC, "topics"),)),
    (
        "PullMessage UpdateOffset GetOffset QueryAssignment ReceiveMessage AckMessage"
        " ChangeInvisibleDuration ForwardMessageToDeadLetterQueue",
        ((SUBSCRIBE, TOPIC, "topics"), (SUBSCRIBE, GROUP, "groups")),
    ),
]
NEEDS = {call: needs for calls, needs in _RIGHTS for call in calls.split()}
"""Call → the rights that it needs: right, kind, and the argument with the names.

`any` is satisfied by any right; `view`, `join` and `follow` stand for the rights that
`_needs_of_view`, `_needs_of_join` and `_needs_of_follow` return.
`create` means `admin`, but is not needed if the topic exists or the call does not create topics.
FinishStaging needs no right: only the writer knows the name of the staged file, and the rights were
checked for each of its blocks.
"""


_LISTS = {"Topics": TOPIC, "Groups": GROUP, "ClusterTopics": TOPIC}
"""Calls whose replies list only topics or groups on which the caller has a right."""


class Gate:
    """Authenticates and authorizes calls; without a users file, admits all calls."""

    def __init__(
        self,
        access: Callable[[], Access] | None = None,
        topics: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`access` returns the current rights, `topics` the names of the existing topics."""
        self._access, self._topics = access, topics

    @property
    def anonymous(self) -> str | None:
        """The user of a call that needs no credentials; None without a users file."""
        return None if self._access is None else ""

    def user(self, metadata: Iterable[tuple[str, Any]]) -> str | None:
        """Return the user of a call; None without a users file. Raises NotAuthenticatedError."""
        if self._access is None:
            return None
        credentials = parse(metadata)
        if credentials is None:
            raise not_authenticated("the call carries no credentials")
        user, signed, signature = credentials
        self._access().check_signature(user, signed, signature)
        return user

    def without_names(self, error: PyrocketError) -> PyrocketError:
        """Return the error without suggestions, which could name other users' topics and groups."""
        if self._access is None or not isinstance(error, TopicNotFoundError | GroupNotFoundError):
            return error
        return type(error)(error.message, code=error.code)

    def current(self) -> Access | None:
        """Return the current users and rights; None without a users file."""
        return None if self._access is None else self._access()

    def check_again(self, origin: CallOrigin) -> None:
        """Check the rights of a call that was admitted earlier.

        Raises NotAuthenticatedError if its user is gone, and StorePermissionError.
        """
        access = self.current()
        if access is None or not origin.user:
            return
        if origin.user not in access.secrets:
            raise not_authenticated(f"the user {origin.user} was removed")
        for right, kind, name in [*origin.needed]:
            self._check(access, origin.user, right, kind, name, {})

    def admit(
        self, origin: CallOrigin, call: str, arguments: Mapping[str, Any]
    ) -> Callable[[Any], Any]:
        """Check a call, and return a function that filters its reply by the user's rights.

        Raises StorePermissionError.
        """
        if self._access is None:
            return lambda reply: reply
        access, user = self._access(), origin.user or ""
        for right, kind, name in _needs(call, arguments):
            self._check(access, user, right, kind, name, arguments)
            if right != CREATE:
                origin.needed.add((right, kind, name))
        if call == "Locate" and not arguments["request"].topics:
            access.check(user, WHOLE_STORE)
        # A batch without rows, and the checks of a producer group, name no topic.
        if call in ("Publish", "Discard") or arguments.get("producer_group"):
            access.check_publishes(user)
        if call == "Plan":
            return lambda plan: _visible(plan, access, user)
        if call in _LISTS:
            kind = _LISTS[call]
            return lambda reply: [
                item for item in reply if access.has_any(user, kind, getattr(item, "name", item))
            ]
        return lambda reply: reply

    def _check(
        self,
        access: Access,
        user: str,
        right: str,
        kind: str,
        name: str,
        arguments: Mapping[str, Any],
    ) -> None:
        if right == CREATE:
            if not arguments.get("create", True) or name in self._topics():
                return
            right = ADMIN
        if right == "any":
            if not access.has_any(user, kind, name):
                raise StorePermissionError(
                    f"the user {user} does not have any right on the {kind} {name}.",
                    remedy="Let an administrator of the broker add a rule to its file of users.",
                )
            return
        access.check(user, WHOLE_STORE if kind == STORE else _need(right, kind, name))


def _visible(plan: ReadPlan, access: Access, user: str) -> ReadPlan:
    """Return a plan with the topics that a user may see, and the bounds of those it may read."""
    bounds = {
        queue: limits
        for queue, limits in plan.bounds.items()
        if access.has(user, _need(SUBSCRIBE, TOPIC, queue.topic))
    }
    topics = [topic for topic in plan.topics if access.has_any(user, TOPIC, topic.name)]
    return replace(plan, topics=topics, bounds=bounds)


def _needs(call: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the rights that a call needs, each as right, kind and name."""
    for right, kind, argument in NEEDS.get(call, ((ADMIN, STORE, ""),)):
        if right == "view":
            yield from _needs_of_view(arguments)
        elif right == "join":
            yield from _needs_of_join(arguments["heartbeat"])
        elif right == "follow":
            yield from _needs_of_follow(arguments)
        elif kind == STORE:
            yield right, kind, ""
        else:
            yield from ((right, kind, name) for name in {*_names(arguments.get(argument))})


def _needs_of_join(heartbeat: Heartbeat) -> Iterator[tuple[str, str, str]]:
    for consumer in heartbeat.consumers:
        yield SUBSCRIBE, GROUP, consumer.group
        for topic in {*consumer.subscriptions, *consumer.starts}:
            yield SUBSCRIBE, TOPIC, topic


def _needs_of_follow(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the right on a consumer group; producers name none, and get checks by topic."""
    if arguments["group"] or not arguments["producer_group"]:
        yield SUBSCRIBE, GROUP, arguments["group"]


def _needs_of_view(arguments: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rights needed to plan a view, or to read one part of it."""
    part = arguments.get("part")
    if isinstance(part, RetryPart) and part.topic == DLQ_PREFIX + part.group:
        return [(SUBSCRIBE, GROUP, part.group)]
    asked = vars(part) if isinstance(part, TablePart) else {} if part else arguments
    view, topics, group = asked.get("view"), asked.get("topics"), asked.get("group")
    if view == "topics" and topics:
        return [("any", TOPIC, name) for name in topics]
    if view in ("groups", "dlq") and group:
        return [(SUBSCRIBE if view == "dlq" else "any", GROUP, group)]
    return [(ADMIN, STORE, "")]


def _need(right: str, kind: str, name: str) -> Need:
    """Return the right needed on a topic or group.

    For a retry or dead-letter topic, the right on its group is needed; for another system topic,
    the right on the whole store.
    """
    if kind == TOPIC:
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                return Need(right, GROUP, name.removeprefix(prefix))
        if name in CLOSED_TO_SENDERS or name.lower().startswith(SYSTEM_PREFIX):
            return WHOLE_STORE
    return Need(right, kind, name)


def _names(value: Any) -> Iterator[str]:
    """Yield the names of the topics or groups in an argument."""
    if value is None:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Message | MessageQueue | MessageLocations):
        yield value.topic
    elif isinstance(value, QueueRange):
        yield value.queue.topic
    elif isinstance(value, LookupRequest | Staged):
        yield from value.topics
    elif isinstance(value, tuple) and value and isinstance(value[0], QueueRange):
        yield value[0].queue.topic
    else:
        for item in value:
            yield from _names(item)
