"""Which messages are read: by tags or SQL, by key or id, or one of the views of a store."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyrocket import MessageFilter
from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options.json_values import parse_json
from pyspark_pyrocket.options.option import (
    BATCH,
    READS,
    TEXT,
    Kind,
    Option,
    OptionReader,
    boolean,
    choice,
    conflict,
    invalid,
    made_of,
    rows_of,
)
from pyspark_pyrocket.options.payload import Payload
from pyspark_pyrocket.options.span import Span

_TAGS = Option(
    "tags",
    READS,
    TEXT,
    "Only messages with one of these tags, such as `paid || shipped`. Other messages are skipped "
    "by the tag hashes in the ConsumeQueue, without reading the log.",
    default="`*`",
)
_SUB_EXPRESSION = Option(
    "subExpression", READS, TEXT, "Same as `tags`; the name in rocketmq-spark.", default="`*`"
)

_OTHER_SEPARATOR = re.compile(r"[|,]|\s(?:or|and)\s", re.IGNORECASE)
"""Separators that users write instead of || by mistake."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which messages are read.

    where: the filter. tags, sql: its expressions; empty if not given.
    """

    where: MessageFilter = field(default_factory=MessageFilter)
    tags: str = field(default="", metadata=made_of(_TAGS, _SUB_EXPRESSION))
    sql: str = Option(
        "sql",
        READS,
        TEXT,
        "Only messages whose properties satisfy this expression in RocketMQ's SQL92, such as "
        "`region = 'EU' AND price BETWEEN 10 AND 20`.",
    ).field()

    @classmethod
    def parse(cls, given: OptionReader) -> "Selection":
        given.refuse_together("tags", "subExpression", "They are the same option: keep one.")
        option = "subExpression" if "subExpression" in given else "tags"
        tags, sql = given.text(option), given.text("sql")
        if "sql" in given and not sql:
            raise given.wrong("sql", "Write a condition on properties, or remove the option.")
        selection = cls(where=_filter(option, tags, sql), tags=tags, sql=sql)
        for tag in selection.where.tags or ():
            if _OTHER_SEPARATOR.search(tag):
                several = " || ".join(filter(None, map(str.strip, _OTHER_SEPARATOR.split(tag))))
                raise given.wrong(
                    option,
                    f"Separate tags by ||, as in {several!r}. To read messages tagged {tag!r}, use "
                    f"'sql': TAGS = '{tag}'.",
                )
        return selection

    def describe(self) -> str:
        by = [f"tags {self.tags}"] if self.where.tags is not None else []
        by += [f"sql {self.sql}"] if self.sql else []
        return " and ".join(by)


def _filter(option: str, tags: str, sql: str) -> MessageFilter:
    wrong = option
    try:
        MessageFilter.parse(tags=tags)
        wrong = "sql"
        return MessageFilter.parse(tags=tags, sql=sql)
    except InvalidInputError as error:
        raise OptionError(
            f"Option {wrong!r}: {error.message}", remedy=error.remedy, code=error.code
        ) from None


def _parse_words(option: str, text: str) -> tuple[str, ...]:
    if text.startswith("["):
        words = parse_json(option, text, '["a,b","c"]')
    else:
        words = [word.strip() for word in text.split(",")]
    if not isinstance(words, list) or not words or not all(map(_is_word, words)):
        raise invalid(
            option,
            text,
            'Write keys separated by commas, or a JSON list of them, as in ["a,b","c"]. '
            "A key cannot be empty or contain a space: RocketMQ separates keys by spaces.",
        )
    return tuple(dict.fromkeys(words))


def _is_word(word: object) -> bool:
    return isinstance(word, str) and word != "" and " " not in word


_WORDS: Kind[tuple[str, ...]] = Kind("text", _parse_words, ())
_STREAMS = "A stream reads new messages as they arrive: filter its DataFrame."


@dataclass(frozen=True, kw_only=True)
class KeyLookup:
    """The keys or the ids of the messages to read; at most one of the two is given.

    An instance is false if neither is given.
    """

    keys: tuple[str, ...] = Option(
        "keys",
        (BATCH,),
        _WORDS,
        "Only messages with one of these keys (of RocketMQ's KEYS, or unique ids), "
        'separated by commas or as a JSON list (`["a,b","c"]`). The messages between the '
        "start and the end of the read are looked up in the key index; the topics are not read.",
        instead=_STREAMS,
    ).field()
    ids: tuple[str, ...] = Option(
        "msgId",
        (BATCH,),
        _WORDS,
        "Only messages with these ids, written like `keys`: unique ids set by producers, or offset "
        "message ids assigned by brokers, which contain a CommitLog offset.",
        instead=_STREAMS,
    ).field()

    @classmethod
    def parse(cls, given: OptionReader) -> "KeyLookup":
        given.refuse_together("keys", "msgId", "An id alone identifies a message: keep one.")
        return cls(**given.read_fields(cls))

    def __bool__(self) -> bool:
        return bool(self.keys or self.ids)

    def describe(self) -> str:
        words, kind = (self.keys, "key") if self.keys else (self.ids, "id")
        return f"{len(words)} {kind}{'s' if len(words) > 1 else ''}"


MESSAGES, SCHEDULED, HALF = "messages", "scheduled", "half"
COMMITLOG, RETRY, DLQ, GROUPS, TOPICS = "commitlog", "retry", "dlq", "groups", "topics"

VIEWS = (MESSAGES, SCHEDULED, HALF, COMMITLOG, RETRY, DLQ, GROUPS, TOPICS)
TABLES = (GROUPS, TOPICS)
WAITING = (SCHEDULED, HALF)

_NAMES = ("subscribe", "topic", "subscribePattern", "assign")


@dataclass(frozen=True, kw_only=True)
class View:
    """The view to read, and how to handle corruption.

    skips_damage: whether corrupt ranges of the log are skipped. verify_crc: whether the checksums
    of bodies are verified.
    """

    view: str = Option(
        "view",
        (BATCH,),
        choice(*VIEWS),
        "The view to read instead of topic messages. It shows the state at planning time and never "
        "modifies the store. `scheduled`: pending delayed messages, with `dueTimestamp`; `half`: "
        "undecided messages of transactions; both for all topics unless topics are given. "
        "`commitlog`: every record of the log, in log order, including those that no queue refers "
        "to. `retry` and `dlq`: messages that consumers have sent back, and dead-letter messages. "
        "`groups`: the progress of each group, by queue; `topics`: all topics. The option `group` "
        "selects one group of `retry`, `dlq` and `groups`.",
    ).field()
    skips_damage: bool = Option(
        "onDamage",
        (BATCH,),
        choice("fail", "skip").then("skip".__eq__),
        "With `view=commitlog`, for corrupt ranges of the log: `fail` fails with an error that "
        "names the range, `skip` skips and logs it.",
    ).field()
    verify_crc: bool = Option(
        "verifyCrc",
        READS,
        boolean(default=False),
        "Verify the checksum of every body that is read.",
    ).field()


def check_view(given: OptionReader, view: str) -> None:
    """Raise OptionError (OPTION_CONFLICT) for an option that does not apply to a view."""
    for options, why in _not_for(view):
        for option in filter(given.__contains__, options):
            raise conflict(
                f"Option {option!r} is given with view={view}, which {why}.",
                f"Remove {option!r}, and filter the DataFrame.",
            )


def _not_for(view: str) -> Iterator[tuple[Iterable[str], str]]:
    """Yield the options that do not apply to a view, and the reason for each."""
    if view != MESSAGES:
        yield [row.name for row in rows_of(Span)], "shows everything that exists now"
        yield [row.name for row in rows_of(Selection, KeyLookup)], "has no filter"
    if view not in (MESSAGES, *WAITING):
        yield _NAMES[2:] if view == COMMITLOG else _NAMES, "does not support this option"
    if view in TABLES:
        yield [row.name for row in rows_of(Payload)], "has no messages"
    if view != COMMITLOG:
        yield ["onDamage"], "does not read the log directly"
    if view not in (MESSAGES, RETRY, DLQ, GROUPS):
        yield ["group"], "does not show groups"
