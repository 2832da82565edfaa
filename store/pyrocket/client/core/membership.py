"""The membership of a consumer in its group: heartbeats, and where the group starts.

Source: `MQClientInstance.sendHeartbeatToAllBroker`.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from random import Random

from pyrocket.base.failures import Failures, attempt
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.client.core.offsets import END, OffsetStore
from pyrocket.client.core.tasks import SideBySide, Tasks, within
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import TransportError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.values.consuming import (
    ConsumerData,
    GroupStart,
    Heartbeat,
    MessageModel,
    Subscription,
)

HEARTBEAT_S = 20
"""Interval of heartbeats and rebalances. RocketMQ's heartbeats have one of their own, 30 s."""

PATIENCE_S = 3
"""How long a slow broker delays work at the other brokers."""

Confirmed = Callable[[str, bool, float], Coroutine[object, object, None]]
"""Called after a heartbeat with the broker, whether this consumer was a member before, and the time
when the heartbeat was sent.
"""


class Membership:
    """Keeps one consumer in its group at all brokers of its topics. Used by one event loop."""

    def __init__(
        self,
        config: ConsumerConfig,
        member: Member,
        transport: ClientTransport,
        offsets: OffsetStore,
        *,
        topics: Callable[[], Collection[str]],
        subscriptions: Mapping[str, Subscription],
        timestamp_ms: int,
        failures: Failures,
        tasks: Tasks,
        boot_s: Callable[[], float],
        confirmed: Confirmed,
    ) -> None:
        """`topics` returns the topics that the consumer reads, also those that do not exist yet.

        boot_s: The time in seconds, on a clock that does not stop while the machine is suspended.
        """
        self._config, self.member, self._transport = config, member, transport
        self._offsets, self._topics, self._subscriptions = offsets, topics, subscriptions
        self._wanted = {
            ConsumeFrom.FIRST: GroupStart(0, 0),
            ConsumeFrom.LAST: END,
            ConsumeFrom.TIMESTAMP: GroupStart(time_ms=timestamp_ms),
        }[config.consume_from]
        self._failures, self._boot_s, self._confirmed = failures, boot_s, confirmed
        self._beats = SideBySide(tasks)
        self._joined: dict[str, Collection[str]] = {}
        self.brokers: set[str] = set()

    def has_joined(self, broker: str, topic: str) -> bool:
        """Whether the broker has stored where the group starts in a topic, and answers calls."""
        return topic.startswith(RETRY_PREFIX) or topic in self._joined.get(broker, ())

    async def start(self, brokers: set[str]) -> None:
        """Join the group at each broker that answers soon; the others follow.

        Raises an error of a broker that rejects this member, such as InvalidInputError
        (DUPLICATE_CLIENT) or GroupNotFoundError; TransportError if no broker can be reached.
        """
        self.brokers = {*brokers}
        errors, rejected = list[Exception](), list[Exception]()

        async def join(broker: str) -> None:
            try:
                await self.join(broker)
            except TransportError as error:
                errors.append(error)
            except Exception as error:
                self.brokers.discard(broker)  # Another client may have this id there.
                rejected.append(error)

        await self._beats.run(brokers, join, patience_s=PATIENCE_S)
        while not self._joined and await self._beats.one_ended():
            pass
        if rejected or not self._joined:
            raise [*rejected, *errors, _no_answer()][0]

    async def beat(self, brokers: set[str]) -> None:
        """Send a heartbeat to each broker; errors are logged."""
        self.brokers = brokers

        async def beat(broker: str) -> None:
            what = f"a heartbeat to {broker} is repeated"
            if not await attempt(self._failures, what, self.join(broker)):
                self._joined.pop(broker, None)

        await self._beats.run(brokers, beat, patience_s=PATIENCE_S)

    async def join(self, broker: str) -> None:
        """Join the group at one broker, or stay in it.

        Raises InvalidInputError (DUPLICATE_CLIENT), GroupNotFoundError, TransportError.
        """
        topics = [topic for topic in self._topics() if not topic.startswith(RETRY_PREFIX)]
        wanted = dict.fromkeys(topics, self._wanted)
        starts = await self._offsets.first_contact(broker, wanted, self.brokers)
        data = ConsumerData(
            self._config.group,
            self._config.message_model,
            self._config.consume_from.value,
            dict(self._subscriptions),
            starts,
        )
        beat = Heartbeat(self.member.client_id, self.member.incarnation, [data])
        asked_s = self._boot_s()
        was_member = await self._transport.heartbeat(broker, beat)
        self._joined[broker] = topics
        await self._confirmed(broker, was_member, asked_s)

    async def members(self, brokers: Collection[str], random: Random) -> list[str]:
        """Return the sorted ids of the group's members, as one of these brokers knows them.

        This consumer joins the group again at a broker that does not know it: the broker was
        restarted, or this consumer was suspended. Raises TransportError if no broker answers.
        """
        answering = sorted({*brokers} & self._joined.keys()) or sorted(brokers)
        random.shuffle(answering)
        for broker in answering[:-1]:
            if (ids := await self._members_if_answered(broker)) is not None:
                return ids
        return await self._members_at(answering[-1])

    async def _members_if_answered(self, broker: str) -> list[str] | None:
        what = f"{broker} is not asked for the members"
        try:
            ids = await within(PATIENCE_S, self._members_at(broker))
        except TransportError as error:
            self._joined.pop(broker, None)
            self._failures.task(what, error)
            return None
        self._failures.rounds.succeeded(what)
        return ids

    async def _members_at(self, broker: str) -> list[str]:
        ids = await self._transport.members(broker, self._config.group)
        if self.member.client_id not in ids:
            await self.join(broker)
            ids = await self._transport.members(broker, self._config.group)
        return [*ids]

    async def leave(self, broker: str) -> None:
        """Leave the group at one broker; errors are logged."""
        call = self._transport.unregister(broker, self.member.client_id, self._config.group)
        await attempt(self._failures, f"{broker} removes this member later", call)

    @property
    def is_clustering(self) -> bool:
        """Whether the members of the group share the queues."""
        return self._config.message_model is MessageModel.CLUSTERING


def _no_answer() -> TransportError:
    return TransportError(
        "no broker has answered a heartbeat.",
        remedy="Check that the brokers run.",
        repeat_is_safe=True,
    )
