"""The topics and queues that a read covers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.json_values import parse_topics
from pyspark_pyrocket.options.option import (
    ALL,
    READS,
    Kind,
    Option,
    OptionReader,
    choice,
    conflict,
    invalid,
    made_of,
)
from pyspark_pyrocket.options.target import TABLE_OPTIONS_ARE_LOST


def _parse_names(option: str, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(
            f"Option {option!r} has an empty name: {text!r}.",
            remedy="Separate the names by single commas.",
        )
    return tuple(dict.fromkeys(names))


def _parse_pattern(option: str, text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid(
            option,
            text,
            f"It is not a Python regular expression ({error}). Write for example orders-.*, or .* "
            "for all topics.",
        ) from error
    if not text:
        raise invalid(option, text, "Write .* for all topics.")
    return text


def _parse_queues(option: str, text: str) -> dict[str, tuple[int, ...]] | None:
    topics = parse_topics(option, text, '{"topic":[0,2]}')
    return {topic: _queue_ids(option, text, topic, value) for topic, value in topics.items()}


def _queue_ids(option: str, text: str, topic: str, value: object) -> tuple[int, ...]:
    queues = value if isinstance(value, list) else []
    good = queues and all(type(queue) is int and queue >= 0 for queue in queues)
    if not good or len(set(queues)) < len(queues):
        remedy = f'Name different queues of {topic!r} by their numbers, {{"{topic}":[0,1]}}.'
        raise invalid(option, text, remedy)
    return tuple(sorted(queues))


def _parse_topic(option: str, text: str) -> str:
    if not text or "," in text:
        raise invalid(option, text, "It takes one topic; to read several topics, use 'subscribe'.")
    return text


_SUBSCRIBE = Option(
    "subscribe",
    READS,
    Kind("text", _parse_names, tuple[str, ...]()),
    "The topics to read, separated by commas.",
    "one of these four",
)
_SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    READS,
    Kind("text", _parse_pattern, ""),
    "A regular expression. Topics whose full name matches it are read, including those created "
    "while a stream runs. RocketMQ's system topics (`%RETRY%…`, `SCHEDULE_TOPIC_XXXX`, …) and "
    "topics without read permission never match.",
)
_ASSIGN = Option(
    "assign",
    READS,
    Kind("text", _parse_queues, None),
    'JSON with exactly the queues to read, `{"t":[0,2]}`. No queue is added later.',
)
TOPIC = Option(
    "topic",
    ALL,
    Kind("text", _parse_topic, ""),
    "Reads: same as `subscribe`, for one topic. Writes: the target of all rows; overrides a "
    "`topic` column.",
)
_NAMING = (_SUBSCRIBE, _SUBSCRIBE_PATTERN, _ASSIGN, TOPIC)


@dataclass(frozen=True)
class SubscribedTopics:
    """Topics by name, by pattern, or with exactly the queues to read.

    topics: their names in the order given; empty with a pattern, or if no topic is needed.
    wait: whether named topics may be missing at first.
    pattern: the regular expression for full names, or an empty string.
    queues: topic → the queues that are read; a topic that is missing here is read completely.
    """

    topics: tuple[str, ...] = field(default=(), metadata=made_of(*_NAMING))
    wait: bool = Option(
        "missingTopic",
        READS,
        choice("fail", "wait").then("wait".__eq__),
        "`wait` allows topics that do not exist yet, even if none exists. They are read from "
        "their first message. The store has to exist.",
    ).field()
    pattern: str = ""
    queues: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: OptionReader, *, needed: bool) -> "SubscribedTopics":
        """Read the topics. Raises OptionError if none is named although one is needed."""
        named = [option.name for option in _NAMING if option.name in given]
        if len(named) > 1:
            raise conflict(
                f"Options {' and '.join(map(repr, named))} are given together.",
                "Each names the topics to read: keep one.",
            )
        if needed and not named:
            raise OptionError(
                "No topic is named.",
                remedy="Set the option 'subscribe' ('topic' for one, 'subscribePattern' for all "
                f"that match, 'assign' for some queues). {TABLE_OPTIONS_ARE_LOST}",
                code="OPTION_MISSING",
            )
        queues, topic = given.read(_ASSIGN) or {}, given.read(TOPIC)
        topics = given.read(_SUBSCRIBE) or ((topic,) if topic else tuple(queues))
        wait = given.read_fields(cls)["wait"]
        return cls(topics, wait, given.read(_SUBSCRIBE_PATTERN), queues)

    def covers(self, topic: str) -> bool:
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.topics)
