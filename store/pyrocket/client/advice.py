"""`advise`: how many threads, processes and nodes a consumer group needs for a peak load.

A listener computes for T1 ms per message (CPU time) and waits for T2 ms, for example for a
database. C cores are kept busy by C * (T1 + T2) / T1 threads. In Python, the threads of one process
compute one at a time (the GIL). Therefore one process consumes at most 1000 / T1 messages per
second, and a node needs a process for each core.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyrocket.errors import InvalidInputError

MAX_THREADS = 1000
"""The maximum of `ConsumerConfig.thread_max`."""

_DIGITS = 9


@dataclass(frozen=True)
class Advice:
    """The size of a consumer group; rates are in messages per second.

    Attributes:
        node_rate: The throughput of one node.
        nodes: The number of nodes.
        processes: Consumers on each node, each in its own process.
        thread_max: Threads of each consumer; None if the times of the listener are unknown.
        threads: Threads that keep all cores of one node busy; None as above.
        process_rate: The maximum throughput of one process; None as above.
        queues: The number of queues of all topics: an orderly group consumes one batch of each
            queue at once.
        idle: Consumers without a queue, since each queue is consumed by one consumer.
    """

    node_rate: float
    nodes: int
    processes: int
    thread_max: int | None
    threads: int | None
    process_rate: float | None
    queues: int
    idle: int


def advise(
    peak: float,
    cores: int,
    *,
    cpu_ms: float | None = None,
    wait_ms: float = 0,
    node_rate: float | None = None,
    queues: Mapping[str, int],
) -> Advice:
    """Return the size of a group that consumes `peak` messages per second.

    cores: The cores of one node.
    cpu_ms: CPU time of the listener per message, T1.
    wait_ms: The rest of its wall time per message, T2.
    node_rate: The measured throughput of one node; by default that of one process for each core.
    queues: Topic → number of its queues.

    Raises InvalidInputError (ADVICE_INPUT).
    """
    _check(peak=peak, cores=cores, cpu_ms=cpu_ms, node_rate=node_rate)
    _check(0, wait_ms=wait_ms)
    thread_max = threads = process_rate = None
    if cpu_ms is not None:
        threads = _ceil(cores * (cpu_ms + wait_ms) / cpu_ms)
        thread_max = min(_ceil((cpu_ms + wait_ms) / cpu_ms), MAX_THREADS)
        process_rate = 1000 * min(1 / cpu_ms, thread_max / (cpu_ms + wait_ms))
        most = cores * process_rate
        node_rate = most if node_rate is None else min(node_rate, most)
    if node_rate is None:
        raise _invalid("cpu_ms and node_rate are missing.", "Give at least one of them.")
    nodes = _ceil(peak / node_rate)
    processes = 1 if process_rate is None else min(_ceil(peak / nodes / process_rate), cores)
    idle = max(nodes * processes - max(queues.values()), 0) if queues else 0
    total = sum(queues.values())
    return Advice(node_rate, nodes, processes, thread_max, threads, process_rate, total, idle)


def _ceil(value: float) -> int:
    """Round up, except for the rounding errors of the division before."""
    return math.ceil(round(value, _DIGITS))


def _check(least: float | None = None, /, **given: float | None) -> None:
    for name, value in given.items():
        if value is None or (math.isfinite(value) and (value > 0 or value == least)):
            continue
        wanted = "greater than 0" if least is None else f"at least {least}"
        raise _invalid(f"{name} is {value!r}.", f"Use a number that is {wanted}.")


def _invalid(message: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(message, remedy=remedy, code="ADVICE_INPUT")
