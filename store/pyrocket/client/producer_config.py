"""The settings of a producer: `ProducerConfig`."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn, TypedDict

from pyrocket.base.arguments import check_names, check_type, is_whole
from pyrocket.errors import InvalidInputError
from pyrocket.metadata.groups import check_group_name
from pyrocket.metadata.topics import check_topic_name

ROUND_ROBIN, LEAST_LATENCY = "round-robin", "least-latency"


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
    timeout_ms: int = 3000
    retries: int = 2
    queue_choice: str = ROUND_ROBIN
    avoid_slow_brokers: bool = False
    max_message_bytes: int = 4 * 1024 * 1024
    max_pending: int = 10_000
    trace_topic: str = ""

    def __post_init__(self) -> None:
        check_group_name(self.group)
        self._check("timeout_ms", 1, 3_600_000)
        self._check("retries", 0, 100)
        self._check("max_message_bytes", 1, 1 << 30)
        self._check("max_pending", 1, 1_000_000)
        if self.trace_topic:
            check_topic_name(self.trace_topic)
        check_type(bool, "Use True or False.", avoid_slow_brokers=self.avoid_slow_brokers)
        if self.queue_choice not in (ROUND_ROBIN, LEAST_LATENCY):
            _refuse("queue_choice", self.queue_choice, f"{ROUND_ROBIN!r} or {LEAST_LATENCY!r}")

    def _check(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not is_whole(value, least, most):
            _refuse(name, value, f"a whole number from {least} to {most}")


class ProducerSettings(TypedDict, total=False):
    """The keyword arguments of a producer that are fields of `ProducerConfig`."""

    timeout_ms: int
    retries: int
    queue_choice: Literal["round-robin", "least-latency"]
    avoid_slow_brokers: bool
    max_message_bytes: int
    max_pending: int
    trace_topic: str


def producer_config(arguments: Collection[str] = (), /, **settings: Any) -> ProducerConfig:
    """Return the settings of a producer; an unknown name is an error like an invalid value.

    `arguments` are the names of the producer's other arguments, for the nearest name in the error.
    """
    names = [one.name for one in fields(ProducerConfig)]
    check_names(settings, names, arguments, code="PRODUCER_CONFIG")
    return ProducerConfig(**settings)


def _refuse(name: str, value: Any, wanted: str) -> NoReturn:
    raise InvalidInputError(
        f"{name} is {value!r}.", remedy=f"Use {wanted}.", code="PRODUCER_CONFIG"
    )
