"""`pyrocket message`: show, find, consume and send messages."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyrocket.base.config import parse_duration
from pyrocket.errors import MessageError, OptionError, PyrocketError
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, advising, exits_with_json, show_json
from pyrocket.tools.cli.place import GivenPlace, complete_groups, place_options, topic_argument
from pyrocket.tools.cli.show import (
    FORMAT_FIELDS,
    format_option,
    message_document,
    message_line,
    time_ms,
)
from pyrocket.tools.session import open_session
from pyrocket.values.message import Message, SendResult, StoredMessage

if TYPE_CHECKING:
    from pyrocket.filters.message_filter import MessageFilter

Shown = Callable[[StoredMessage], str]
"""Returns a message as it is printed."""


@click.group(cls=CommandGroup)
def message() -> None:
    """Show messages, find them by key or id, consume them for a group, and send messages."""


def _where(_context: object, _option: object, sql: str | None) -> "MessageFilter | None":
    if sql is None:
        return None
    from pyrocket.errors import InvalidInputError
    from pyrocket.filters.message_filter import MessageFilter

    try:
        return MessageFilter.parse(sql=sql)
    except InvalidInputError as error:
        raise click.BadParameter(f"{error.message} {error.remedy}") from None


_filter = click.option(
    "--where",
    callback=_where,
    metavar="SQL92",
    help="Only messages for which this is true, such as \"TAGS = 'paid' AND price > 10\".",
)
_format = click.option(
    "--format",
    "shown_as",
    type=format_option,
    metavar="TEMPLATE",
    help=f"Print messages as, for example, '{{offset}} {{body}}': {', '.join(FORMAT_FIELDS)}.",
)
_POLL_S = 0.5


@message.command()
@topic_argument
@place_options
@click.option(
    "--count", type=click.IntRange(1), default=10, show_default=True, help="The number of messages."
)
@click.option("--queue", type=click.IntRange(0), help="Only messages of this queue.")
@click.option("--follow", "-f", is_flag=True, help="Then print new messages, until Ctrl-C.")
@_filter
@_format
@exits_with_json
def tail(
    topic: str,
    place: GivenPlace,
    count: int,
    queue: int | None,
    follow: bool,
    where: "MessageFilter | None",
    shown_as: Shown | None,
    as_json: bool,
) -> int:
    """Show the newest messages of TOPIC; the newest is last.

    The path may also name a file `pyrocket/cut-…`, which contains bytes truncated from a log.
    """
    if follow and as_json:
        raise click.UsageError("--json prints one document: use --follow with --format.")
    target = place.target()
    cut = Path(target.place.path)
    if not target.place.endpoint and cut.is_file():
        if follow or where:
            raise click.UsageError("--follow and --where need a store.")
        _show(_newest_of_cut(cut, topic, count, queue), shown_as, as_json=as_json)
    elif follow:
        for new in target.messages.follow(topic, count, queue, where, lambda: time.sleep(_POLL_S)):
            click.echo((shown_as or message_line)(new))
    else:
        _show(target.messages.newest(topic, count, queue, where), shown_as, as_json=as_json)
    return OK


@message.command()
@topic_argument
@place_options
@click.option("--count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--queue", type=click.IntRange(0), help="Only messages of this queue.")
@click.option("--offset", type=click.IntRange(0), help="Start at this queue offset.")
@click.option(
    "--from", "since", metavar="TIME", help="Messages stored at or after this time, such as -1h."
)
@_filter
@_format
@exits_with_json
def show(
    topic: str,
    place: GivenPlace,
    count: int,
    queue: int | None,
    offset: int | None,
    since: str | None,
    where: "MessageFilter | None",
    shown_as: Shown | None,
    as_json: bool,
) -> int:
    """Show messages of TOPIC in order, starting at the oldest one, at an offset, or at a time.

    `pyrocket message tail` shows the newest.
    """
    if offset is not None and (queue is None or since is not None):
        raise click.UsageError("Use --offset with --queue, and without --from.")
    target = place.target()
    from_ms = None if since is None else time_ms(since, target.now_ms)
    messages = target.messages.oldest(topic, count, queue, offset, from_ms, where)
    _show(messages, shown_as, as_json=as_json)
    return OK


@message.command()
@topic_argument
@place_options
@click.option("--group", required=True, shell_complete=complete_groups, help="The group.")
@click.option("--count", type=click.IntRange(1), default=10, show_default=True)
@_filter
@_format
@exits_with_json
def consume(
    topic: str,
    place: GivenPlace,
    group: str,
    count: int,
    where: "MessageFilter | None",
    shown_as: Shown | None,
    as_json: bool,
) -> int:
    """Show the next messages of TOPIC for a group, and commit their offsets for it.

    Queues without committed offsets start at their first message. Stop the group's consumers first:
    they receive the same messages. Exits with 1 if there are none.
    """
    target = place.target()
    with open_session(target.place, write=True) as store:
        messages, after = target.messages.unconsumed(group, topic, count, where)
        _show(messages, shown_as, as_json=as_json)
        if after:
            store.source.commit(group, after)
    return OK if messages else FOUND


def _newest_of_cut(path: Path, topic: str, count: int, queue: int | None) -> list[StoredMessage]:
    from pyrocket.log.salvage import cut_messages

    wanted = (
        stored
        for stored in cut_messages(path)
        if stored.topic == topic and queue in (None, stored.queue_id)
    )
    return [*deque(wanted, maxlen=count)]


@message.command()
@topic_argument
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
@exits_with_json
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
        messages = target.messages.by_key(topic, key, count)
    else:
        stored = target.messages.by_id(topic, msg_id or "")
        messages = [] if stored is None else [stored]
    _show(messages, as_json=as_json)
    return OK if messages else FOUND


_REMEDIES = {
    "TOPIC_NOT_FOUND": "Use --create-topic to create the topic.",
    "STORE_NOT_FOUND": "Check the path; `pyrocket topic create --create-store` creates a store.",
}


def _delay(text: str) -> int:
    delay_ms = parse_duration(text.lower())
    if delay_ms is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 30s, 5m or 2h30m.")
    return delay_ms


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
    return name, value


@message.command()
@topic_argument
@click.argument("body", required=False)
@place_options
@click.option("--file", type=click.Path(), help="Send the bytes of this file as one message.")
@click.option("--tags", help="RocketMQ's tag.")
@click.option("--key", "keys", multiple=True, help="A key of the message; may be repeated.")
@click.option("--property", "properties", type=_property, multiple=True, metavar="NAME=VALUE")
@click.option(
    "--queue", "queue_id", type=click.IntRange(0), help="The queue id; by default round robin."
)
@click.option("--sharding-key", help="Messages with the same key go to the same queue.")
@click.option("--delay", type=_delay, metavar="DURATION", help="Deliver after this, such as 30s.")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Each line of standard input is a key, this text, and the body.",
)
@click.option("--create-topic", is_flag=True, help="Create the topic if it is missing.")
@exits_with_json
def send(
    topic: str,
    body: str | None,
    place: GivenPlace,
    file: str | None,
    properties: Sequence[tuple[str, str]],
    delay: int | None,
    key_separator: str | None,
    create_topic: bool,
    as_json: bool,
    **fields: Any,
) -> int:
    """Send BODY to TOPIC, or each line of standard input as one message.

    All messages get the same tags, keys and properties, and are durable when the command ends: with
    --namesrv, as the brokers are configured.
    """
    is_stream = body is None and file is None
    if body is not None and file is not None:
        raise click.UsageError("Use either BODY or --file.")
    if key_separator is not None and (not is_stream or not key_separator or fields["keys"]):
        raise click.UsageError("Use --key-separator with lines of standard input, without --key.")
    target = place.target()
    if create_topic and target.place.namesrv:
        from pyrocket.remoting.calls import TOPIC_REMEDY

        raise OptionError(
            "--create-topic does not create topics in a cluster of Apache RocketMQ.",
            remedy=TOPIC_REMEDY,
            code="OPTION_UNSUPPORTED",
        )
    fields |= {"topic": topic, "properties": dict(properties)}
    if delay is not None:
        fields["deliver_at_ms"] = target.now_ms() + delay
    bodies = _bodies(body, file)
    messages = (_message(body, key_separator, fields) for body in bodies)
    sent = target.messages.send(messages, create_topic=create_topic)
    with closing(sent), advising({} if target.place.namesrv else _REMEDIES):
        results = _counted(sent, is_stream=is_stream)
        if as_json:
            show_json({"topic": topic, "messages": [_sent_document(result) for result in results]})
        else:
            for new in results:
                click.echo(f"queue={new.queue_id} offset={new.queue_offset} id={new.msg_id}")
    return OK


def _message(body: bytes, key_separator: str | None, fields: Mapping[str, Any]) -> Message:
    """Return one message; with a separator, its key is the part of the line before it."""
    if key_separator is None:
        return Message(body=body, **fields)
    key, separator, body = body.partition(key_separator.encode(errors="surrogateescape"))
    if not separator:
        raise MessageError(
            f"the line does not contain {key_separator!r}.",
            remedy="Write the key, the separator and the body on each line.",
            code="CLI_KEY_MISSING",
        )
    return Message(body=body, **{**fields, "keys": [key.decode(errors="backslashreplace")]})


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


def _show(
    messages: Sequence[StoredMessage], shown_as: Shown | None = None, *, as_json: bool
) -> None:
    if as_json:
        show_json({"messages": [message_document(stored) for stored in messages]})
        return
    for stored in messages:
        click.echo((shown_as or message_line)(stored))
    if not messages:
        click.echo("No message found.", err=True)


def _sent_document(one: SendResult) -> dict[str, Any]:
    return {
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "msgId": one.msg_id,
        "offsetMsgId": one.offset_msg_id,
    }
