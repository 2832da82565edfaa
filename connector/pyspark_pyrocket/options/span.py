"""The range that a read covers: where it begins and ends."""

from dataclasses import dataclass, field, replace
from typing import Any

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import (
    BATCH,
    READS,
    STREAM,
    TEXT,
    WHOLE,
    Kind,
    Option,
    OptionReader,
    choice,
    conflict,
    made_of,
)
from pyspark_pyrocket.options.positions import (
    EARLIEST,
    LATEST,
    CommittedOffsets,
    LastMessages,
    OffsetChoice,
    SpanPlace,
    TimeChoice,
)

_TIMESTAMP: Kind[TimeChoice | None] = Kind("text", TimeChoice.parse, None)
_TIMESTAMPS: Kind[TimeChoice | None] = Kind("text", TimeChoice.parse_queues, None)
_STRATEGIES = {"latest": LATEST, "earliest": EARLIEST, "error": None}

_STARTING_OFFSETS = Option(
    "startingOffsets",
    READS,
    TEXT,
    '`earliest`, `latest`, or JSON for every queue, `{"t":{"0":23,"1":"earliest"}}`, with or '
    "without a broker level; -2 is `earliest`, -1 is `latest`. `committed`: the committed "
    "offsets of `group`, or the default in topics in which the group has none. Inclusive. Only a "
    "new stream uses this option; later runs continue from the checkpoint.",
    default="`latest` (stream), `earliest` (batch)",
)
_STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    READS,
    _TIMESTAMP,
    "Start with the first message of each queue stored at or after this time: epoch milliseconds, "
    "ISO-8601 (UTC if it has no zone), or relative to the start of the query (`-1h`, `-15m`, "
    "`now`). Takes precedence over `startingOffsetsByTimestamp`, which takes precedence over "
    "`startingOffsets`.",
)
_STARTING_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    READS,
    _TIMESTAMPS,
    'Like `startingTimestamp`, with a time for each queue: `{"t":{"0":"-1h","1":1767225600000}}`.',
)
_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    READS,
    choice(*_STRATEGIES),
    "Where a queue starts if it has no message stored at or after the starting time. `latest`: "
    "at its end. `earliest`: at its first message. `error`: the query fails, unless the queue is "
    "empty.",
)
_LAST_N = Option(
    "lastN",
    READS,
    WHOLE,
    "Start this many messages before the end of each queue. Excludes the other starting options.",
)
_ENDING_OFFSETS = Option(
    "endingOffsets",
    (BATCH,),
    TEXT,
    "`latest`, `committed` (the committed offsets of `group`), or JSON as for `startingOffsets`. "
    "Exclusive.",
    default="`latest`",
)
_ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    (BATCH,),
    _TIMESTAMP,
    "End before the first message of each queue stored at or after this time, or at the queue's "
    "end if there is no such message. Written like `startingTimestamp`. Takes precedence over "
    "`endingOffsetsByTimestamp`, which takes precedence over `endingOffsets`.",
)
_ENDING_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    (BATCH,),
    _TIMESTAMPS,
    "Like `endingTimestamp`, with a time for each queue.",
)

_FROM_EARLIEST = OffsetChoice("startingOffsets", EARLIEST)
_TO_LATEST = OffsetChoice("endingOffsets", LATEST)
_STARTS = (_STARTING_TIMESTAMP, _STARTING_BY_TIMESTAMP, _STARTING_OFFSETS)
_ENDS = (_ENDING_TIMESTAMP, _ENDING_BY_TIMESTAMP, _ENDING_OFFSETS)
"""Kafka's order of precedence."""


@dataclass(frozen=True)
class Span:
    """Where a batch starts and ends; a stream uses `starting` once, when it is new.

    notes: log lines about how the options were interpreted.
    """

    starting: SpanPlace = field(
        default=_FROM_EARLIEST,
        metadata=made_of(
            _STARTING_OFFSETS, _STARTING_TIMESTAMP, _STARTING_BY_TIMESTAMP, _STRATEGY, _LAST_N
        ),
    )
    ending: SpanPlace = field(
        default=_TO_LATEST,
        metadata=made_of(_ENDING_OFFSETS, _ENDING_TIMESTAMP, _ENDING_BY_TIMESTAMP),
    )
    notes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: OptionReader) -> "Span":
        """Read where to start and, for a batch, where to end."""
        starting, ending = _starting(given), _ending(given)
        notes = [*_ignored(given, _STARTS), *_ignored(given, _ENDS)]
        for place in (starting, ending):
            if isinstance(place, TimeChoice):
                notes += [moment.note for moment in place.moments() if moment.note]
        return cls(starting, ending, tuple(dict.fromkeys(notes)))

    def time_range(self, now_ms: int) -> tuple[int, int]:
        """Return the range [begin, end) of store times, in epoch ms, of the messages to read."""
        begin, end = 0, 2**63 - 1
        start = self.starting
        # With EARLIEST, a queue without messages since that time is read from its first message.
        if isinstance(start, TimeChoice) and start.moment and start.without != EARLIEST:
            begin = start.moment.at(now_ms)
        if isinstance(self.ending, TimeChoice) and self.ending.moment is not None:
            end = self.ending.moment.at(now_ms)
        return begin, end


def _starting(given: OptionReader) -> SpanPlace:
    for option in _STARTS:
        given.refuse_together("lastN", option.name, "Each defines where the read starts: keep one.")
    time = given.read(_STARTING_TIMESTAMP) or given.read(_STARTING_BY_TIMESTAMP)
    if _STRATEGY.name in given and time is None:
        raise conflict(
            f"Option {_STRATEGY.name!r} is given without a time to start at.",
            "Set 'startingTimestamp' or 'startingOffsetsByTimestamp', or remove it.",
        )
    if time is not None:
        return replace(time, without=_STRATEGIES[given.read(_STRATEGY)])
    count = given.read(_LAST_N)
    return _starting_offsets(given) if count is None else LastMessages(count)


def _starting_offsets(given: OptionReader) -> SpanPlace:
    default = "latest" if given.query == STREAM else "earliest"
    text = given.text("startingOffsets", default)
    if text.lower() == "committed":
        without = LATEST if given.query == STREAM else EARLIEST
        return CommittedOffsets("startingOffsets", _group(given, "startingOffsets"), without)
    choice = OffsetChoice.parse("startingOffsets", text)
    if given.query == BATCH and choice.is_all(LATEST):
        raise OptionError(
            "Option 'startingOffsets' is latest for all queues: such a batch is empty.",
            remedy="Use earliest or offsets; a stream can start at latest.",
        )
    return choice


def _ending(given: OptionReader) -> SpanPlace:
    time = given.read(_ENDING_TIMESTAMP) or given.read(_ENDING_BY_TIMESTAMP)
    if time is not None:
        return time
    text = given.text("endingOffsets", "latest")
    if text.lower() == "committed":
        return CommittedOffsets("endingOffsets", _group(given, "endingOffsets"))
    choice = OffsetChoice.parse("endingOffsets", text)
    if choice.is_all(EARLIEST):
        raise OptionError(
            "Option 'endingOffsets' is earliest for all queues: such a batch is empty.",
            remedy="Use latest or offsets.",
        )
    return choice


def _ignored(given: OptionReader, order: tuple[Option[Any], ...]) -> list[str]:
    winner, *losers = [option.name for option in order if option.name in given] or [""]
    return [f"{option} is ignored: {winner} is given" for option in losers]


def _group(given: OptionReader, option: str) -> str:
    group = given.text("group") or given.text("commitToGroup")
    if not group:
        raise OptionError(
            f"Option {option!r} is committed, but no consumer group is named.",
            remedy="Name it with the option 'group'.",
            code="OPTION_MISSING",
        )
    return group
