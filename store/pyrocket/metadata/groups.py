"""Groups' offsets: RocketMQ's `config/consumerOffset.json`.

`offsetTable` maps `topic@group` to {queue id: next offset to consume}. Source:
`ConsumerOffsetManager`.
"""

from collections.abc import Callable

from pyrocket.disk.layout import Layout
from pyrocket.formats.fastjson import int_keys
from pyrocket.metadata.json_table import Content, JsonTable

_TABLE, _TOPICS_OF_GROUPS = "offsetTable", "groupTopicMap"

Offsets = dict[int, int]
"""Queue id → next offset to consume."""

_Key = tuple[str, str]
_Table = dict[str, Offsets]


class GroupOffsets:
    """The offsets of all groups of one store, read anew at each call."""

    def __init__(self, layout: Layout) -> None:
        self.table = JsonTable(layout, "consumerOffset", _parse, required=_TABLE)

    def all(self) -> dict[_Key, Offsets]:
        """Return the offsets by (topic, group)."""
        known = self.table.read()
        return {key: known[text] for text in known if (key := _split(text))}

    def of(self, group: str, topic: str) -> Offsets:
        """Return what a group has committed in a topic; empty if nothing."""
        return self.table.read().get(f"{topic}@{group}", {})

    def merge(
        self, group: str, topic: str, offsets: Offsets, may_replace: Callable[[int, int, int], bool]
    ) -> Offsets:
        """Commit offsets, durably; return all of the group's in the topic.

        `may_replace(queue_id, old, new)` is asked where another offset is known. The caller holds
        the mutex.
        """
        after: Offsets = {}

        def edit(table: _Table) -> bool:
            known = table.get(f"{topic}@{group}", {})
            fresh = {
                queue_id: offset
                for queue_id, offset in offsets.items()
                if queue_id not in known or may_replace(queue_id, known[queue_id], offset)
            }
            after.update(sorted({**known, **fresh}.items()))
            table[f"{topic}@{group}"] = after
            return after != known

        self._change(edit)
        return after

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget offsets of a group or in a topic, durably; the caller holds the mutex."""

        def edit(table: _Table) -> bool:
            keys = {text: key for text in table if (key := _split(text))}
            dropped = [text for text, key in keys.items() if topic == key[0] or group == key[1]]
            for text in dropped:
                del table[text]
            return bool(dropped)

        self._change(edit)

    def _change(self, edit: Callable[[_Table], bool]) -> None:
        def edit_content(content: Content) -> bool:
            table = _parse(content)
            if not edit(table):
                return False
            content[_TABLE] = table
            if _TOPICS_OF_GROUPS in content:
                content[_TOPICS_OF_GROUPS] = _topics_of_groups(table)
            return True

        # Without a move of dataVersion: commits are no metadata.
        self.table.change(edit_content)


def drop_topic_offsets(layout: Layout, topic: str) -> None:
    """Forget every group's offsets in a topic, durably; the caller holds the mutex."""
    GroupOffsets(layout).drop(topic=topic)


def _parse(content: Content) -> _Table:
    return {text: int_keys(offsets) for text, offsets in content.get(_TABLE, {}).items()}


def _split(text: str) -> _Key | None:
    """Return topic and group, or None for a key that RocketMQ would not understand either."""
    topic, *rest = text.split("@")
    return (topic, rest[0]) if len(rest) == 1 else None


def _topics_of_groups(table: _Table) -> dict[str, list[str]]:
    """Return what RocketMQ 5 writes beside the table, and never reads."""
    topics: dict[str, list[str]] = {}
    for text in table:
        if key := _split(text):
            topics.setdefault(key[1], []).append(key[0])
    return topics
