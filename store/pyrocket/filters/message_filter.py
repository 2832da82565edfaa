"""Filters messages by tags, a SQL condition, or both.

The tag expression `A || B` selects messages whose tags are exactly A or exactly B. Source:
`FilterAPI.buildSubscriptionData`; `DefaultMQPushConsumerImpl` for the exact comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.errors import InvalidInputError
from pyrocket.filters import sql_columns, sql_message
from pyrocket.filters.sql_parser import parse_sql
from pyrocket.filters.sql_tree import Node, texts_wanted
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.properties import TAGS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.system_topics import SCHEDULE_TOPIC

MAX_EXPRESSION_BYTES = 16_384
"""Maximum length of the expression of a consumer, which a broker keeps."""

_JAVA_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's `String.trim` removes."""


def check_expression(text: str) -> None:
    """Raise InvalidInputError (EXPRESSION_TOO_LONG) for an expression of more than 16 KiB."""
    if len(text) > MAX_EXPRESSION_BYTES or len(text.encode()) > MAX_EXPRESSION_BYTES:
        raise InvalidInputError(
            f"the expression has more than {MAX_EXPRESSION_BYTES} bytes.",
            remedy="Use a shorter expression, or filter the messages when they are consumed.",
            code="EXPRESSION_TOO_LONG",
        )


def parse_tags(expression: str) -> frozenset[str] | None:
    """Parse a tag expression; None for `*` or an empty expression, which select all messages.

    Ignores blanks around tags, and empty tags. Raises InvalidInputError (TAGS_INVALID) if no tag
    remains.
    """
    if expression in ("", "*"):
        return None
    tags = frozenset(tag.strip(_JAVA_BLANKS) for tag in expression.split("||")) - {""}
    if not tags:
        raise InvalidInputError(
            f"the tag expression {expression!r} contains no tag.",
            remedy="Write tags separated by ||, as in 'paid || shipped', or * for all messages.",
            code="TAGS_INVALID",
        )
    return tags


_NO_HASH_BELOW = -(2**31)


@dataclass(frozen=True)
class MessageFilter:
    """Selects messages whose tag is one of `tags` and for which `condition` is true.

    None selects all messages. `sql` is the condition as SQL.
    """

    tags: frozenset[str] | None = None
    condition: Node | None = None
    sql: str = ""

    @classmethod
    def parse(cls, *, tags: str = "", sql: str = "") -> "MessageFilter":
        """Parse a tag expression such as `A || B` and a SQL expression; "" selects all messages.

        Raises InvalidInputError (TAGS_INVALID, SQL_INVALID).
        """
        return cls(parse_tags(tags), parse_sql(sql) if sql else None, sql)

    @property
    def wants_all(self) -> bool:
        """Whether all messages are selected."""
        return self.tags is None and self.condition is None

    @cached_property
    def codes(self) -> Ints | None:
        """The possible tags codes of selected messages, ascending; None for any.

        The codes are hashes of the tags in the expression, or of the tags that the condition
        requires.
        """
        texts = self.tags
        if self.condition is not None:
            demanded = texts_wanted(self.condition, TAGS)
            if demanded is not None:
                texts = demanded if texts is None else texts & demanded
        return None if texts is None else np.unique(np.array([*map(java_hash, texts)], np.int64))

    def narrows(self, topic: str) -> bool:
        """Whether tags codes can exclude messages of this topic.

        Queue entries of delayed messages have due times instead of tags codes.
        """
        return self.codes is not None and topic != SCHEDULE_TOPIC

    def may_match(self, topic: str, tags_codes: Ints) -> Bools:
        """Return a mask of the messages that may match, by the tags codes of their queue entries.

        A code that is not a hash is an address in RocketMQ's extended queue, and may match.
        """
        if self.codes is None or not self.narrows(topic):
            return np.ones(len(tags_codes), bool)
        return np.isin(tags_codes, self.codes) | (tags_codes < _NO_HASH_BELOW)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is selected."""
        if self.tags is not None and properties.get(TAGS) not in self.tags:
            return False
        return self.condition is None or sql_message.matches(self.condition, properties)

    def matching(self, properties: PropertyColumns, count: int) -> Bools:
        """Return a mask of the selected messages among `count` messages with these properties."""
        wanted = np.ones(count, bool)
        if self.tags is not None:
            known = pa.array(sorted(self.tags), pa.string())
            mask = pc.is_in(properties.column(TAGS), known)
            wanted = mask.to_numpy(zero_copy_only=False)
        if self.condition is not None and wanted.any():
            wanted = wanted & sql_columns.matching(self.condition, properties.column, count)
        return wanted


EVERYTHING = MessageFilter()
"""Selects all messages."""


@dataclass
class ScanTally:
    """Counts of a scan: queue entries examined, records read for them, messages selected.

    If the scan raises an error, exactly `entries` entries from its start were returned or filtered
    out.
    """

    entries: int = 0
    records: int = 0
    messages: int = 0

    def add(self, other: "ScanTally") -> None:
        """Add the counts of another scan."""
        self.entries += other.entries
        self.records += other.records
        self.messages += other.messages
