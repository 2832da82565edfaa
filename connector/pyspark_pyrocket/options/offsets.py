"""The offsets a user gives: words, or JSON checked against the exact queues. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pyrocket import QueueOffsets
from pyrocket.errors import OffsetOutOfRangeError, OptionError

from pyspark_pyrocket.options import jsontext

EARLIEST, LATEST = -2, -1
"""What Kafka's source writes for them in its JSON."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_QUEUE = re.compile(r"0|[1-9][0-9]{0,8}")

_Name = TypeVar("_Name", str, int)

Bounds = Mapping[str, Mapping[int, QueueOffsets]]
"""Topic → queue → the offsets that it has."""

QueueNumbers = dict[str, dict[int, int]]
"""Topic → queue → one offset."""


@dataclass(frozen=True)
class OffsetChoice:
    """What `option` says: one word for all queues, or offsets by topic, broker and queue.

    The broker is an empty string where the user left that level out.
    """

    option: str
    word: int = EARLIEST
    queues: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, option: str, text: str) -> "OffsetChoice":
        """Read a word or a JSON object."""
        word = _WORDS.get(text.strip().lower())
        if word is not None:
            return cls(option, word)
        if not text.lstrip().startswith("{"):
            raise OptionError(
                f"Option {option!r} is {text!r}.",
                remedy='Write earliest, latest or JSON such as {"topic":{"0":23,"1":-2}}.',
            )
        topics = jsontext.parse(option, text)
        assert isinstance(topics, dict)
        if not topics:
            raise OptionError(f"Option {option!r} names no topic: {text}")
        return cls(
            option, queues={name: _brokers(option, name, value) for name, value in topics.items()}
        )

    def uses(self, word: int) -> bool:
        """Tell whether this word, or its number, occurs anywhere."""
        if not self.queues:
            return self.word == word
        return any(
            word in queues.values()
            for brokers in self.queues.values()
            for queues in brokers.values()
        )

    def describe(self) -> str:
        """Return what the user wrote, for a log line."""
        return "the given offsets" if self.queues else {v: k for k, v in _WORDS.items()}[self.word]

    def resolve(self, bounds: Bounds, broker: str) -> QueueNumbers:
        """Return one offset for every queue of `bounds`, all of them within its bounds."""
        if not self.queues:
            return {
                topic: {queue: _number(self.word, limits) for queue, limits in queues.items()}
                for topic, queues in bounds.items()
            }
        _check_names(f"Option {self.option!r}", "topics", set(self.queues), set(bounds))
        return {
            topic: self._resolve_topic(topic, queues, broker) for topic, queues in bounds.items()
        }

    def _resolve_topic(
        self, topic: str, bounds: Mapping[int, QueueOffsets], broker: str
    ) -> dict[int, int]:
        brokers = self.queues[topic]
        where = f"Option {self.option!r}, topic {topic!r}"
        if "" not in brokers:
            _check_names(where, "brokers", set(brokers), {broker})
        given = brokers["" if "" in brokers else broker]
        _check_names(where, "queues", set(given), set(bounds))
        chosen = {queue: _number(given[queue], limits) for queue, limits in bounds.items()}
        for queue, offset in chosen.items():
            check_within(f"{where}, queue {queue}", offset, bounds[queue])
        return chosen


def check_within(where: str, offset: int, limits: QueueOffsets) -> None:
    """Raise unless the queue can be read from, or up to, `offset`."""
    if not limits.minimum <= offset <= limits.maximum:
        raise OffsetOutOfRangeError(
            f"{where}: offset {offset} is outside {limits.minimum} to {limits.maximum}, "
            "which is what the queue has.",
            remedy="Messages below were deleted, those beyond do not exist yet: "
            "choose an offset in between.",
        )


def _number(value: int, limits: QueueOffsets) -> int:
    if value == EARLIEST:
        return limits.minimum
    return limits.maximum if value == LATEST else value


def _brokers(option: str, topic: str, value: object) -> dict[str, dict[int, int]]:
    where = f"Option {option!r}, topic {topic!r}"
    if not isinstance(value, dict) or not value:
        raise OptionError(f"{where}: {value!r} gives no queues.", remedy='Write {"0":23}.')
    if all(isinstance(inner, dict) for inner in value.values()):
        return {broker: _queues(where, inner) for broker, inner in value.items()}
    return {"": _queues(where, value)}


def _queues(where: str, value: dict[str, object]) -> dict[int, int]:
    return {_queue_id(where, queue): _offset(where, queue, value[queue]) for queue in value}


def _queue_id(where: str, queue: str) -> int:
    if _QUEUE.fullmatch(queue) is None:
        raise OptionError(f"{where}: {queue!r} is not a queue id.", remedy='Write "0", "1", ...')
    return int(queue)


def _offset(where: str, queue: str, value: object) -> int:
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    # JSON's true is an int to Python.
    if isinstance(value, int) and not isinstance(value, bool) and -2 <= value < 2**63:
        return value
    raise OptionError(
        f"{where}, queue {queue}: {value!r} is not an offset.",
        remedy='Write a number from 0, "earliest" (or -2) or "latest" (or -1).',
    )


def _check_names(where: str, what: str, given: set[_Name], real: set[_Name]) -> None:
    missing, extra = real - given, given - real
    if not missing and not extra:
        return
    parts = [f"names {what} that are not read: {_list(extra)}"] if extra else []
    parts += [f"does not name the {what} {_list(missing)}"] if missing else []
    raise OptionError(
        f"{where} {' and '.join(parts)}.", remedy=f"Name exactly the {what} {_list(real)}."
    )


def _list(names: set[_Name]) -> str:
    return ", ".join(map(str, sorted(names)))
