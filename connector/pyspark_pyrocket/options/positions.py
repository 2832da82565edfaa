"""Where a read begins or ends, as given in options: a name, offsets, times, a group or a count."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from pyrocket import parse_duration
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.json_values import ByQueue, parse_by_queue

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECONDS_BELOW = 10**11
"""Smaller numbers are probably seconds: as milliseconds they are before 1973."""
_ISO = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)"
    r"(?:[Tt ](\d\d)(?:(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)?)?(?:([Zz])|([+-]\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
"""Date, T or a space, time and zone, in both forms of ISO-8601: with and without - and :."""


@dataclass(frozen=True)
class Timestamp:
    """A time: `ms` since the epoch or, if `relative`, from the start of the query.

    note: a log line about how the text was interpreted, or an empty string.
    """

    ms: int
    relative: bool = False
    note: str = ""

    def at(self, now_ms: int) -> int:
        """Return the time in epoch milliseconds, for a query that starts at `now_ms`."""
        return now_ms + self.ms if self.relative else self.ms


def parse_timestamp(where: str, value: object) -> Timestamp:
    """Return the time in an option's text, or in a JSON number. Raises OptionError."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = value.strip() if isinstance(value, str) else ""
    moment = _number(where, text) or _relative(text) or _iso(where, text)
    if moment is None:
        raise OptionError(
            f"{where}: {value!r} is not a time.",
            remedy="Write epoch milliseconds, ISO-8601 such as 2026-01-31T12:00:00Z, or a duration "
            "before now, such as -15m or -2h30m.",
        )
    return moment


def _number(where: str, text: str) -> Timestamp | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        return None
    ms = int(text)
    if 0 < ms < _SECONDS_BELOW:
        date = (_EPOCH + timedelta(milliseconds=ms)).date()
        return Timestamp(ms, note=f"{where}: {ms} ms is a time on {date}; were seconds meant?")
    return Timestamp(ms)


def _relative(text: str) -> Timestamp | None:
    if text.lower() == "now":
        return Timestamp(0, relative=True)
    length = parse_duration(text[1:].strip().lower()) if text.startswith("-") else None
    return None if length is None else Timestamp(-length, relative=True)


def _iso(where: str, text: str) -> Timestamp | None:
    # Not `fromisoformat` of the text: the forms it accepts depend on Python's version.
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, _, month, day, hour, _, minute, second, fraction, zulu, zone, past = match.groups("")
    try:
        time = datetime.fromisoformat(
            f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}"
            f"{zone or '+00'}:{past or '00'}"
        )
    except ValueError:
        return None
    note = "" if zulu or zone else f"{where}: {text!r} has no time zone and is read as UTC"
    # Store times are whole milliseconds: round up.
    parts = fraction.ljust(3, "0")
    up = int(parts[:3]) + any(digit != "0" for digit in parts[3:])
    return Timestamp((time - _EPOCH) // timedelta(milliseconds=1) + up, note=note)


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
        if self.moment is not None:
            return [self.moment]
        brokers = [queues for by_broker in self.queues.values() for queues in by_broker.values()]
        return [moment for queues in brokers for moment in queues.values()]

    def describe(self) -> str:
        return f"the given {self.option}"


@dataclass(frozen=True)
class CommittedOffsets:
    """The committed offsets of a consumer group.

    without: EARLIEST or LATEST, used for topics in which the group has no committed offsets.
    """

    option: str
    group: str
    without: int = EARLIEST

    def describe(self) -> str:
        return f"the committed offsets of group {self.group}"


@dataclass(frozen=True)
class LastMessages:
    """The last `count` messages of each queue, before the end of the read."""

    count: int

    def describe(self) -> str:
        return f"the last {self.count} messages of each queue"


SpanPlace = OffsetChoice | TimeChoice | CommittedOffsets | LastMessages
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
