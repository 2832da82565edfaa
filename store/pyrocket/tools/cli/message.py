"""`pyrocket message`: show, find and send messages."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import click

from pyrocket.errors import PyrocketError
from pyrocket.message import Message, SendResult, StoredMessage
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    advising,
    as_json,
    exits,
    show_json,
)
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.show import message_document, message_line, time_ms


@click.group(cls=CommandGroup)
def message() -> None:
    """Show messages, find them by key or id, and send messages."""


@click.command()
@click.argument("topic")
@place_options
@click.option(
    "--count", type=click.IntRange(1), default=10, show_default=True, help="The number of messages."
)
@click.option("--queue", type=click.IntRange(0), help="Only messages of this queue.")
@as_json
@exits
def tail(topic: str, place: GivenPlace, count: int, queue: int | None, as_json: bool) -> int:
    """Show the newest messages of TOPIC; the newest is last.

    The path may also name a file `pyrocket/cut-…`, which contains bytes truncated from a log.
    """
    target = place.target()
    cut = Path(target.place.path)
    if not target.place.endpoint and cut.is_file():
        _show(_newest_of_cut(cut, topic, count, queue), as_json=as_json)
    else:
        _show(target.newest(topic, count, queue), as_json=as_json)
    return OK


_tail = copy(tail)
_tail.hidden = True
message.add_command(_tail)


@message.command()
@click.argument("topic")
@place_options
@click.option("--count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--queue", type=click.IntRange(0), help="Only messages of this queue.")
@click.option("--offset", type=click.IntRange(0), help="Start at this queue offset.")
@click.option(
    "--from", "since", metavar="TIME", help="Messages stored at or after this time, such as -1h."
)
@as_json
@exits
def show(
    topic: str,
    place: GivenPlace,
    count: int,
    queue: int | None,
    offset: int | None,
    since: str | None,
    as_json: bool,
) -> int:
    """Show messages of TOPIC in order, starting at the oldest one, at an offset, or at a time.

    `pyrocket topic tail` shows the newest.
    """
    if offset is not None and (queue is None or since is not None):
        raise click.UsageError("Use --offset with --queue, and without --from.")
    target = place.target()
    from_ms = None if since is None else time_ms(since, target.now_ms)
    _show(target.oldest(topic, count, queue, offset, from_ms), as_json=as_json)
    return OK


def _newest_of_cut(path: Path, topic: str, count: int, queue: int | None) -> list[StoredMessage]:
    from pyrocket.log.salvage import cut_messages

    wanted = (
        each
        for each in cut_messages(path)
        if each.topic == topic and queue in (None, each.queue_id)
    )
    return [*deque(wanted, maxlen=count)]


@message.command()
@click.argument("topic")
@place_options
@click.option("--key", help="One of the message's keys.")
@click.option("--id", "msg_id", help="The message's unique id or offset message id.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="At most this many messages.",
)
@as_json
@exits
def find(
    topic: str, place: GivenPlace, key: str | None, msg_id: str | None, count: int, as_json: bool
) -> int:
    """Find messages of TOPIC by key or id; the newest is last.

    Exits with 1 if there are none.
    """
    if (key is None) == (msg_id is None):
        raise click.UsageError("Use either --key or --id.")
    target = place.target()
    if key is not None:
        found = target.by_key(topic, key, count)
    else:
        one = target.by_id(topic, msg_id or "")
        found = [] if one is None else [one]
    _show(found, as_json=as_json)
    return OK if found else FOUND


_REMEDIES = {
    "TOPIC_NOT_FOUND": "Use --create-topic to create the topic.",
    "STORE_NOT_FOUND": "Check the path; `pyrocket topic create --create-store` creates a store.",
}


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
    return name, value


@message.command()
@click.argument("topic")
@click.argument("body", required=False)
@place_options
@click.option("--file", type=click.Path(), help="Send the bytes of this file as one message.")
@click.option("--tags", help="RocketMQ's tag.")
@click.option("--key", "keys", multiple=True, help="A key of the message; may be repeated.")
@click.option("--property", "properties", type=_property, multiple=True, metavar="NAME=VALUE")
@click.option(
    "--queue",
    "queue_id",
    type=click.IntRange(0),
    help="The queue id; by default round robin.",
)
@click.option("--sharding-key", help="Messages with the same key go to the same queue.")
@click.option("--create-topic", is_flag=True, help="Create the topic if it is missing.")
@as_json
@exits
def send(
    topic: str,
    body: str | None,
    place: GivenPlace,
    file: str | None,
    properties: Sequence[tuple[str, str]],
    create_topic: bool,
    as_json: bool,
    **fields: Any,
) -> int:
    """Send BODY to TOPIC, or each line of standard input as one message.

    All messages get the same tags, keys and properties, and are durable when the command ends.
    """
    if body is not None and file is not None:
        raise click.UsageError("Use either BODY or --file.")
    fields |= {"topic": topic, "properties": dict(properties)}
    messages = (Message(body=each, **fields) for each in _bodies(body, file))
    sent = place.target().send(messages, create_topic=create_topic)
    with closing(sent), advising(_REMEDIES):
        results = _counted(sent, is_stream=body is None and file is None)
        if as_json:
            show_json({"topic": topic, "messages": [_sent_document(one) for one in results]})
        else:
            _show_sent(results)
    return OK


def _bodies(body: str | None, file: str | None) -> Iterator[bytes]:
    if body is not None:
        yield body.encode(errors="surrogateescape")
    elif file is not None:
        yield Path(file).read_bytes()
    else:
        if sys.stdin.isatty():
            click.echo("Each line is one message; end with Ctrl-D.", err=True)
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n")


def _counted(sent: Iterable[SendResult], *, is_stream: bool) -> Iterator[SendResult]:
    """Yield the results; an error message contains the line number."""
    count = 0
    try:
        for result in sent:
            count += 1
            yield result
    except PyrocketError as error:
        if not is_stream:
            raise
        message = f"line {count + 1}: {error.message} All lines before it were sent."
        raise type(error)(message, remedy=error.remedy, code=error.code) from error


def _show(messages: Sequence[StoredMessage], *, as_json: bool) -> None:
    if as_json:
        show_json({"messages": [message_document(one) for one in messages]})
        return
    for one in messages:
        click.echo(message_line(one))
    if not messages:
        click.echo("No message found.", err=True)


def _show_sent(results: Iterable[SendResult]) -> None:
    for one in results:
        click.echo(f"queue={one.queue_id} offset={one.queue_offset} id={one.msg_id}")


def _sent_document(one: SendResult) -> dict[str, Any]:
    return {
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "msgId": one.msg_id,
        "offsetMsgId": one.offset_msg_id,
    }
