"""The command line of `pyrocket checkpoint`."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from pyrocket.errors import OptionError, StoreUnavailableError
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, directory, dry_run, exits_with_json, show_json
from pyrocket.tools.cli.frame import agreed as ask
from pyrocket.tools.cli.place import GivenPlace, place_options

from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.tools.checkpoints.files import PlannedBatch, SparkCheckpoint, read_checkpoint
from pyspark_pyrocket.tools.checkpoints.reset import (
    Move,
    place_of,
    plan_reset,
    source_of,
    write_move,
)
from pyspark_pyrocket.tools.checkpoints.show import (
    document,
    queue_names,
    show_checkpoint,
    show_table,
)
from pyspark_pyrocket.transport.interface import Bounds, Target
from pyspark_pyrocket.transport.targets import opened_source, target_at

PATIENCE_SECONDS = 3.0
"""How long to wait for the process of a query that has just stopped to exit."""

_RUNNER = b"pyspark.sql.streaming.python_streaming_source_runner"


def still_running(store: Path) -> list[int]:
    """Return `queries_on`, after waiting for queries that are stopping."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (queries := queries_on(store)) and time.monotonic() < until:
        time.sleep(0.1)
    return queries


def queries_on(store: Path, processes: Path = Path("/proc")) -> list[int]:
    """Return the processes of this user's streaming queries that have the store open.

    Spark starts such a process for every streaming query with a Python source. The checkpoint that
    it uses is not visible. Without /proc the list is empty.
    """
    if not processes.is_dir():
        return []
    numbers = sorted(int(name) for name in os.listdir(processes) if name.isdigit())
    return [number for number in numbers if _has_open(processes / str(number), store)]


def _has_open(process: Path, store: Path) -> bool:
    try:
        if _RUNNER not in (process / "cmdline").read_bytes():
            return False
        links = [os.readlink(process / "fd" / name) for name in os.listdir(process / "fd")]
    except OSError:
        return False  # The process has ended, or belongs to another user.
    return str(store.resolve()) in links


_topics = click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_force = click.option(
    "--force", is_flag=True, help="Continue even if a query is reading the store."
)
_source = click.option("--source", type=int, help="The source's number in the query, from 0.")


@click.group(cls=CommandGroup)
def checkpoint() -> None:
    """Show and move checkpoints of streaming queries."""


@checkpoint.command()
@directory
@place_options
@exits_with_json
def show(directory: str, place: GivenPlace, as_json: bool) -> int:
    """Show the progress of the query with the checkpoint in DIRECTORY.

    With the store that it reads, also shows the number of unread messages. Exits with 1 if files
    are damaged.
    """
    spark_checkpoint = read_checkpoint(directory)
    if as_json:
        show_json(document(spark_checkpoint))
    else:
        show_checkpoint(spark_checkpoint, _bounds(spark_checkpoint, place))
    return FOUND if spark_checkpoint.damaged else OK


@checkpoint.command()
@directory
@click.option("--to", required=True, help="earliest, latest, committed, a time, or JSON.")
@click.option("--group", default="", help="With --to committed: the group.")
@place_options
@_topics
@_source
@dry_run
@_yes
@_force
@exits_with_json
def reset(
    directory: str,
    to: str,
    group: str,
    place: GivenPlace,
    topics: tuple[str, ...],
    source: int | None,
    dry_run: bool,
    yes: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Move the query with the checkpoint in DIRECTORY to other offsets.

    Times are written as for the option startingTimestamp (-1h, 2026-01-31T12:00:00Z), JSON as for
    startingOffsets; queues that the JSON does not name keep their offsets. Stop the query first.
    The query continues with its next micro-batch, so its sink and its state do not change; rows
    that it has already written stay. With --json there is no confirmation prompt: without --yes
    nothing is changed.
    """
    spark_checkpoint = read_checkpoint(directory)
    start, newest = place_of(to, group), spark_checkpoint.last()
    source = source_of(newest, source)
    with opened_source(_target(place, _topics_of(newest))) as opened:
        _refuse_running(opened.target, force=force or dry_run)
        move = plan_reset(spark_checkpoint, opened, start, topics=topics, source=source)
        return _do(move, opened.now_ms(), dry_run=dry_run, yes=yes, as_json=as_json)


def _do(move: Move, now_ms: int, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    if not as_json:
        _show_move(move)
    agreed = not dry_run and (yes or (not as_json and ask("Do it?")))
    kept = write_move(move, now_ms) if agreed else None
    if as_json:
        show_json(
            {
                "done": agreed,
                "batch": move.batch,
                "replaces": list(move.replaces),
                "backup": str(kept) if kept else None,
                "before": _shown(move.before),
                "after": _shown(move.after),
            }
        )
    elif agreed:
        where = f" The replaced files were copied to {kept}." if kept else ""
        click.echo(f"The query continues from there when it is started again.{where}")
    return OK if agreed or dry_run else FOUND


def _show_move(move: Move) -> None:
    show_table(_offset_table(move.before.offsets, move.after.offsets))
    for number in move.replaces:
        click.echo(
            f"Micro-batch {number} was planned but not committed: it will not run again. Rows that"
            " it has written stay in the sink."
        )
    for name in move.in_the_way:
        click.echo(f"{name} prevents Spark from reading the checkpoint: it is moved to the backup.")


def _shown(offset: StreamOffset) -> dict[str, dict[str, int]]:
    """Return the offsets by topic; a topic that does not exist yet has no queues."""
    found: dict[str, dict[str, int]] = {topic: {} for topic in offset.topics}
    for queue, name in queue_names(offset.offsets).items():
        found[queue.topic][name] = offset.offsets[queue]
    return found


def _offset_table(before: Offsets, after: Offsets) -> Iterator[tuple[str, ...]]:
    yield ("topic", "queue", "from", "to")
    for queue, name in queue_names(after).items():
        yield (queue.topic, name, str(before.get(queue, "-")), str(after[queue]))


def _bounds(found: SparkCheckpoint, place: GivenPlace) -> Bounds | None:
    """Return the bounds of the queues that still exist; None if no store is given."""
    topics = _topics_of(found.newest) if found.newest else []
    if not topics or not place.find().name:
        return None
    with opened_source(_target(place, topics)) as opened:
        known = opened.topics()
        return opened.bounds([topic for topic in topics if topic in known])


def _topics_of(batch: PlannedBatch) -> list[str]:
    return sorted({topic for offset in batch.ours().values() for topic in offset.topics})


def _target(given: GivenPlace, topics: Sequence[str]) -> Target:
    """Return the target of a query that reads these topics of a place. Raises OptionError."""
    place = given.named()
    if place.broker:
        raise OptionError(
            "The checkpoint of a query has the offsets of all brokers.",
            remedy="Omit --broker and PYROCKET_BROKER.",
            code="OPTION_UNSUPPORTED",
        )
    options = {
        "path": place.path,
        "endpoint": place.endpoint,
        "namesrv": place.namesrv,
        "brokerAddresses": place.broker_addresses,
        "endpoint.tls": "true" if place.tls or place.ca else "",
        "endpoint.ca": place.ca,
        "endpoint.serverName": place.server_name,
        "accessKey": place.access_key,
        "secretKey": place.secret_key,
        "secretKeyFile": place.secret_key_file,
        "subscribe": ",".join(topics),
    }
    return target_at({name: value for name, value in options.items() if value})


def _refuse_running(target: Target, *, force: bool) -> None:
    """Raise StoreUnavailableError (QUERY_RUNNING) if a query of this machine reads the store."""
    if force or target.directory is None:
        return
    processes = still_running(Path(target.directory))
    if processes:
        raise StoreUnavailableError(
            f"A streaming query is reading {target.describe()} (process {processes[0]}).",
            remedy="Stop the query if it uses this checkpoint; otherwise use --force.",
            code="QUERY_RUNNING",
        )
