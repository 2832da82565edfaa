"""`pyrocket group`: consumer groups and their lag."""

from typing import Any

import click

from pyrocket.tools.cli.frame import OK, CommandGroup, as_json, exits, show_json
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.summaries import QueueLag, TopicLag, sum_by_topic


@click.group(cls=CommandGroup)
def group() -> None:
    """List consumer groups and show their lag."""


@group.command("list")
@place_options
@as_json
@exits
def list_groups(place: GivenPlace, as_json: bool) -> int:
    """List the groups with their lag in each topic: messages, bytes in the log, and age."""
    from pyrocket.tools.notebook.tables import group_table

    target = place.target()
    names, lags = target.groups(), target.lag()
    if as_json:
        sums = sum_by_topic(lags)
        rows = [
            {"group": name, "topics": [_sum_document(one) for one in sums if one.group == name]}
            for name in names
        ]
        show_json({"groups": rows})
    else:
        click.echo(group_table("", names, lags).text())
    return OK


@group.command()
@click.argument("name", default="", metavar="[GROUP]")
@place_options
@as_json
@exits
def lag(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show the lag of GROUP, or of each group, queue by queue.

    committed is the next offset to consume; without one the lag is the whole queue. lost counts
    messages that were deleted before they were consumed. beyond is greater than 0 if the committed
    offset is beyond the queue's end: the store was restored from an older copy, or a recovery has
    truncated its log. The group's next commit corrects it; until then `pyrocket verify` reports it.
    """
    from pyrocket.tools.notebook.tables import lag_table

    found = place.target().lag(name)
    if as_json:
        show_json({"lag": [_document(one) for one in found]})
    else:
        click.echo(lag_table("", found).text())
    return OK


def _sum_document(one: TopicLag) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "lag": one.lag,
        "lagBytes": one.bytes,
        "behindMs": one.behind_ms,
    }


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
