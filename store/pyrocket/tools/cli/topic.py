"""`pyrocket topic`: list, show, create and delete topics."""

from collections.abc import Sequence
from typing import Any

import click

from pyrocket.config import DEFAULT_QUEUES, MAX_QUEUES
from pyrocket.errors import InvalidInputError
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    CommandGroup,
    advising,
    agreed,
    as_json,
    exits,
    show_json,
)
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.show import iso, show_rows
from pyrocket.tools.summaries import QueueInfo, TopicInfo


@click.group(cls=CommandGroup)
def topic() -> None:
    """List, show, create and delete topics."""


@topic.command("list")
@place_options
@click.option("--all", "with_system", is_flag=True, help="Include system and retry topics.")
@as_json
@exits
def list_topics(place: GivenPlace, with_system: bool, as_json: bool) -> int:
    """List the topics with their queues, messages, bytes in the log, and times."""
    found = [topic for topic in place.target().topics() if with_system or topic.kind == "user"]
    if as_json:
        show_json({"topics": [_document(topic) for topic in found]})
    else:
        _show_topics(found, with_kind=with_system)
    return OK


@topic.command()
@click.argument("name")
@place_options
@as_json
@exits
def show(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show the topic NAME, queue by queue; times are in UTC."""
    from pyrocket.tools.notebook.tables import queue_table

    found = place.target().topic(name)
    if as_json:
        show_json({**_document(found), "queues": [_queue_document(one) for one in found.queues]})
        return OK
    _show_topics([found], with_kind=True)
    if found.queues:
        click.echo()
        click.echo(queue_table("", found).text())
    return OK


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
@click.option("--create-store", is_flag=True, help="Create the store, too, if there is none.")
@click.option("--if-missing", is_flag=True, help="Do nothing if the topic exists.")
@as_json
@exits
def create(
    name: str, place: GivenPlace, queues: int, create_store: bool, if_missing: bool, as_json: bool
) -> int:
    """Create the topic NAME."""
    remedies = {
        "STORE_NOT_FOUND": "Check the path, or give --create-store to create a store there.",
        "TOPIC_EXISTS": "Give --if-missing to keep it as it is.",
    }
    try:
        with advising(remedies):
            place.target().create_topic(name, queues, create_store=create_store)
    except InvalidInputError as error:
        if error.code != "TOPIC_EXISTS" or not if_missing:
            raise
        created, text = False, f"Topic {name} exists; nothing is changed."
    else:
        created, text = True, f"Topic {name} is created with {queues} queues."
    if as_json:
        show_json({"topic": name, "created": created})
    else:
        click.echo(text)
    return OK


@topic.command()
@click.argument("name")
@place_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@exits
def delete(name: str, place: GivenPlace, yes: bool, as_json: bool) -> int:
    """Delete the topic NAME, its queues and all groups' offsets in it.

    Its messages stay in the log until that is cleaned. A new topic of this name continues at the
    old queue offsets. With --json it does not ask: without --yes nothing is deleted.
    """
    target = place.target()
    found = target.topic(name)
    deleted = yes or (not as_json and agreed(f"Delete {name} with {found.messages:,} messages?"))
    if deleted:
        target.delete_topic(name)
    if as_json:
        show_json({"topic": name, "deleted": deleted})
    elif deleted:
        click.echo(f"Topic {name} is deleted.")
    return OK if deleted else FOUND


def _show_topics(topics: Sequence[TopicInfo], *, with_kind: bool) -> None:
    columns = ("topic", "queues", "messages", "bytes", "first (UTC)", "last (UTC)", "kind")
    rows = [
        (one.name, one.read_queues, one.messages, one.bytes, one.first, one.last, one.kind)
        for one in topics
    ]
    count = len(columns) if with_kind else len(columns) - 1
    show_rows(columns[:count], [row[:count] for row in rows])


def _document(one: TopicInfo) -> dict[str, Any]:
    return {
        "topic": one.name,
        "kind": one.kind,
        "perm": one.perm,
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
