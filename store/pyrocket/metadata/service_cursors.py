"""Saves and restores the cursors of the delay and transaction services.

The exact cursors are in the shared state, which is lost at a reboot. Each checkpoint and clean
shutdown saves the values from before its flush in `pyrocket/cursors.json`, so a saved cursor never
covers deliveries that are not durable. The cursors of the delay levels are also saved in RocketMQ's
`config/delayOffset.json`, every ten seconds as RocketMQ does. Recovery uses the larger of
pyrocket's and RocketMQ's values: both only increase, and a broker may have delivered more in the
meantime.

`delayOffset.json`: `offsetTable` maps the level (from 1) to the next offset of queue level-1 of
SCHEDULE_TOPIC_XXXX. Source: `ScheduleMessageService`, `DelayOffsetSerializeWrapper`.
"""

from collections.abc import Callable, Iterable, Mapping

from pyrocket.disk.io import read_or_none, replace_file, unlink
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    HALF_CURSOR,
    MAX_DELAY_LEVELS,
    NEXT_DUE,
    OP_CURSOR,
    TIMER_QUEUE_OFFSET,
    TIMER_READ_OFFSET,
    TIMER_READ_TIME,
    SharedState,
    level_field,
)
from pyrocket.formats.checked_json import encode_own
from pyrocket.formats.fastjson import int_keys, java_long
from pyrocket.formats.system_topics import (
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.json_table import Content, JsonTable, OwnFile

_LEVEL_FIELDS = {level_field(level): level for level in range(1, MAX_DELAY_LEVELS + 1)}
_NAMES = {
    "timed": TIMER_QUEUE_OFFSET,
    "timerDue": TIMER_READ_TIME,
    "timerOffset": TIMER_READ_OFFSET,
    "half": HALF_CURSOR,
    "op": OP_CURSOR,
    **{f"level{level}": field for field, level in _LEVEL_FIELDS.items()},
}

Cursors = Mapping[int, int]
"""Field of the shared state → value."""

_REMEDY = (
    "Restore it from a copy. Or remove it: then delayed messages may be delivered twice, from the"
    " cursors in RocketMQ's config/delayOffset.json on."
)


def save_cursors(
    layout: Layout, cursors: Cursors, before_save: Iterable[Callable[[], None]] = ()
) -> None:
    """Save cursors whose deliveries are durable. The caller must hold the flush lock.

    If the cursors have changed, the `before_save` callbacks run first: see
    `RecoveryHooks.before_cursor_save`.
    """
    content = {name: cursors[field] for name, field in _NAMES.items() if field in cursors}
    data = encode_own(layout.cursors, content)
    if content and data != read_or_none(layout.cursors):
        for call in before_save:
            call()
        replace_file(layout.cursors, data, layout.scratch)
    save_levels(layout, cursors)


def save_levels(layout: Layout, cursors: Cursors) -> None:
    """Save the cursors of the delay levels for RocketMQ. Requires the flush lock."""
    levels = {_LEVEL_FIELDS[field]: at for field, at in cursors.items() if field in _LEVEL_FIELDS}
    if levels:
        DelayOffsets(layout).save(levels)


def save_transaction_cursors(layout: Layout, cursors: Cursors) -> None:
    """Save the half and op cursors as RocketMQ does. Requires the write lock."""
    for topic, field in ((HALF_TOPIC, HALF_CURSOR), (OP_TOPIC, OP_CURSOR)):
        if field in cursors:
            at, offsets = {0: cursors[field]}, GroupOffsets(layout)
            offsets.merge(TRANSACTION_GROUP, topic, at, lambda queue, old, new: new > old)


def restore_cursors(layout: Layout, state: SharedState, queues: QueueTable) -> None:
    """Set the cursors in the shared state after a recovery, at most to their queues' ends."""
    for field, at in saved_cursors(layout).items():
        state[field] = at
    for field, (topic, queue_id) in _cursor_queues().items():
        state[field] = min(state[field], queues.get(topic, queue_id).max_offset(WHOLE_LOG))
    state[NEXT_DUE] = 0


def forget_cursors(layout: Layout) -> None:
    """Delete all saved cursors, of RocketMQ's files, too. Requires the write lock."""
    levels = layout.config("delayOffset"), layout.config_backup("delayOffset")
    for path in (layout.cursors, *levels):
        unlink(path)
    GroupOffsets(layout).drop(group=TRANSACTION_GROUP)


def saved_cursors(layout: Layout) -> dict[int, int]:
    """Return the larger of both values of each cursor. Raises StoreDamagedError."""
    own, java = read_cursors(layout), _of_java(layout)
    return {field: max(own.get(field, 0), java.get(field, 0)) for field in _NAMES.values()}


def _cursor_queues() -> dict[int, tuple[str, int]]:
    queues = {field: (SCHEDULE_TOPIC, level - 1) for field, level in _LEVEL_FIELDS.items()}
    return {
        **queues,
        TIMER_QUEUE_OFFSET: (TIMER_TOPIC, 0),
        HALF_CURSOR: (HALF_TOPIC, 0),
        OP_CURSOR: (OP_TOPIC, 0),
    }


def read_cursors(layout: Layout) -> dict[int, int]:
    """Return the cursors in `pyrocket/cursors.json`, by field. Raises StoreDamagedError."""
    return OwnFile(layout.cursors, layout.scratch, _by_field, _REMEDY).read() or {}


def _by_field(content: Content) -> dict[int, int]:
    return {_NAMES[name]: java_long(at) for name, at in content.items() if name in _NAMES}


def _of_java(layout: Layout) -> dict[int, int]:
    levels = DelayOffsets(layout).read()
    known = {level_field(n): at for n, at in levels.items() if 1 <= n <= MAX_DELAY_LEVELS}
    groups = GroupOffsets(layout)
    for topic, field in ((HALF_TOPIC, HALF_CURSOR), (OP_TOPIC, OP_CURSOR)):
        known[field] = groups.of(TRANSACTION_GROUP, topic).get(0, 0)
    return known


_TABLE = "offsetTable"


class DelayOffsets:
    """RocketMQ's `config/delayOffset.json`. Each call reads the file."""

    def __init__(self, layout: Layout) -> None:
        self.table = JsonTable(layout, "delayOffset", _parse, required=_TABLE)

    def read(self) -> dict[int, int]:
        """Return level → next offset; a missing level starts at 0."""
        return self.table.read()

    def save(self, offsets: dict[int, int]) -> None:
        """Set the offsets of these levels, durably. Requires the flush lock."""

        def edit(content: Content) -> bool:
            known = _parse(content)
            content[_TABLE] = dict(sorted({**known, **offsets}.items()))
            return bool(content[_TABLE] != known)

        self.table.change(edit)


def _parse(content: Content) -> dict[int, int]:
    return int_keys(content.get(_TABLE, {}))
