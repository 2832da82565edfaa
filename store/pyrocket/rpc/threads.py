"""The threads that run the work of calls.

Each kind of work has its own threads, so that kinds do not wait for each other. For example, a
receive may scan many messages of a queue. The acks of its group wait for it, but sends do not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

_THREADS = 8

_Value = TypeVar("_Value")


class Work(Enum):
    """The kind of work of a call.

    READ: Reads.
    WRITE: May wait for the write lock or the disk.
    RECEIVE: Delivers messages to a group.
    CHANGE: Changes the state of a group or a client; may wait for a receive of the group.
    """

    READ = "read"
    WRITE = "write"
    RECEIVE = "receive"
    CHANGE = "change"


class Threads:
    """A thread pool for each kind of work. Used by one event loop."""

    def __init__(self, read_threads: int) -> None:
        counts = dict.fromkeys(Work, _THREADS) | {Work.READ: read_threads}
        self._pools = {
            kind: ThreadPoolExecutor(count, f"pyrocket-{kind.value}")
            for kind, count in counts.items()
        }

    def run(self, work: Callable[[], _Value], kind: Work) -> Awaitable[_Value]:
        """Run work in a thread for its kind."""
        return asyncio.get_running_loop().run_in_executor(self._pools[kind], work)

    def shutdown(self) -> None:
        """Wait until all work is done."""
        for pool in self._pools.values():
            pool.shutdown()
