"""The settings of consumers and producers, with the bounds of RocketMQ's clients.

Source: `DefaultMQPushConsumer`, and `DefaultMQPushConsumerImpl.checkConfig`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from inspect import signature
from typing import Any, Literal, TypedDict, TypeVar

from pyrocket.base.arguments import check_names, check_type, is_number
from pyrocket.client.allocation import Strategy, averagely
from pyrocket.client.consume_from import ConsumeFrom, consume_timestamp
from pyrocket.errors import InvalidInputError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.metadata.groups import check_group_name
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.consuming import MessageModel, Subscription

_DEFAULT_GROUP = "DEFAULT_CONSUMER"
_UNLIMITED = -1

ROUND_ROBIN, LEAST_LATENCY = "round-robin", "least-latency"


def _number(default: int, low: int, high: int, *, unlimited: bool = False) -> Any:
    """Return a field with bounds; with `unlimited`, -1 is valid, too."""
    return field(default=default, metadata={"bounds": (low, high), "unlimited": unlimited})


def _check_numbers(config: Any, code: str) -> None:
    for setting in fields(config):
        if "bounds" not in setting.metadata:
            continue
        low, high = setting.metadata["bounds"]
        unlimited, value = setting.metadata["unlimited"], getattr(config, setting.name)
        if is_number(value) and (low <= value <= high or (unlimited and value == _UNLIMITED)):
            continue
        also = f", or {_UNLIMITED} for no limit" if unlimited else ""
        remedy = f"Use a whole number from {low} to {high}{also}."
        raise _invalid(setting.name, value, remedy, code)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """The settings of one consumer; each is checked when it is created.

    Raises GroupNameError, TopicNameError, and InvalidInputError (CONSUMER_CONFIG) with the name of
    the invalid setting and its bounds.

    Attributes:
        group: The consumer group.
        subscriptions: Topic → tags separated by `||`, or a Subscription; `*` selects all messages.
        message_model: Whether the members share the queues, or each consumes all of them.
        consume_from: Where a group starts at its first contact with a topic.
        consume_timestamp: The start for ConsumeFrom.TIMESTAMP: "-1h" before the consumer's start,
            "yyyyMMddHHmmss" or a datetime; by default half an hour ago.
        strategy: How the members share the queues; see `pyrocket.client.allocation`.
        orderly: Whether the messages of a queue are consumed in order, one batch at a time.
        thread_max: The maximum number of listeners that run at once.
        consume_concurrently_max_span: The maximum difference between the offsets in process of one
            queue.
        pull_threshold_for_queue: The number of messages of one queue in memory above which pulling
            pauses.
        pull_threshold_size_for_queue: The same in MiB.
        pull_threshold_for_topic: The number for all queues of a topic together; -1 for no limit.
        pull_threshold_size_for_topic: The same in MiB; -1 for no limit.
        pull_interval_ms: The pause between two pulls of one queue.
        consume_message_batch_max_size: The maximum number of messages for one call of the listener.
        pull_batch_size: The maximum number of messages of one pull.
        max_reconsume_times: After how many repeated attempts a message becomes a dead letter. -1 is
            the group's setting (16); for orderly consumers, no limit.
        suspend_ms: The pause of an orderly queue before its failed messages are delivered again.
        consume_timeout_min: Minutes until a message that a listener has is sent back (clustering).
        stop_timeout_ms: How long a stop waits for running listeners.
        trace_topic: The topic for the message trace, such as RMQ_SYS_TRACE_TOPIC; "" for no trace.
        missing_topic: "wait" for topics that do not exist yet, or "error".
    """

    group: str
    subscriptions: Mapping[str, Subscription | str] = field(default_factory=dict)
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_timestamp: str | datetime | None = None
    strategy: Strategy = averagely
    orderly: bool = False
    thread_max: int = _number(20, 1, 1000)
    consume_concurrently_max_span: int = _number(2000, 1, 65_535)
    pull_threshold_for_queue: int = _number(1000, 1, 65_535)
    pull_threshold_size_for_queue: int = _number(100, 1, 1024)
    pull_threshold_for_topic: int = _number(_UNLIMITED, 1, 6_553_500, unlimited=True)
    pull_threshold_size_for_topic: int = _number(_UNLIMITED, 1, 102_400, unlimited=True)
    pull_interval_ms: int = _number(0, 0, 65_535)
    consume_message_batch_max_size: int = _number(1, 1, 1024)
    pull_batch_size: int = _number(32, 1, 1024)
    max_reconsume_times: int = _number(_UNLIMITED, 0, 2**31 - 1, unlimited=True)
    suspend_ms: int = _number(1000, 10, 30_000)
    consume_timeout_min: int = _number(15, 1, 2**31 - 1)
    stop_timeout_ms: int = _number(30_000, 0, 2**31 - 1)
    trace_topic: str = ""
    missing_topic: str = "wait"

    def __post_init__(self) -> None:
        check_group_name(self.group)
        if self.group == _DEFAULT_GROUP:
            raise _invalid("group", self.group, "Use a name of your own: groups share offsets.")
        _check_numbers(self, "CONSUMER_CONFIG")
        for name, kind in (("message_model", MessageModel), ("consume_from", ConsumeFrom)):
            object.__setattr__(self, name, _member(name, getattr(self, name), kind))
        if self.trace_topic:
            check_topic_name(self.trace_topic)
        if self.missing_topic not in ("error", "wait"):
            raise _invalid("missing_topic", self.missing_topic, "Use 'error' or 'wait'.")
        if not callable(self.strategy):
            raise _invalid(
                "strategy", self.strategy, "Use a function of pyrocket.client.allocation."
            )
        consume_timestamp(self.consume_timestamp, now_ms=0)
        object.__setattr__(self, "subscriptions", subscriptions_of(self.subscriptions))

    @property
    def by_topic(self) -> dict[str, Subscription]:
        """The subscriptions, none of which is a string."""
        return subscriptions_of(self.subscriptions)


class ConsumerSettings(TypedDict, total=False):
    """The keyword arguments of consumers that are fields of `ConsumerConfig`."""

    message_model: MessageModel | Literal["CLUSTERING", "BROADCASTING"]
    consume_from: (
        ConsumeFrom
        | Literal["last", "first", "timestamp"]
        | Literal["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"]
    )
    consume_timestamp: str | datetime | None
    strategy: Strategy
    orderly: bool
    thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval_ms: int
    consume_message_batch_max_size: int
    pull_batch_size: int
    max_reconsume_times: int
    suspend_ms: int
    consume_timeout_min: int
    stop_timeout_ms: int
    trace_topic: str
    missing_topic: Literal["error", "wait"]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer. Raises InvalidInputError (PRODUCER_CONFIG), GroupNameError.

    Attributes:
        group: The producer group. Undecided transactions are checked with any producer of a group.
        timeout_ms: Maximum time of a send with all its attempts.
        retries: Number of further attempts to send a message after a failure. Each is made at
            another broker, if there is one. A message may be stored twice if a reply was lost.
        queue_choice: "round-robin" or "least-latency". With the latter, the queue whose last 32
            sends were fastest receives nearly all messages.
        avoid_slow_brokers: Whether brokers that were slow or failed receive no messages for some
            seconds; see `fault_table`.
        max_message_bytes: Maximum size of a body, and of all messages of a batch.
        max_pending: Maximum number of sends that have been started and not finished.
        trace_topic: The topic for the message trace, such as RMQ_SYS_TRACE_TOPIC; "" for no trace.
    """

    group: str = "DEFAULT_PRODUCER"
    timeout_ms: int = _number(3000, 1, 3_600_000)
    retries: int = _number(2, 0, 100)
    queue_choice: str = ROUND_ROBIN
    avoid_slow_brokers: bool = False
    max_message_bytes: int = _number(4 * 1024 * 1024, 1, 1 << 30)
    max_pending: int = _number(10_000, 1, 1_000_000)
    trace_topic: str = ""

    def __post_init__(self) -> None:
        check_group_name(self.group)
        _check_numbers(self, "PRODUCER_CONFIG")
        if self.trace_topic:
            check_topic_name(self.trace_topic)
        check_type(bool, "Use True or False.", avoid_slow_brokers=self.avoid_slow_brokers)
        if self.queue_choice not in (ROUND_ROBIN, LEAST_LATENCY):
            raise InvalidInputError(
                f"queue_choice is {self.queue_choice!r}.",
                remedy=f"Use {ROUND_ROBIN!r} or {LEAST_LATENCY!r}.",
                code="PRODUCER_CONFIG",
            )


class ProducerSettings(TypedDict, total=False):
    """The keyword arguments of a producer that are fields of `ProducerConfig`."""

    timeout_ms: int
    retries: int
    queue_choice: Literal["round-robin", "least-latency"]
    avoid_slow_brokers: bool
    max_message_bytes: int
    max_pending: int
    trace_topic: str


_Config = TypeVar("_Config", ConsumerConfig, ProducerConfig)


def config_of(kind: type[_Config], client: type, /, **settings: Any) -> _Config:
    """Return the settings of a client; an unknown name is an error like an invalid value.

    The nearest name in the error may be that of another argument of the client.
    """
    code = "CONSUMER_CONFIG" if kind is ConsumerConfig else "PRODUCER_CONFIG"
    names = [setting.name for setting in fields(kind)]
    check_names(settings, names, signature(client).parameters, code=code)
    return kind(**settings)


def _member(name: str, value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(repr(member.value) for member in kind)
        raise _invalid(name, value, f"Use one of {names}.") from None


def subscriptions_of(given: Any) -> dict[str, Subscription]:
    """Return checked subscriptions by topic. Raises InvalidInputError, TopicNameError."""
    if not isinstance(given, Mapping):
        raise _invalid("subscriptions", given, 'Use {topic: "tag || tag"}.')
    subscriptions = {}
    for topic, wanted in given.items():
        check_topic_name(topic)
        if topic.startswith(RETRY_PREFIX):
            raise _invalid("subscriptions", topic, "The retry topic is consumed without it.")
        subscription = Subscription(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(subscription, Subscription) or subscription.kind not in ("TAG", "SQL92"):
            raise _invalid(
                "subscriptions", wanted, 'Use "tag || tag" or Subscription(sql, "SQL92").'
            )
        if subscription.kind == "SQL92":
            MessageFilter.parse(sql=subscription.expression)
        subscriptions[topic] = subscription
    return subscriptions


def _invalid(
    name: str, value: Any, remedy: str, code: str = "CONSUMER_CONFIG"
) -> InvalidInputError:
    return InvalidInputError(f"{name} is {value!r}.", remedy=remedy, code=code)
