"""Which messages are read: by tags or SQL, by key or id, or one of the views of a store."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyrocket import MessageFilter
from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options import payload, span
from pyspark_pyrocket.options.json_values import parse_json
from pyspark_pyrocket.options.option import BATCH, READS, Option, OptionReader

FILTER_ROWS = (
    Option(
        "tags",
        "`*`",
        READS,
        "Only messages with one of these tags, as in `paid || shipped`. Others are passed over in "
        "the queue, by the hashes that it has of the tags, without a look at the log.",
    ),
    Option("subExpression", "`*`", READS, "The same as `tags`, as rocketmq-spark calls it."),
    Option(
        "sql",
        "none",
        READS,
        "Only messages for which RocketMQ's SQL92 is true of their properties, as in "
        "`region = 'EU' AND price BETWEEN 10 AND 20`.",
    ),
)

_OTHER_SEPARATOR = re.compile(r"[|,]|\s(?:or|and)\s", re.IGNORECASE)
"""What is written for || by mistake."""

_NO_FILTER = ("keys", "msgId")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """where: which messages are wanted.

    tags, sql: that in words; empty where the user gave nothing.
    """

    where: MessageFilter = field(default_factory=MessageFilter)
    tags: str = ""
    sql: str = ""

    @classmethod
    def parse(cls, given: OptionReader) -> "Selection":
        """Read which messages are wanted."""
        given.refuse_together("tags", "subExpression", "They mean the same: keep one.")
        option = "subExpression" if "subExpression" in given else "tags"
        tags, sql = given.text(option), given.text("sql")
        if "sql" in given and not sql:
            raise given.wrong("sql", "Write a condition on properties, or leave the option out.")
        for name in (option, "sql"):
            if name in given:
                _refuse_other_views(name, given)
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
        """Return what messages are chosen by, for a log line."""
        by = [f"tags {self.tags}"] if self.where.tags is not None else []
        by += [f"sql {self.sql}"] if self.sql else []
        return " and ".join(by)


EVERY_MESSAGE = Selection()


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


def _refuse_other_views(option: str, given: OptionReader) -> None:
    view = given.text("view", "messages")
    if view.lower() != "messages":
        raise OptionError(
            f"Option {option!r} is given with view={view}, which shows all messages.",
            remedy=f"Filter the DataFrame, and remove {option!r}.",
            code="OPTION_CONFLICT",
        )


_STREAMS = "A stream reads what comes: filter its DataFrame."

LOOKUP_ROWS = (
    Option(
        "keys",
        "none",
        (BATCH,),
        "Only messages with one of these keys, words of RocketMQ's KEYS or unique ids: separated "
        'by commas, or as a JSON list (`["a,b","c"]`). Looked up through the key index instead of '
        "reading the topics, within whatever else says where to start and end.",
        instead=_STREAMS,
    ),
    Option(
        "msgId",
        "none",
        (BATCH,),
        "Only the messages with these ids, written as `keys` are: unique ids of producers, or ids "
        "of brokers, which name a place in the log.",
        instead=_STREAMS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class KeyLookup:
    """keys: what messages have one of. ids: which they are. At most one of the two is given."""

    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: OptionReader) -> "KeyLookup":
        """Read what to look up."""
        given.refuse_together("keys", "msgId", "An id is enough to find a message: keep one.")
        for option in ("keys", "msgId"):
            if given.text("view", "messages").lower() != "messages":
                given.refuse_together("view", option, "Views are read whole: filter the DataFrame.")
        return cls(keys=_words(given, "keys"), ids=_words(given, "msgId"))

    def __bool__(self) -> bool:
        return bool(self.keys or self.ids)

    def describe(self) -> str:
        """Return what is looked up, for a log line."""
        words, kind = (self.keys, "key") if self.keys else (self.ids, "id")
        return f"{len(words)} {kind}{'s' if len(words) > 1 else ''}"


def _words(given: OptionReader, option: str) -> tuple[str, ...]:
    if option not in given:
        return ()
    text = given.text(option)
    if text.startswith("["):
        words = parse_json(option, text, '["a,b","c"]')
    else:
        words = [word.strip() for word in text.split(",")]
    if not isinstance(words, list) or not words or not all(map(_is_word, words)):
        raise given.wrong(
            option,
            'Write words separated by commas, or a JSON list of them, as in ["a,b","c"]. '
            "None is empty, and none has a space: RocketMQ separates keys by spaces.",
        )
    return tuple(dict.fromkeys(words))


def _is_word(word: object) -> bool:
    return isinstance(word, str) and word != "" and " " not in word


MESSAGES, SCHEDULED, HALF = "messages", "scheduled", "half"
COMMITLOG, RETRY, DLQ, GROUPS, TOPICS = "commitlog", "retry", "dlq", "groups", "topics"

VIEWS = (MESSAGES, SCHEDULED, HALF, COMMITLOG, RETRY, DLQ, GROUPS, TOPICS)
TABLES = (GROUPS, TOPICS)
WAITING = (SCHEDULED, HALF)

VIEW_ROWS = (
    Option(
        "view",
        "`messages`",
        (BATCH,),
        "What is there besides the messages of topics, as of the moment of planning, without a "
        "write. `scheduled`: what waits to be delivered, with `dueTimestamp`; `half`: undecided "
        "messages of transactions; both of all topics unless some are named. `commitlog`: every "
        "record of the log, in its order, those too that no queue refers to. `retry` and `dlq`: "
        "what consumers have sent back or given up. `groups`: how far each group is, queue by "
        "queue; `topics`: all topics. The option `group` leaves one group of `retry`, `dlq` and "
        "`groups`.",
    ),
    Option(
        "onDamage",
        "`fail`",
        (BATCH,),
        "With `view=commitlog`, where the log is damaged: `fail` names the place, `skip` leaves it "
        "out and logs it.",
    ),
    Option("verifyCrc", "`false`", READS, "Check the checksum of every body that is read."),
)

_NAMES = ("subscribe", "topic", "subscribePattern", "assign")


@dataclass(frozen=True)
class View:
    """What is read, and whether damaged places of the log are left out."""

    name: str = MESSAGES
    skips_damage: bool = False

    @classmethod
    def parse(cls, given: OptionReader) -> "View":
        """Read which view is asked for; refuse what does not go with it."""
        name = given.one_of("view", VIEWS)
        if name != MESSAGES:
            _refuse_all(given, name, span.ROWS, "shows all there is now")
        if name not in (MESSAGES, *WAITING):
            names = _NAMES[2:] if name == COMMITLOG else _NAMES
            for option_name in names:
                _refuse(given, name, option_name, "is not about such topics")
        if name in TABLES:
            _refuse_all(given, name, payload.ROWS, "has no messages")
        if name != COMMITLOG:
            _refuse(given, name, "onDamage", "does not read the log as it is")
        if name not in (MESSAGES, RETRY, DLQ, GROUPS):
            _refuse(given, name, "group", "is not about groups")
        return cls(name, given.one_of("onDamage", ("fail", "skip")) == "skip")


def _refuse_all(given: OptionReader, view: str, options: Iterable[Option], why: str) -> None:
    for option in options:
        _refuse(given, view, option.name, why)


def _refuse(given: OptionReader, view: str, option: str, why: str) -> None:
    if option in given:
        raise OptionError(
            f"Option {option!r} is given with view={view}, which {why}.",
            remedy=f"Remove {option!r}, and filter the DataFrame.",
            code="OPTION_CONFLICT",
        )
