"""The threads that do the work of calls.

Each kind of work has its own, so that none waits for another: a receive may scan the messages of a
queue, acks of its group wait for that, and sends wait for neither.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

_THREADS = 8

_Value = TypeVar("_Value")


class Work(Enum):
    """What a call does in a thread.

    READ: reads. WRITE: may wait for the write lock or the disk. RECEIVE: hands out messages to a
    group. CHANGE: changes the state of a group or of a client; may wait for a receive of the group.
    """

    READ = "read"
    WRITE = "write"
    RECEIVE = "receive"
    CHANGE = "change"


class Threads:
    """So many threads for each kind of work. Used by one event loop."""

    def __init__(self, read_threads: int) -> None:
        counts = dict.fromkeys(Work, _THREADS) | {Work.READ: read_threads}
        self._pools = {
            kind: ThreadPoolExecutor(count, f"pyrocket-{kind.value}")
            for kind, count in counts.items()
        }

    def run(self, work: Callable[[], _Value], kind: Work) -> Awaitable[_Value]:
        """Do work in a thread of its kind."""
        return asyncio.get_running_loop().run_in_executor(self._pools[kind], work)

    def shutdown(self) -> None:
        """Wait until all work is done."""
        for pool in self._pools.values():
            pool.shutdown()
