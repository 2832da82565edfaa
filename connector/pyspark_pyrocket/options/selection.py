"""Which messages of a topic a read wants."""

import re
from dataclasses import dataclass, field

from pyrocket import MessageFilter
from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import READS, Option

ROWS = (
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
