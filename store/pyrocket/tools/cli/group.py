"""`pyrocket group`: consumer groups and what they have left to consume."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from pyrocket.tools.cli.frame import OK, CommandGroup, as_json, exits, path_option, show_json
from pyrocket.tools.cli.show import show_rows
from pyrocket.tools.cli.target import QueueLag, open_target


@click.group(cls=CommandGroup)
def group() -> None:
    """List consumer groups, and what they have left to consume."""


@group.command("list")
@path_option
@as_json
@exits
def list_groups(directory: str, as_json: bool) -> int:
    """List the groups, with their lag in each topic: messages, bytes in the log, and age."""
    target = open_target(directory)
    found: dict[str, dict[str, list[QueueLag]]] = {name: {} for name in target.groups()}
    for one in target.lag():
        found.setdefault(one.group, {}).setdefault(one.topic, []).append(one)
    if as_json:
        rows = [
            {"group": name, "topics": [_sum_document(topic, of) for topic, of in topics.items()]}
            for name, topics in found.items()
        ]
        show_json({"groups": rows})
        return OK
    lines: list[tuple[object, ...]] = []
    for name, topics in found.items():
        lines += [(name, topic, *_sums(of)) for topic, of in topics.items()]
        if not topics:
            lines.append((name, None, None, None, None))
    show_rows(("group", "topic", "lag", "bytes", "behind"), lines)
    return OK


@group.command()
@click.argument("name", default="", metavar="[GROUP]")
@path_option
@as_json
@exits
def lag(name: str, directory: str, as_json: bool) -> int:
    """Show what GROUP, or each group, has left to consume, queue by queue.

    committed is the next offset to consume; nothing committed means that all is left. lost counts
    messages that were deleted before they were consumed. beyond is not 0 where the committed offset
    lies beyond the queue's end: the store was restored from an older copy, or a crash has cut its
    log. The group's next commit corrects it, and until then `pyrocket verify` names it.
    """
    found = open_target(directory).lag(name)
    if as_json:
        show_json({"lag": [_document(one) for one in found]})
        return OK
    place = ("group", "topic", "queue", "committed", "maximum")
    columns = (*place, "lag", "bytes", "behind", "lost", "beyond")
    show_rows(columns, [_row(one) for one in found])
    return OK


def _sums(of: Sequence[QueueLag]) -> tuple[int, int, timedelta]:
    behind = max(one.behind_ms for one in of)
    return sum(one.lag for one in of), sum(one.bytes for one in of), timedelta(milliseconds=behind)


def _sum_document(topic: str, of: Sequence[QueueLag]) -> dict[str, Any]:
    messages, size, behind = _sums(of)
    behind_ms = behind // timedelta(milliseconds=1)
    return {"topic": topic, "lag": messages, "lagBytes": size, "behindMs": behind_ms}


def _row(one: QueueLag) -> tuple[object, ...]:
    behind = timedelta(milliseconds=one.behind_ms)
    place = one.group, one.topic, one.queue_id, one.committed, one.maximum
    return *place, one.lag, one.bytes, behind, one.lost, one.beyond_end


def _document(one: QueueLag) -> dict[str, Any]:
    return {
        "group": one.group,
        "topic": one.topic,
        "queueId": one.queue_id,
        "committedOffset": one.committed,
        "minOffset": one.minimum,
        "maxOffset": one.maximum,
        "lag": one.lag,
        "lagBytes": one.bytes,
        "behindMs": one.behind_ms,
        "lost": one.lost,
        "beyondEnd": one.beyond_end,
    }
