"""The type of a topic's messages: RocketMQ 5's attribute `message.type`, in `config/topics.json`.

A topic without this attribute accepts messages of every type. Source: `TopicAttributes`,
`TopicMessageType`.
"""

from pyrocket.base.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError
from pyrocket.metadata.json_table import Content, JsonTable

MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_TABLE, _ATTRIBUTES, _TYPE = "topicConfigTable", "attributes", "message.type"


class TopicTypes:
    """The types of the topics of one store. The file is read again when it changes."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._table = JsonTable(layout, "topics", _parse, required=_TABLE)
        self._clock = clock
        self._cache: tuple[object, dict[str, str]] = (None, {})

    def of(self, topic: str) -> str:
        """Return the type of a topic's messages; empty if the topic accepts all types."""
        stamp = self._table.stamp()
        if self._cache[0] != stamp:
            self._cache = stamp, self._table.read()
        return self._cache[1].get(topic, "")

    def set(self, topic: str, message_type: str) -> None:
        """Set the type of an existing topic, durably. Requires the write lock.

        Raises InvalidInputError (MESSAGE_TYPE).
        """
        if message_type not in MESSAGE_TYPES:
            raise InvalidInputError(
                f"{message_type!r} is not a type of messages.",
                remedy=f"Use one of {', '.join(MESSAGE_TYPES)}.",
                code="MESSAGE_TYPE",
            )

        def edit(content: Content) -> bool:
            attributes = content[_TABLE][topic].setdefault(_ATTRIBUTES, {})
            changed = attributes.get(_TYPE) != message_type
            attributes[_TYPE] = message_type
            return changed

        self._table.change(edit, changed_at=self._clock())


def _parse(content: Content) -> dict[str, str]:
    return {
        name: str(attributes[_TYPE])
        for name, entry in content.get(_TABLE, {}).items()
        if _TYPE in (attributes := entry.get(_ATTRIBUTES) or {})
    }
