"""`pyrocket topic`: list, show, create, alter and delete topics."""

from collections.abc import Sequence
from typing import Any

import click

from pyrocket.base.arguments import counted
from pyrocket.base.config import DEFAULT_QUEUES, MAX_QUEUES
from pyrocket.errors import InvalidInputError
from pyrocket.metadata.topics import MESSAGE_TYPES
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    advising,
    confirmed,
    dry_run,
    exits_with_json,
    show_json,
    yes,
)
from pyrocket.tools.cli.place import GivenPlace, complete_topics, place_options
from pyrocket.tools.cli.show import iso, show_rows, show_table
from pyrocket.tools.session import RouteRow, routes_at
from pyrocket.tools.summaries import QueueInfo, TopicInfo

_type = click.option(
    "--type",
    "message_type",
    type=click.Choice([*MESSAGE_TYPES]),
    help="Type of messages that RocketMQ's clients may send to the topic; by default all types.",
)


_ordered = click.option(
    "--ordered/--not-ordered",
    default=None,
    help="Whether sharding keys keep their queues while brokers are gone; sends to these queues"
    " then fail.",
)


@click.group(cls=CommandGroup)
def topic() -> None:
    """List, show, create, alter and delete topics, and show their brokers."""


@topic.command("list")
@place_options
@click.option("--all", "with_system", is_flag=True, help="Include system and retry topics.")
@exits_with_json
def list_topics(place: GivenPlace, with_system: bool, as_json: bool) -> int:
    """List the topics with their queues, messages, bytes in the log, and times."""
    topics = [topic for topic in place.target().topics() if with_system or topic.kind == "user"]
    if as_json:
        show_json({"topics": [_document(topic) for topic in topics]})
    else:
        _show_topics(topics, with_kind=with_system)
    return OK


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@place_options
@exits_with_json
def show(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show the topic NAME and its queues; times are in UTC."""
    from pyrocket.tools.notebook.tables import queue_table

    target = place.target()
    info = target.topic(name)
    with target.admin() as admin:
        message_type = admin.topics.message_type(admin.topics.get(name).name)
    if as_json:
        queues = [_queue_document(queue) for queue in info.queues]
        show_json({**_document(info), "messageType": message_type, "queues": queues})
        return OK
    _show_topics([info], with_kind=True)
    if message_type:
        click.echo(f"\nThe topic accepts messages of the type {message_type}.")
    if info.ordered:
        click.echo("\nThe topic is ordered: sharding keys keep their queues.")
    if info.queues:
        click.echo()
        show_table(queue_table("", info))
    return OK


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@place_options
@exits_with_json
def route(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show which brokers have the topic NAME, with their addresses and numbers of queues.

    The queues of an ordered topic remain in its route while their broker is gone.
    """
    routes = routes_at(place.server(), name)
    if as_json:
        show_json({"topic": name, "brokers": [_route_document(row) for row in routes]})
    else:
        columns = ("broker", "address", "read queues", "write queues", "perm", "replicas")
        show_rows(columns, [_route_columns(row) for row in routes])
    return OK


def _route_columns(row: RouteRow) -> tuple[object, ...]:
    queues = row.read_queues, row.write_queues
    return row.broker, row.address or "gone", *queues, row.perm, ", ".join(row.replicas) or "-"


def _route_document(one: RouteRow) -> dict[str, Any]:
    return {
        "brokerName": one.broker,
        "address": one.address or None,
        "readQueues": one.read_queues,
        "writeQueues": one.write_queues,
        "perm": one.perm,
        "replicas": [*one.replicas],
    }


@topic.command()
@click.argument("name")
@place_options
@click.option(
    "--queues",
    type=click.IntRange(1, MAX_QUEUES),
    default=DEFAULT_QUEUES,
    show_default=True,
    help="The number of queues.",
)
@_type
@_ordered
@click.option("--create-store", is_flag=True, help="Also create the store if it is missing.")
@click.option("--if-missing", is_flag=True, help="Do nothing if the topic exists.")
@exits_with_json
def create(
    name: str,
    place: GivenPlace,
    queues: int,
    message_type: str | None,
    ordered: bool | None,
    create_store: bool,
    if_missing: bool,
    as_json: bool,
) -> int:
    """Create the topic NAME."""
    remedies = {
        "STORE_NOT_FOUND": "Check the path, or use --create-store to create a store there.",
        "TOPIC_EXISTS": "Use --if-missing to ignore an existing topic.",
    }
    try:
        with advising(remedies):
            place.target().create_topic(
                name,
                queues,
                create_store=create_store,
                message_type=message_type,
                ordered=bool(ordered),
            )
    except InvalidInputError as error:
        if error.code != "TOPIC_EXISTS" or not if_missing:
            raise
        created, text = False, f"Topic {name} exists; nothing was changed."
    else:
        created, text = True, f"Topic {name} was created with {counted(queues, 'queue')}."
    if as_json:
        show_json({"topic": name, "created": created})
    else:
        click.echo(text)
    return OK


_PERMISSIONS = {"none": 0, "w": 2, "r": 4, "rw": 6, "2": 2, "4": 4, "6": 6}
_queue_count = click.IntRange(0, MAX_QUEUES)


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@place_options
@click.option("--queues", type=click.IntRange(1, MAX_QUEUES), help="Read and write queues.")
@click.option("--read-queues", type=_queue_count, help="The number of queues for consumers.")
@click.option("--write-queues", type=_queue_count, help="The number of queues for producers.")
@click.option(
    "--perm", type=click.Choice([*_PERMISSIONS]), help="RocketMQ's permission: read, write or both."
)
@_type
@_ordered
@click.option("--create-missing", is_flag=True, help="Create the topic if it is missing.")
@exits_with_json
def alter(
    name: str,
    place: GivenPlace,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    message_type: str | None,
    ordered: bool | None,
    create_missing: bool,
    as_json: bool,
) -> int:
    """Change the queues, the permission, the type or the order flag of the topic NAME.

    Messages in queues that are no longer read queues stay in the log, but consumers do not receive
    them.
    """
    if queues is not None and (read_queues, write_queues) != (None, None):
        raise click.UsageError("Use --queues, or --read-queues and --write-queues.")
    target = place.target()
    changes: dict[str, Any] = {
        "read_queues": read_queues if queues is None else queues,
        "write_queues": write_queues if queues is None else queues,
        "perm": None if perm is None else _PERMISSIONS[perm],
        "ordered": ordered,
    }
    is_changed = any(value is not None for value in (message_type, *changes.values()))
    if not is_changed and not create_missing:
        raise click.UsageError(
            "Use --queues, --read-queues, --write-queues, --perm, --type or --ordered."
        )
    created = create_missing and all(known.name != name for known in target.topics())
    if created:
        target.create_topic(name, queues or write_queues or read_queues or DEFAULT_QUEUES)
    if is_changed:
        with target.admin(write=True) as admin:
            admin.topics.get(name)
            if message_type is not None:
                admin.topics.set_message_type(name, message_type)
            admin.topics.update(name, **changes)
    info = target.topic(name)
    if as_json:
        show_json({**_document(info), "created": created})
    else:
        _show_topics([info], with_kind=False)
    return OK


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@place_options
@yes
@dry_run
@exits_with_json
def delete(name: str, place: GivenPlace, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete the topic NAME, its queues and all groups' offsets in it.

    Its messages stay in the log until their log files are deleted. A new topic of this name
    continues at the old queue offsets. With --json there is no prompt: without --yes,
    nothing is deleted.
    """
    target = place.target()
    info = target.topic(name)
    messages = f"{name} with {counted(info.messages, 'message')}"
    if dry_run:
        if as_json:
            show_json({**_document(info), "deleted": False, "dryRun": True})
        else:
            click.echo(f"Topic {messages} would be deleted.")
        return OK
    deleted = confirmed(f"Delete {messages}?", yes=yes, as_json=as_json)
    if deleted:
        with target.admin(write=True) as admin:
            admin.topics.delete(name)
    if as_json:
        show_json({"topic": name, "deleted": deleted})
    elif deleted:
        click.echo(f"Topic {name} was deleted.")
    return OK if deleted else FOUND


def _show_topics(topics: Sequence[TopicInfo], *, with_kind: bool) -> None:
    columns = ("topic", "queues", "messages", "bytes", "first (UTC)", "last (UTC)", "kind")
    rows = [
        (info.name, info.read_queues, info.messages, info.bytes, info.first, info.last, info.kind)
        for info in topics
    ]
    count = len(columns) if with_kind else len(columns) - 1
    show_rows(columns[:count], [row[:count] for row in rows])


def _document(one: TopicInfo) -> dict[str, Any]:
    return {
        "topic": one.name,
        "kind": one.kind,
        "perm": one.perm,
        "ordered": one.ordered,
        "readQueues": one.read_queues,
        "writeQueues": one.write_queues,
        "messages": one.messages,
        "bytes": one.bytes,
        "firstStoreTimestamp": iso(one.first),
        "lastStoreTimestamp": iso(one.last),
    }


def _queue_document(one: QueueInfo) -> dict[str, Any]:
    return {
        "queueId": one.queue_id,
        "minOffset": one.minimum,
        "maxOffset": one.maximum,
        "bytes": one.bytes,
        "firstStoreTimestamp": iso(one.first),
        "lastStoreTimestamp": iso(one.last),
    }
