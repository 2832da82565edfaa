"""How far the services have come, kept from one boot to the next.

While the shared words are true they say it, exactly. At each checkpoint, and at a clean end, what
they said before the flush goes to `pyrocket/cursors.json`, and the delay levels' to RocketMQ's
`config/delayOffset.json` too, and there every ten seconds, as in RocketMQ: never more than what is
durable. A recovery takes the larger of ours and RocketMQ's, because both only ever grow and each is
true: a Java broker may have come further since.
"""

from collections.abc import Callable, Iterable, Mapping

from pyrocket.disk.io import read_or_none, replace_file
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
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import int_keys
from pyrocket.formats.system_topics import (
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.json_table import Content, JsonTable

_LEVEL_WORDS = {level_field(level): level for level in range(1, MAX_DELAY_LEVELS + 1)}
_NAMES = {
    "timed": TIMER_QUEUE_OFFSET,
    "timerDue": TIMER_READ_TIME,
    "timerOffset": TIMER_READ_OFFSET,
    "half": HALF_CURSOR,
    "op": OP_CURSOR,
    **{f"level{level}": word for word, level in _LEVEL_WORDS.items()},
}

Cursors = Mapping[int, int]
"""Values by word of the state page."""


def save_cursors(
    layout: Layout, cursors: Cursors, before_save: Iterable[Callable[[], None]] = ()
) -> None:
    """Save cursors whose deliveries are durable; the caller holds the flush lock.

    `before_save` is called if they have changed: see `Hooks.before_cursor_save`.
    """
    content = {name: cursors[word] for name, word in _NAMES.items() if word in cursors}
    data = encode_own(layout.cursors, content)
    if content and data != read_or_none(layout.cursors):
        for call in before_save:
            call()
        replace_file(layout.cursors, data, layout.scratch)
    save_levels(layout, cursors)


def save_levels(layout: Layout, cursors: Cursors) -> None:
    """Keep those of the delay levels where RocketMQ looks; the caller holds the flush lock."""
    levels = {_LEVEL_WORDS[word]: at for word, at in cursors.items() if word in _LEVEL_WORDS}
    if levels:
        DelayOffsets(layout).save(levels)


def save_transaction_cursors(layout: Layout, cursors: Cursors) -> None:
    """Keep the half and op cursors as RocketMQ does; the caller holds the mutex."""
    offsets = GroupOffsets(layout)
    for topic, word in ((HALF_TOPIC, HALF_CURSOR), (OP_TOPIC, OP_CURSOR)):
        if word in cursors:
            at = {0: cursors[word]}
            offsets.merge(TRANSACTION_GROUP, topic, at, lambda queue, old, new: new > old)


def restore_cursors(layout: Layout, page: SharedState, queues: QueueTable) -> None:
    """Set the words of the services after a recovery, none beyond its queue's end."""
    for word, at in saved_cursors(layout).items():
        page[word] = at
    for word, (topic, queue_id) in _queue_of_words().items():
        page[word] = min(page[word], queues.get(topic, queue_id).max_offset(WHOLE_LOG))
    page[NEXT_DUE] = 0


def saved_cursors(layout: Layout) -> dict[int, int]:
    """Return where all services are for sure, by us or by RocketMQ; StoreDamagedError."""
    own, java = read_cursors(layout), _of_java(layout)
    return {word: max(own.get(word, 0), java.get(word, 0)) for word in _NAMES.values()}


def _queue_of_words() -> dict[int, tuple[str, int]]:
    queues = {word: (SCHEDULE_TOPIC, level - 1) for word, level in _LEVEL_WORDS.items()}
    return {
        **queues,
        TIMER_QUEUE_OFFSET: (TIMER_TOPIC, 0),
        HALF_CURSOR: (HALF_TOPIC, 0),
        OP_CURSOR: (OP_TOPIC, 0),
    }


def read_cursors(layout: Layout) -> dict[int, int]:
    """Return what was saved last, by word. Raises StoreDamagedError."""
    data = read_or_none(layout.cursors)
    try:
        known = {} if data is None else decode_own(layout.cursors, data)
        return {
            _NAMES[name]: fastjson.java_long(at) for name, at in known.items() if name in _NAMES
        }
    except fastjson.PARSE_ERRORS as error:
        raise StoreDamagedError(
            f"{layout.cursors} cannot be parsed ({fastjson.describe_error(error)}).",
            remedy="Restore it from a copy, or remove it: delayed messages since RocketMQ's own"
            " config/delayOffset.json may then be delivered twice.",
        ) from error


def _of_java(layout: Layout) -> dict[int, int]:
    levels = DelayOffsets(layout).read()
    known = {level_field(n): at for n, at in levels.items() if 1 <= n <= MAX_DELAY_LEVELS}
    groups = GroupOffsets(layout)
    for topic, word in ((HALF_TOPIC, HALF_CURSOR), (OP_TOPIC, OP_CURSOR)):
        known[word] = groups.of(TRANSACTION_GROUP, topic).get(0, 0)
    return known


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
