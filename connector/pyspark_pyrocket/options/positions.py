"""Where a read begins or ends, as given in options: a name, offsets, times, a group or a count."""

from dataclasses import dataclass, field

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.json_values import ByQueue, parse_by_queue
from pyspark_pyrocket.options.timestamps import Timestamp, parse_timestamp

EARLIEST, LATEST = -2, -1
"""The numbers that stand for `earliest` and `latest` in JSON, as in Kafka's source."""

WORDS = {"earliest": EARLIEST, "latest": LATEST}
NAMES = {number: word for word, number in WORDS.items()}

_OFFSETS_EXAMPLE = '{"topic":{"0":23,"1":-2}}'
_TIMES_EXAMPLE = '{"topic":{"0":"-1h","1":1767225600000}}'


@dataclass(frozen=True)
class OffsetChoice:
    """The value of `option`: one name for all queues, or offsets by topic, broker and queue."""

    option: str
    word: int = EARLIEST
    queues: ByQueue[int] = field(default_factory=dict)

    @classmethod
    def parse(cls, option: str, text: str) -> "OffsetChoice":
        """Parse `earliest`, `latest` or a JSON object. Raises OptionError."""
        word = WORDS.get(text.strip().lower())
        if word is not None:
            return cls(option, word)
        if not text.lstrip().startswith("{"):
            raise OptionError(
                f"Option {option!r} is {text!r}.",
                remedy="Write earliest, latest, committed (with the option 'group') or JSON such "
                f"as {_OFFSETS_EXAMPLE}.",
            )
        return cls(option, queues=parse_by_queue(option, text, _offset, _OFFSETS_EXAMPLE))

    def is_all(self, word: int) -> bool:
        """Return whether `word`, EARLIEST or LATEST, is used for every queue."""
        if not self.queues:
            return self.word == word
        return all(
            value == word
            for brokers in self.queues.values()
            for queues in brokers.values()
            for value in queues.values()
        )

    def describe(self) -> str:
        """Return what the user wrote, for a log line."""
        return "the given offsets" if self.queues else NAMES[self.word]


@dataclass(frozen=True)
class TimeChoice:
    """The first messages stored at or after a time, one for all queues or one for each.

    without: EARLIEST or LATEST, used for queues without such a message; None raises an error.
    """

    option: str
    moment: Timestamp | None = None
    queues: ByQueue[Timestamp] = field(default_factory=dict)
    without: int | None = LATEST

    @classmethod
    def parse(cls, option: str, text: str, *, without: int | None = LATEST) -> "TimeChoice":
        """Parse one time for all queues. Raises OptionError."""
        return cls(option, parse_timestamp(f"Option {option!r}", text), without=without)

    @classmethod
    def parse_queues(cls, option: str, text: str, *, without: int | None = LATEST) -> "TimeChoice":
        """Parse a JSON object with a time for each queue. Raises OptionError."""
        return cls(
            option,
            queues=parse_by_queue(option, text, parse_timestamp, _TIMES_EXAMPLE),
            without=without,
        )

    def moments(self) -> list[Timestamp]:
        """Return all given times."""
        if self.moment is not None:
            return [self.moment]
        brokers = [each for by_broker in self.queues.values() for each in by_broker.values()]
        return [moment for queues in brokers for moment in queues.values()]

    def describe(self) -> str:
        """Return what the user wrote, for a log line."""
        return f"the given {self.option}"


@dataclass(frozen=True)
class Committed:
    """The committed offsets of a consumer group.

    without: EARLIEST or LATEST, used for topics in which the group has no committed offsets.
    """

    option: str
    group: str
    without: int = EARLIEST

    def describe(self) -> str:
        """Return what the user wrote, for a log line."""
        return f"the committed offsets of group {self.group}"


@dataclass(frozen=True)
class LastMessages:
    """The last `count` messages of each queue, before the end of the read."""

    count: int

    def describe(self) -> str:
        """Return what the user wrote, for a log line."""
        return f"the last {self.count} messages of each queue"


Place = OffsetChoice | TimeChoice | Committed | LastMessages
"""Where a read begins or ends."""


def _offset(where: str, value: object) -> int:
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    # JSON's true is an int to Python.
    if isinstance(value, int) and not isinstance(value, bool) and -2 <= value < 2**63:
        return value
    raise OptionError(
        f"{where}: {value!r} is not an offset.",
        remedy='Write 0 or a greater number, "earliest" (or -2) or "latest" (or -1).',
    )
