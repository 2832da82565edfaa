"""Consumer groups: their offsets, kept in RocketMQ's `config/consumerOffset.json`."""

from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson

_SEPARATOR = "@"


def drop_topic_offsets(layout: Layout, topic: str) -> None:
    """Forget every group's offsets in a topic, durably; the caller holds the mutex."""
    path = layout.config("consumerOffset")
    text = read_or_none(path)
    if not text:
        return
    try:
        content = fastjson.loads(text.decode())
        table = content.get("offsetTable", {})
        kept = {key: _int_keys(offsets) for key, offsets in table.items() if not _is_of(key, topic)}
    except (ValueError, AttributeError, TypeError) as error:
        raise StoreDamagedError(
            f"{path} makes no sense: {error!r}.",
            remedy="Restore it from a backup, correct it by hand, or remove it to forget all"
            " groups' offsets.",
        ) from error
    if len(kept) < len(table):
        content["offsetTable"] = kept
        replace_file(path, fastjson.dumps(content).encode(), layout.scratch, backup=True)


def _is_of(key: str, topic: str) -> bool:
    return key.split(_SEPARATOR)[0] == topic


def _int_keys(offsets: dict[str, int]) -> dict[int, int]:
    return {int(queue_id): offset for queue_id, offset in offsets.items()}
