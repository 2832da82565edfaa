"""`pyrocket group` and `pyrocket offset`: consumer groups, their lag and their offsets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pyrocket.base.arguments import counted
from pyrocket.base.config import MAX_QUEUES
from pyrocket.errors import GroupNotFoundError
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, confirmed, dry_run, exits_with_json, show_json, yes
from pyrocket.tools.cli.place import (
    GivenPlace,
    complete_groups,
    complete_topics,
    group_argument,
    place_options,
    topic_argument,
)
from pyrocket.tools.cli.show import show_rows, show_table, time_ms
from pyrocket.tools.cli.target import AdminTarget
from pyrocket.tools.summaries import LagSum, QueueLag, sum_by_topic

if TYPE_CHECKING:
    from pyrocket.values.admin import Backoff, GroupConfig, LiveMember


@click.group(cls=CommandGroup)
def group() -> None:
    """List, show, create, alter, reset and delete consumer groups, and show their lag."""


@group.command("list")
@place_options
@exits_with_json
def list_groups(place: GivenPlace, as_json: bool) -> int:
    """List the groups with their lag in each topic: messages, bytes in the log, and age."""
    from pyrocket.tools.notebook.tables import group_table

    target = place.target()
    names, lags = target.groups(), target.lag()
    if as_json:
        sums = sum_by_topic(lags)
        rows = [
            {"group": name, "topics": [_sum_document(row) for row in sums if row.group == name]}
            for name in names
        ]
        show_json({"groups": rows})
    else:
        show_table(group_table("", names, lags))
    return OK


@group.command()
@click.argument("name", default="", metavar="[GROUP]", shell_complete=complete_groups)
@place_options
@exits_with_json
def lag(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show the lag of GROUP, or of all groups, for each queue.

    committed is the next offset to consume; before the first commit, the lag begins where the group
    starts.
    lost is the number of messages that were deleted before they were consumed. beyond is greater
    than 0 if the committed offset is beyond the queue's end, because the store was restored from an
    older copy or a recovery truncated its log. The group's next commit corrects the offset; until
    then `pyrocket verify` reports it.
    """
    from pyrocket.tools.notebook.tables import lag_table

    lags = place.target().lag(name)
    if as_json:
        show_json({"lag": [_document(row) for row in lags]})
    else:
        show_table(lag_table("", lags))
    return OK


@group.command()
@group_argument
@place_options
@exits_with_json
def show(name: str, place: GivenPlace, as_json: bool) -> int:
    """Show the settings of GROUP, its lag in each topic, and its live members.

    Members are the consumers that share the queues of GROUP, such as PushConsumer; only a broker
    knows them. The subscriptions of GROUP are those in the latest heartbeat of a member. If other
    members have different subscriptions, messages are skipped, because each member filters its
    queues by its own subscriptions.
    """
    from pyrocket.tools.notebook.tables import group_table

    target = place.target()
    config, lags, members = target.group(name), target.lag(name), target.members(name)
    if as_json:
        topics = [_sum_document(total) for total in sum_by_topic(lags)]
        document = {**_settings_document(config), "topics": topics, "members": None}
        if members is not None:
            document["members"] = [
                {"clientId": member.client_id, "differs": member.differs} for member in members
            ]
        show_json(document)
        return OK
    _show_settings(config)
    click.echo()
    show_table(group_table("", [], lags))
    if members is not None:
        click.echo()
        _show_members(members)
    return OK


@group.command()
@group_argument
@place_options
@exits_with_json
def create(name: str, place: GivenPlace, as_json: bool) -> int:
    """Create GROUP with RocketMQ's defaults. An existing group is not changed."""
    created = place.target().create_group(name)
    if as_json:
        show_json({"group": name, "created": created})
    else:
        click.echo(f"Group {name} {'was created' if created else 'exists; nothing was changed'}.")
    return OK


def _delays(text: str) -> tuple[int, ...]:
    from pyrocket.base.config import parse_delay_levels
    from pyrocket.errors import OptionError

    try:
        return parse_delay_levels(text)
    except OptionError:
        raise click.BadParameter(
            f"{text!r} is not a list of delays, each a whole number followed by"
            " s, m, h or d, such as '10s 30s 1m'."
        ) from None


def _backoff(_context: object, _option: object, text: str | None) -> "Backoff | None":
    from pyrocket.values.admin import Backoff

    if text is None:
        return None
    return Backoff() if text == "default" else Backoff(_delays(text))


def _exponential(
    _context: object, _option: object, given: tuple[str, str, int] | None
) -> "Backoff | None":
    from pyrocket.values.admin import Backoff

    if given is None:
        return None
    *bounds, multiplier = given
    delays = _delays(" ".join(bounds))
    if len(delays) != len(bounds) or not 0 < delays[0] <= delays[1]:
        raise click.BadParameter(
            f"{' '.join(bounds)!r} is not a first delay and a maximum that is at least as"
            " long, such as '5s 2h'."
        )
    return Backoff(initial_ms=delays[0], max_ms=delays[1], multiplier=multiplier)


@group.command()
@group_argument
@place_options
@click.option("--consume/--no-consume", default=None, help="Whether the group may consume.")
@click.option(
    "--fifo/--no-fifo",
    default=None,
    help="Whether messages with the same message group are received one after the other.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    help="Retries of a message before it is moved to the dead-letter topic.",
)
@click.option(
    "--retry-delays",
    "backoff",
    callback=_backoff,
    metavar="DELAYS",
    help="The delays before retry 1, 2, …, such as '10s 30s 1m', or default; the last is repeated.",
)
@click.option(
    "--retry-backoff",
    "exponential",
    type=(str, str, click.IntRange(1, 1000)),
    callback=_exponential,
    metavar="FIRST MAX MULTIPLIER",
    help="Each delay is the previous delay times MULTIPLIER, such as 5s 2h 2.",
)
@click.option(
    "--retry-queues", type=click.IntRange(1, MAX_QUEUES), help="Queues of the group's retry topic."
)
@click.option("--create-missing", is_flag=True, help="Create the group if it is missing.")
@exits_with_json
def alter(
    name: str,
    place: GivenPlace,
    consume: bool | None,
    fifo: bool | None,
    retries: int | None,
    backoff: "Backoff | None",
    exponential: "Backoff | None",
    retry_queues: int | None,
    create_missing: bool,
    as_json: bool,
) -> int:
    """Change the given settings of GROUP."""
    if backoff and exponential:
        raise click.UsageError("Use either --retry-delays or --retry-backoff.")
    backoff = backoff or exponential
    if {consume, fifo, retries, backoff, retry_queues} == {None} and not create_missing:
        raise click.UsageError(
            "Use --consume, --fifo, --retries, --retry-delays, --retry-backoff or --retry-queues."
        )
    target = place.target()
    created = create_missing and target.create_group(name)
    with target.admin(write=True) as admin:
        config = admin.groups.update(
            name,
            consume_enabled=consume,
            retry_max_times=retries,
            retry_queues=retry_queues,
            fifo=fifo,
            backoff=backoff,
        )
    if as_json:
        show_json({**_settings_document(config), "created": created})
    else:
        _show_settings(config)
    return OK


@group.command()
@group_argument
@place_options
@yes
@dry_run
@exits_with_json
def delete(name: str, place: GivenPlace, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete GROUP and its offsets in all topics.

    Its retry and dead-letter topics are not deleted. With --json there is no prompt: without --yes,
    nothing is deleted.
    """
    target = place.target()
    target.group(name)
    topics = len(sum_by_topic(target.lag(name)))
    asked = f"{name} with offsets in {counted(topics, 'topic')}"
    deleted = not dry_run and confirmed(f"Delete {asked}?", yes=yes, as_json=as_json)
    if deleted:
        with target.admin(write=True) as admin:
            admin.groups.delete(name)
    if as_json:
        show_json({"group": name, "topics": topics, "deleted": deleted, "dryRun": dry_run})
    elif dry_run:
        click.echo(f"Group {asked} would be deleted.")
    elif deleted:
        click.echo(f"Group {name} was deleted.")
    return OK if deleted or dry_run else FOUND


def _queue_offset(text: str) -> tuple[int, int]:
    queue, _, offset = text.partition("=")
    if not (queue.isdigit() and offset.isdigit()):
        raise click.BadParameter(f"{text!r} is not QUEUE=OFFSET, such as 0=17.")
    return int(queue), int(offset)


@group.command()
@group_argument
@topic_argument
@place_options
@click.option("--to", metavar="TARGET", help="earliest, latest, or a time, for all queues.")
@click.option(
    "--offset",
    "offsets",
    type=_queue_offset,
    multiple=True,
    metavar="QUEUE=OFFSET",
    help="The offset of one queue; may be repeated.",
)
@click.option("--force", is_flag=True, help="Reset the group although it has live members.")
@click.option("--create", is_flag=True, help="Create the group if it is missing.")
@dry_run
@exits_with_json
def reset(
    name: str,
    topic: str,
    place: GivenPlace,
    to: str | None,
    offsets: tuple[tuple[int, int], ...],
    force: bool,
    create: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Reset the offsets of GROUP in TOPIC: of all queues with --to, or of some with --offset.

    A time is written as -1h, as 2026-11-23T04:00:00Z or in epoch milliseconds. Stop the group's
    consumers first: a group with live members is reset only with --force. The members of a broker
    then continue at the new offsets; in a directory that a process consumes without a broker, its
    later commits override the reset.
    """
    from pyrocket.values.admin import AtTime

    if (to is None) == (not offsets):
        raise click.UsageError("Use either --to or --offset.")
    target = place.target()
    place_of: Any = dict(offsets)
    if to is not None:
        words = "earliest", "latest"
        place_of = (
            to if to in words else AtTime(time_ms(to, target.now_ms, f"{', '.join(words)}, "))
        )
    if not create:
        _check_group(target, name)
    before, after = target.offsets_of_reset(name, topic, place_of)
    if not dry_run:
        with target.admin(write=True) as admin:
            after = dict(admin.groups.reset(name, topic, place_of, force=force))
    _show_reset(name, topic, before, {**before, **after}, dry_run=dry_run, as_json=as_json)
    return OK


def _check_group(target: AdminTarget, name: str) -> None:
    try:
        target.group(name)
    except GroupNotFoundError as error:
        remedy = f"{error.remedy} --create creates the group."
        raise GroupNotFoundError(error.message, remedy=remedy) from error


@click.group(cls=CommandGroup)
def offset() -> None:
    """Show the offsets of consumer groups."""


@offset.command("show")
@group_argument
@click.argument("topic", default="", metavar="[TOPIC]", shell_complete=complete_topics)
@place_options
@exits_with_json
def show_offsets(name: str, topic: str, place: GivenPlace, as_json: bool) -> int:
    """Show the offsets of GROUP in each queue of TOPIC, or of all its topics."""
    lags = [row for row in place.target().lag(name) if topic in ("", row.topic)]
    if as_json:
        show_json({"offsets": [_offset_document(row) for row in lags]})
    else:
        columns = ("topic", "broker", "queue", "minimum", "committed", "maximum")
        rows = [
            (row.topic, row.broker, row.queue_id, row.minimum, row.committed, row.maximum)
            for row in lags
        ]
        show_rows(columns, rows)
        if not lags:
            click.echo(f"{name} has no offsets in {topic or 'any topic'}.", err=True)
    return OK if lags else FOUND


def _show_reset(
    name: str,
    topic: str,
    before: Mapping[int, int],
    after: Mapping[int, int],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    rows = [(queue, before.get(queue), offset) for queue, offset in sorted(after.items())]
    if as_json:
        changes = [{"queueId": row[0], "before": row[1], "after": row[2]} for row in rows]
        show_json({"group": name, "topic": topic, "dryRun": dry_run, "offsets": changes})
    else:
        show_rows(("queue", "before", "would be" if dry_run else "after"), rows)


def _settings_document(one: "GroupConfig") -> dict[str, Any]:
    return {
        "group": one.name,
        "consumeEnabled": one.consume_enabled,
        "retryQueues": one.retry_queues,
        "retryMaxTimes": one.retry_max_times,
        "fifo": one.fifo,
        **_delays_document(one.backoff),
    }


def _delays_document(one: "Backoff") -> dict[str, Any]:
    if not one.initial_ms:
        return {"retryDelaysMs": [*one.delays_ms]}
    return {
        "retryInitialMs": one.initial_ms,
        "retryMaxMs": one.max_ms,
        "retryMultiplier": one.multiplier,
    }


def _show_settings(one: "GroupConfig") -> None:
    for label, value in _settings_document(one).items():
        shown = " ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{label:<16} {shown}")


def _show_members(members: "Sequence[LiveMember]") -> None:
    if not members:
        click.echo("No live members.")
        return
    rows = [(member.client_id, "differ" if member.differs else "the group's") for member in members]
    show_rows(("member", "subscriptions"), rows)


def _offset_document(one: QueueLag) -> dict[str, Any]:
    names = ("topic", "brokerName", "queueId", "minOffset", "committedOffset", "maxOffset")
    document = _document(one)
    return {name: document[name] for name in names}


def _sum_document(one: LagSum) -> dict[str, Any]:
    return {"topic": one.topic, "lag": one.lag, "lagBytes": one.bytes, "behindMs": one.delay_ms}


def _document(one: QueueLag) -> dict[str, Any]:
    return {
        "group": one.group,
        "topic": one.topic,
        "brokerName": one.broker,
        "queueId": one.queue_id,
        "committedOffset": one.committed,
        "minOffset": one.minimum,
        "maxOffset": one.maximum,
        "lag": one.lag,
        "lagBytes": one.bytes,
        "behindMs": one.delay_ms,
        "lost": one.lost,
        "beyondEnd": one.beyond_end,
    }
