"""`pyrocket dlq`: show the dead letters of a consumer group, and resend them."""

from collections.abc import Sequence
from typing import Any

import click

from pyrocket.errors import MessageNotFoundError, TopicNotFoundError
from pyrocket.formats.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    SHARDING_KEY,
)
from pyrocket.formats.system_topics import DLQ_PREFIX
from pyrocket.message import Message, SendResult, StoredMessage
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, as_json, dry_run, exits, show_json
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.show import message_document, message_line, show_rows
from pyrocket.tools.cli.target import Target


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Show the dead letters of a consumer group, and resend them."""


@dlq.command("list")
@click.argument("name", metavar="GROUP")
@place_options
@click.option("--count", type=click.IntRange(1), default=64, show_default=True)
@as_json
@exits
def list_letters(name: str, place: GivenPlace, count: int, as_json: bool) -> int:
    """Show the newest dead letters of GROUP, the newest last. Exits with 1 if there are none."""
    found = _letters(place.target(), name, count)
    if as_json:
        show_json({"group": name, "messages": [_document(one) for one in found]})
        return OK if found else FOUND
    for one in found:
        click.echo(f"topic={_origin(one)} id={one.msg_id} {message_line(one)}")
    if not found:
        click.echo(f"{name} has no dead letters.", err=True)
    return OK if found else FOUND


@dlq.command()
@click.argument("name", metavar="GROUP")
@place_options
@click.option(
    "--id", "ids", multiple=True, metavar="ID", help="Only this message; may be repeated."
)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.option("--to", metavar="TOPIC", help="Send to this topic instead of the original topic.")
@dry_run
@as_json
@exits
def resend(
    name: str,
    place: GivenPlace,
    ids: Sequence[str],
    every: bool,
    to: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Resend dead letters of GROUP as new messages of their original topic.

    All groups that consume this topic receive the new messages. The dead letters are not deleted:
    if they are resent twice, they are delivered twice.
    """
    if every == bool(ids):
        raise click.UsageError("Give either --id or --all.")
    target = place.target()
    found = [one for one in _letters(target, name, None) if every or one.msg_id in ids]
    _check_ids(name, ids, found)
    sent: list[SendResult | None] = [None] * len(found)
    if not dry_run:
        copies = (_copy(one, to or _origin(one)) for one in found)
        sent = [*target.send(copies, create_topic=False)]
    rows = [
        (to or _origin(one), one.msg_id, after and after.msg_id)
        for one, after in zip(found, sent, strict=True)
    ]
    if as_json:
        shown = [{"topic": row[0], "msgId": row[1], "newMsgId": row[2]} for row in rows]
        show_json({"group": name, "dryRun": dry_run, "messages": shown})
    else:
        show_rows(("topic", "dead letter", "would be sent" if dry_run else "sent as"), rows)
    return OK if found else FOUND


def _letters(target: Target, group: str, count: int | None) -> list[StoredMessage]:
    target.group(group)
    try:
        return target.newest(DLQ_PREFIX + group, count or 2**31, None)
    except TopicNotFoundError:
        return []


def _check_ids(group: str, ids: Sequence[str], found: Sequence[StoredMessage]) -> None:
    missing = {*ids} - {one.msg_id for one in found}
    if missing:
        raise MessageNotFoundError(
            f"{group} has no dead letter {min(missing)}.",
            remedy=f"Nothing was sent. `pyrocket dlq list {group}` shows the ids.",
        )


def _origin(one: StoredMessage) -> str:
    """Return the topic to which a dead letter was originally sent."""
    return one.properties.get(DLQ_ORIGIN_TOPIC) or one.properties.get(RETRY_TOPIC) or one.topic


def _copy(one: StoredMessage, topic: str) -> Message:
    own = {DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, *RESERVED_PROPERTIES}
    return Message(
        topic=topic,
        body=one.body,
        tags=one.tags,
        keys=one.keys,
        properties={name: value for name, value in one.properties.items() if name not in own},
        sharding_key=one.properties.get(SHARDING_KEY),
        flag=one.flag,
    )


def _document(one: StoredMessage) -> dict[str, Any]:
    return {**message_document(one), "originTopic": _origin(one)}
