"""Which topics and queues a read is about."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.json_values import parse_topics
from pyspark_pyrocket.options.option import (
    ALL,
    READS,
    TEXT,
    Option,
    OptionReader,
    choice,
    conflict,
    made_of,
)
from pyspark_pyrocket.options.target import TABLE_TRAP

_SUBSCRIBE = Option(
    "subscribe", READS, TEXT, "The topics to read, separated by commas.", "one of these four"
)
_SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    READS,
    TEXT,
    "A regular expression. Topics whose whole name matches it are read, including those created "
    "while a stream runs. RocketMQ's system topics (`%RETRY%…`, `SCHEDULE_TOPIC_XXXX`, …) and "
    "topics that may not be read never match.",
)
_ASSIGN = Option(
    "assign",
    READS,
    TEXT,
    'JSON with exactly the queues to read, `{"t":[0,2]}`. None is added later.',
)
_TOPIC = Option(
    "topic",
    ALL,
    TEXT,
    "Reads: same as `subscribe`, for one topic. Writes: the target of all rows; overrides a "
    "`topic` column.",
)

_MODES = ("subscribe", "subscribePattern", "assign", "topic")


@dataclass(frozen=True)
class Subscription:
    """Topics by name, by pattern, or with exactly the queues to read.

    topics: their names in the order given; none with a pattern, or where none is needed.
    wait: whether some of the named ones may not exist yet.
    pattern: the regular expression for whole names, or an empty string.
    queues: topic → the queues that are read; all queues of a topic that is missing here.
    """

    topics: tuple[str, ...] = field(
        default=(), metadata=made_of(_SUBSCRIBE, _SUBSCRIBE_PATTERN, _ASSIGN, _TOPIC)
    )
    wait: bool = Option(
        "missingTopic",
        READS,
        choice("fail", "wait").then("wait".__eq__),
        "`wait` allows topics that do not exist yet, even all of them. They are read from their "
        "first message. The store has to exist.",
    ).field()
    pattern: str = ""
    queues: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: OptionReader, *, needed: bool = True) -> "Subscription":
        """Read the topics. Raises OptionError if none is named although one is needed."""
        modes = [mode for mode in _MODES if mode in given]
        if len(modes) > 1:
            raise conflict(
                f"Options {' and '.join(map(repr, modes))} are given together.",
                "Each names the topics to read: keep one.",
            )
        wait = given.read_fields(cls)["wait"]
        if "subscribePattern" in given:
            return cls(wait=wait, pattern=_pattern(given))
        if "assign" in given:
            queues = _assigned(given)
            return cls(tuple(queues), wait, queues=queues)
        return cls(_topics(given, needed=needed), wait)

    def covers(self, topic: str) -> bool:
        """Return whether a topic of this name is read."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics

    def chosen(self, topic: str, queues: Iterable[int]) -> list[int]:
        """Return those of a topic's queues that are read."""
        wanted = self.queues.get(topic)
        return [queue for queue in queues if wanted is None or queue in wanted]


def one_topic(given: OptionReader) -> str:
    """Return the option `topic`. Raises OptionError unless it names exactly one."""
    name = given.text("topic")
    if not name or "," in name:
        raise given.wrong("topic", "It names one topic; reads take several with 'subscribe'.")
    return name


def _topics(given: OptionReader, *, needed: bool) -> tuple[str, ...]:
    if "topic" in given:
        return (one_topic(given),)
    if "subscribe" not in given:
        if not needed:
            return ()
        raise OptionError(
            "No topic is named.",
            remedy="Set the option 'subscribe' ('topic' for one, 'subscribePattern' for all that "
            f"match, 'assign' for some queues). {TABLE_TRAP}",
            code="OPTION_MISSING",
        )
    names = [name.strip() for name in given.text("subscribe").split(",")]
    if not all(names):
        raise OptionError(
            f"Option 'subscribe' has an empty name: {given.text('subscribe')!r}.",
            remedy="Separate the names by single commas.",
        )
    return tuple(dict.fromkeys(names))


def _pattern(given: OptionReader) -> str:
    pattern = given.text("subscribePattern")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise given.wrong(
            "subscribePattern",
            f"It is not a Python regular expression ({error}). Write for example orders-.*, or .* "
            "for all topics.",
        ) from error
    if not pattern:
        raise given.wrong("subscribePattern", "Write .* for all topics.")
    return pattern


def _assigned(given: OptionReader) -> dict[str, tuple[int, ...]]:
    topics = parse_topics("assign", given.text("assign"), '{"topic":[0,2]}')
    return {topic: _queues(given, topic, value) for topic, value in topics.items()}


def _queues(given: OptionReader, topic: str, value: object) -> tuple[int, ...]:
    queues = value if isinstance(value, list) else []
    good = queues and all(type(queue) is int and queue >= 0 for queue in queues)
    if not good or len(set(queues)) < len(queues):
        raise given.wrong(
            "assign", f'Name different queues of {topic!r} by their numbers, {{"{topic}":[0,1]}}.'
        )
    return tuple(sorted(queues))
