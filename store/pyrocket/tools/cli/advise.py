"""`pyrocket group advise`: the threads, processes and nodes that a consumer group needs."""

import os
from typing import TYPE_CHECKING, Any

import click

from pyrocket.tools.cli.frame import OK, as_json, exits, show_json
from pyrocket.tools.cli.place import GivenPlace, group_argument, place_options

if TYPE_CHECKING:
    from pyrocket.client.advice import Advice

_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command()
@group_argument
@place_options
@click.option(
    "--peak", type=_POSITIVE, required=True, help="Messages per second to be consumed at peak."
)
@click.option("--cpu-ms", type=_POSITIVE, help="T1: CPU time of the listener per message, in ms.")
@click.option(
    "--wait-ms",
    type=click.FloatRange(min=0),
    help="T2: the rest of its wall time, in ms.",
)
@click.option(
    "--cores",
    type=click.IntRange(1),
    help="Cores of one node; by default those of this machine.",
)
@click.option(
    "--rate", type=_POSITIVE, help="The measured throughput of one node, in messages per second."
)
@as_json
@exits
def advise(
    name: str,
    place: GivenPlace,
    peak: float,
    cpu_ms: float | None,
    wait_ms: float | None,
    cores: int | None,
    rate: float | None,
    as_json: bool,
) -> int:
    """Show how many threads, processes and nodes GROUP needs for a peak.

    threads = cores * (T1 + T2) / T1, and nodes = peak / throughput of one node. T1 and T2 are the
    times of the listener for one message: `PushConsumer.stats` measures them, and
    `PushConsumer.advise` uses them. Without --rate, the throughput of a node is computed
    from T1 and T2.
    """
    from pyrocket.client.advice import advise

    if (cpu_ms is None) != (wait_ms is None):
        raise click.UsageError("Use --cpu-ms and --wait-ms together.")
    if cpu_ms is None and rate is None:
        raise click.UsageError("Use --cpu-ms and --wait-ms, or --rate.")
    cores = cores or os.cpu_count() or 1
    queues = place.target().queues_of_group(name)
    found = advise(peak, cores, cpu_ms=cpu_ms, wait_ms=wait_ms or 0, node_rate=rate, queues=queues)
    document = {"group": name, "peak": peak, "cores": cores, **_document(found)}
    if as_json:
        show_json(document)
    else:
        for label, value in document.items():
            click.echo(f"{label:<16} {_shown(value)}")
        for line in _notes(found, queues):
            click.echo(f"\n{line}")
    return OK


def _document(one: "Advice") -> dict[str, Any]:
    return {
        "nodeRate": one.node_rate,
        "nodes": one.nodes,
        "processes": one.processes,
        "threadMax": one.thread_max,
        "threads": one.threads,
        "processRate": one.process_rate,
        "queues": one.queues,
        "idleConsumers": one.idle,
    }


def _shown(value: object) -> object:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else value


def _notes(one: "Advice", queues: dict[str, int]) -> list[str]:
    """Return the explanations of an advice, one line each."""
    notes = []
    if one.process_rate is not None:
        notes.append(
            f"Because of Python's GIL, a process consumes at most {one.process_rate:.10g} messages"
            f" per second. On each node, run {one.processes} processes, each with a"
            f" PushConsumer of thread_max={one.thread_max}."
        )
    if not queues:
        return [*notes, "The group has no offsets, so its topics and queues are not known."]
    notes.append(f"An orderly group consumes at most {one.queues} batches at once, one per queue.")
    if one.idle:
        consumers = one.nodes * one.processes
        notes.append(
            f"{one.idle} of {consumers} consumers have no queue: no topic has more than"
            f" {max(queues.values())}. Use `pyrocket topic alter TOPIC --queues {consumers}`."
        )
    return notes
