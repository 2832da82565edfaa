"""`pyrocket dlq`: show the dead letters of a consumer group, resend them, and delete them.

A resent copy has an additional key, made of the group and the letter's id. The letter counts as
resent as long as a message with this key is stored.
"""

from collections.abc import Sequence
from typing import Any

import click

from pyrocket.base.arguments import counted
from pyrocket.errors import MessageNotFoundError, TopicNotFoundError
from pyrocket.formats.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    SHARDING_KEY,
)
from pyrocket.formats.system_topics import DLQ_PREFIX
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, confirmed, dry_run, exits_with_json, show_json, yes
from pyrocket.tools.cli.place import GivenPlace, group_argument, place_options
from pyrocket.tools.cli.show import message_document, message_line, show_rows
from pyrocket.tools.cli.target import AdminTarget
from pyrocket.values.message import Message, SendResult, StoredMessage


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Show, resend and delete the dead letters of a consumer group."""


@dlq.command("list")
@group_argument
@place_options
@click.option("--count", type=click.IntRange(1), default=64, show_default=True)
@exits_with_json
def list_letters(name: str, place: GivenPlace, count: int, as_json: bool) -> int:
    """Show the newest dead letters of GROUP, the newest last, and whether they were resent.

    Exits with 1 if there are none.
    """
    target = place.target()
    letters = _letters(target, name, count)
    resent = _resent(target, name, letters)
    if as_json:
        shown = [_document(letter, is_resent=_mark(name, letter) in resent) for letter in letters]
        show_json({"group": name, "messages": shown})
        return OK if letters else FOUND
    for letter in letters:
        mark = "resent " if _mark(name, letter) in resent else ""
        click.echo(f"{mark}topic={_origin(letter)} id={letter.msg_id} {message_line(letter)}")
    if not letters:
        click.echo(f"{name} has no dead letters.", err=True)
    return OK if letters else FOUND


@dlq.command()
@group_argument
@place_options
@click.option(
    "--id", "ids", multiple=True, metavar="ID", help="Only this message; may be repeated."
)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.option("--to", metavar="TOPIC", help="Send to this topic instead of the original topic.")
@click.option("--again", is_flag=True, help="Also send dead letters that were already resent.")
@dry_run
@exits_with_json
def resend(
    name: str,
    place: GivenPlace,
    ids: Sequence[str],
    every: bool,
    to: str | None,
    again: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Resend dead letters of GROUP as new messages of their original topic.

    All groups that consume this topic receive the new messages. The dead letters are not deleted;
    those that were already resent are skipped.
    """
    if every == bool(ids):
        raise click.UsageError("Give either --id or --all.")
    target = place.target()
    letters = [letter for letter in _letters(target, name, None) if every or letter.msg_id in ids]
    _check_ids(name, ids, letters)
    resent = set() if again else _resent(target, name, letters, to)
    left = [letter for letter in letters if _mark(name, letter) not in resent]
    sent: list[SendResult | None] = [None] * len(left)
    if not dry_run:
        copies = (_copy(letter, to or _origin(letter), _mark(name, letter)) for letter in left)
        sent = [*target.messages.send(copies, create_topic=False)]
    rows = [
        (to or _origin(letter), letter.msg_id, after and after.msg_id)
        for letter, after in zip(left, sent, strict=True)
    ]
    skipped = len(letters) - len(left)
    if as_json:
        shown = [{"topic": row[0], "msgId": row[1], "newMsgId": row[2]} for row in rows]
        show_json({"group": name, "dryRun": dry_run, "messages": shown, "skipped": skipped})
    else:
        show_rows(("topic", "dead letter", "would be sent" if dry_run else "sent as"), rows)
        if skipped:
            click.echo(f"Skipped, because already resent: {skipped}. --again sends them.", err=True)
        elif not rows:
            click.echo(f"{name} has no dead letters.", err=True)
    return OK if letters else FOUND


@dlq.command()
@group_argument
@place_options
@yes
@dry_run
@exits_with_json
def purge(name: str, place: GivenPlace, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete all dead letters of GROUP: delete its dead-letter topic.

    The topic is created again with the next dead letter. With --json there is no prompt: without
    --yes, nothing is deleted. Exits with 1 if nothing is deleted.
    """
    target = place.target()
    count = len(_letters(target, name, None))
    asked = f"{counted(count, 'dead letter')} of {name}"
    deleted = bool(
        count and not dry_run and confirmed(f"Delete {asked}?", yes=yes, as_json=as_json)
    )
    if deleted:
        with target.admin(write=True) as admin:
            admin.topics.delete(DLQ_PREFIX + name)
    if as_json:
        show_json({"group": name, "messages": count, "deleted": deleted, "dryRun": dry_run})
    elif not count:
        click.echo(f"{name} has no dead letters.", err=True)
    elif deleted or dry_run:
        click.echo(f"{'Deleted' if deleted else 'Would delete'}: {asked}.")
    return OK if deleted or (dry_run and count) else FOUND


def _letters(target: AdminTarget, group: str, count: int | None) -> list[StoredMessage]:
    target.group(group)
    try:
        return target.messages.newest(DLQ_PREFIX + group, count or 2**31, None)
    except TopicNotFoundError:
        return []


def _check_ids(group: str, ids: Sequence[str], found: Sequence[StoredMessage]) -> None:
    missing = {*ids} - {letter.msg_id for letter in found}
    if missing:
        raise MessageNotFoundError(
            f"{group} has no dead letter {min(missing)}.",
            remedy=f"Nothing was sent. `pyrocket dlq list {group}` shows the ids.",
        )


def _origin(one: StoredMessage) -> str:
    """Return the topic to which a dead letter was originally sent."""
    return one.properties.get(DLQ_ORIGIN_TOPIC) or one.properties.get(RETRY_TOPIC) or one.topic


def _mark(group: str, one: StoredMessage) -> str:
    """Return the key of the resent copies of a dead letter."""
    return f"{DLQ_PREFIX}{group}:{one.msg_id}"


def _resent(
    target: AdminTarget, group: str, letters: Sequence[StoredMessage], to: str | None = None
) -> set[str]:
    """Return the keys of the resent copies that are stored."""
    if not letters:
        return set()
    likely = {*map(_origin, letters)} | ({to} if to else set())
    copies = target.messages.by_keys(likely, [_mark(group, letter) for letter in letters])
    return {key for copy in copies for key in copy.keys}


def _copy(one: StoredMessage, topic: str, mark: str) -> Message:
    own = {DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, *RESERVED_PROPERTIES}
    keys = [key for key in one.keys if not key.startswith(DLQ_PREFIX)]
    return Message(
        topic=topic,
        body=one.body,
        tags=one.tags,
        keys=[*keys, mark],
        properties={name: value for name, value in one.properties.items() if name not in own},
        sharding_key=one.properties.get(SHARDING_KEY),
        flag=one.flag,
    )


def _document(one: StoredMessage, *, is_resent: bool) -> dict[str, Any]:
    return {**message_document(one), "originTopic": _origin(one), "resent": is_resent}
