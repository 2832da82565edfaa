"""How far each delay level has been delivered: RocketMQ's `config/delayOffset.json`.

`offsetTable` maps the level (from 1 on) to the next offset of queue level-1 of
SCHEDULE_TOPIC_XXXX. Source: `ScheduleMessageService`, `DelayOffsetSerializeWrapper`.
"""

from pyrocket.disk.layout import Layout
from pyrocket.formats.fastjson import int_keys
from pyrocket.metadata.json_table import Content, JsonTable

_TABLE = "offsetTable"


class DelayOffsets:
    """The table of one store, read anew at each call."""

    def __init__(self, layout: Layout) -> None:
        self.table = JsonTable(layout, "delayOffset", _parse, required=_TABLE)

    def read(self) -> dict[int, int]:
        """Return level → next offset; a level that is not there begins at 0."""
        return self.table.read()

    def save(self, offsets: dict[int, int]) -> None:
        """Change the levels given, durably; the caller holds the mutex."""

        def edit(content: Content) -> bool:
            known = _parse(content)
            content[_TABLE] = dict(sorted({**known, **offsets}.items()))
            return bool(content[_TABLE] != known)

        self.table.change(edit)


def _parse(content: Content) -> dict[int, int]:
    return int_keys(content.get(_TABLE, {}))
